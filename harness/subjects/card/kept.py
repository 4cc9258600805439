"""How the arrays of a card differ from the contract's, and what is expected of them therefore."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.interval import Demand, Interval
from harness.oracles import layout, nvfp4
from harness.subjects.card.schema import Kept
from harness.suite.schema import nearest
from harness.verify.expected import Expected, fields_of

AS_IT_IS = Kept()


@dataclass(frozen=True)
class Keeping:
    """kept: by array; given: outputs of the recipe that the kernels read"""

    case: Case
    kept: Mapping[str, Kept]
    given: frozenset[str]

    def refuses(self, name: str, inputs: Mapping[str, np.ndarray]) -> str:
        """Why an array cannot be kept as the card says, or empty."""
        fields, said = fields_of(self.case), self.kept[name]
        if name not in (*fields, *inputs):
            return f"{self.case.recipe} has no array '{name}'{nearest(name, (*fields, *inputs))}"
        if said.form != "amax" and not name.endswith("amax"):
            return f"form is of an amax, and '{name}' is none"
        if said.layout is None and said.padding == "written":
            return ""
        if name not in fields or not _is_scales(fields[name]):
            return f"layout and padding are of an output of scale bytes, and '{name}' is none"
        if said.padding == "absent" and self._swizzled(name, fields[name]):
            return "tiles of 128x4 have padding; `padding: absent` goes with `layout: compact`"
        return ""

    def expected(self, expected: Expected) -> Expected:
        """What the contract expects, in the form of the card's arrays."""
        inputs = {name: self._array(name, value, None) for name, value in expected.inputs.items()}
        fields: dict[str, Field] = {}
        values: dict[str, Demand] = {}
        for name, field in expected.fields.items():
            value = expected.values.get(name)
            if value is None or isinstance(value, Interval):
                fields[name] = field
                values |= {} if value is None else {name: value}
            elif name in self.given:
                inputs[name] = self._array(name, value, field)
            else:
                fields[name], values[name] = self._field(name, field), self._array(name, value, field)
        return replace(expected, inputs=inputs, fields=fields, values=values)

    def written(self, expected: Expected, written: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """What the card's kernels wrote, in the contract's form; None if that says too little.

        Padding that they have not is as expected, because it is nothing of theirs.
        """
        found = {}
        for name, field in expected.fields.items():
            said, value = self.kept.get(name, AS_IT_IS), expected.values[name]
            if name in self.given:
                found[name] = value
                continue
            if said.form != "amax" or isinstance(value, Interval):
                return None
            array = written[name]
            if said.padding == "absent":
                compact = (layout.unswizzle(value) if field.swizzled else value).copy()
                compact[: array.shape[0], : array.shape[1]] = array
                array = layout.swizzle(compact) if field.swizzled else compact
            elif self._swizzled(name, field) != field.swizzled:
                array = layout.swizzle(array) if field.swizzled else layout.unswizzle(array)
            found[name] = array
        return found

    def lines(self, expected: Expected) -> list[str]:
        """What of the contract's bytes the kernels have no part in."""
        lines = [f"given: {name} is the oracle's" for name in expected.fields if name in self.given]
        for name, field in expected.fields.items():
            if self.kept.get(name, AS_IT_IS).padding == "absent" and field.valid is not None:
                lines.append(f"padding: {field.size - int(np.prod(field.valid)):,} bytes of {name} are absent")
        return lines

    def _swizzled(self, name: str, field: Field) -> bool:
        said = self.kept.get(name, AS_IT_IS).layout
        return field.swizzled if said is None else said == "swizzled"

    def _field(self, name: str, field: Field) -> Field:
        if name not in self.kept or not _is_scales(field):
            return field
        if self.kept[name].padding == "absent":
            return replace(field, shape=tuple(field.valid or ()), valid=None, swizzled=False)
        return replace(field, swizzled=self._swizzled(name, field))

    def _array(self, name: str, value: np.ndarray, field: Field | None) -> np.ndarray:
        said = self.kept.get(name)
        if said is None:
            return value
        if said.form != "amax":
            encode = nvfp4.global_encode_scale(value, int(self.case.flags.get("e4m3_max", nvfp4.E4M3_MAX)))
            return encode if said.form == "encode" else nvfp4.global_decode_scale(encode)
        if field is None or not _is_scales(field):
            return value
        compact = layout.unswizzle(value) if field.swizzled else value
        if said.padding == "absent":
            rows, cols = field.valid or value.shape
            return np.ascontiguousarray(compact[:rows, :cols])
        return layout.swizzle(compact) if self._swizzled(name, field) else compact


def _is_scales(field: Field) -> bool:
    """Whether a field is one matrix of scale bytes with padding."""
    return field.valid is not None and len(field.shape) == 2 and field.dtype == "uint8"
