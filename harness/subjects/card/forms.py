"""The arrays of a card in its own form, and the expected values in that form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.interval import Demand, Interval
from harness.expected.expected import Expected, fields_of
from harness.oracles import gemm_flags, gemm_grouped, grouped, layout, nvfp4
from harness.subjects.card.form import PADDING, Form, is_codes, is_scales
from harness.subjects.card.schema import ArrayForm
from harness.text import nearest

AS_IT_IS = ArrayForm()


@dataclass(frozen=True)
class CardForms:
    """The forms of a card's arrays.

    declared: by array; given: outputs of the recipe that are read; masked: rows of an allocation behind a tensor
    """

    case: Case
    declared: Mapping[str, ArrayForm]
    given: frozenset[str]
    masked: int = 0

    def refuses(self, name: str, inputs: Mapping[str, np.ndarray]) -> str:
        """Why an array cannot have the form that the card declares, or empty."""
        fields, said = {**input_fields(self.case, inputs), **fields_of(self.case)}, self.declared[name]
        if name not in fields:
            return f"{self.case.recipe} has no array '{name}'{nearest(name, fields)}"
        if said.form != "amax" and not name.endswith("amax"):
            return f"form is of an amax, and '{name}' is none"
        if (said.nibbles != "low" or said.zeros is not None) and not is_codes(name):
            return f"nibbles and zeros are of packed codes, and '{name}' has none"
        if said.reads != "any" and name not in (*inputs, *self.given):
            return f"reads is of an input, and '{name}' is none"
        if said.layout is None and said.padding == "written":
            return ""
        if not is_scales(fields[name]):
            return f"layout and padding are of scale bytes, and '{name}' has none"
        if said.padding == "absent" and self.form(name, fields[name]).swizzled:
            return "tiles of 128x4 have padding; `padding: absent` goes with `layout: compact`"
        return ""

    def form(self, name: str, field: Field) -> Form:
        """The form of an array. field: the contract's"""
        masked = self.masked if self._has_rows(name) else 0
        return Form(name, field, self.declared.get(name, AS_IT_IS), masked, self.case.e4m3_max)

    def inputs(self, arrays: Mapping[str, np.ndarray]) -> dict[str, Form]:
        """The forms of the arrays that the case reads."""
        return {name: self.form(name, field) for name, field in input_fields(self.case, arrays).items()}

    def outputs(self, fields: Mapping[str, Field]) -> dict[str, Form]:
        """The forms of the arrays that the kernels write."""
        return {name: self.form(name, field) for name, field in fields.items() if name not in self.given}

    def expected(self, expected: Expected) -> Expected:
        """The contract's expectation in the form of the card's arrays."""
        forms = self.inputs(expected.inputs)
        inputs = {name: forms[name].put(value) for name, value in expected.inputs.items()}
        for name in self.given:
            if name in expected.values:
                inputs[name] = self.form(name, expected.fields[name]).put(expected.values[name])
        written = self.outputs(expected.fields)
        fields = {name: form.stored for name, form in written.items()}
        values: dict[str, Demand] = {
            name: form.put(expected.values[name]) for name, form in written.items() if name in expected.values
        }
        return replace(expected, inputs=inputs, fields=fields, values=values)

    def written(self, expected: Expected, written: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """The card's outputs in the contract's form; None if they lack too much for that.

        Padding that is absent or not promised gets the expected values.
        """
        found = {}
        for name, field in expected.fields.items():
            value = expected.values[name]
            if name in self.given:
                found[name] = value
            elif isinstance(value, Interval) and name not in self.declared:
                found[name] = written[name]
            elif self.declared.get(name, AS_IT_IS).form != "amax" or isinstance(value, Interval):
                return None
            else:
                found[name] = self.form(name, field).take(written[name], value)
        return found

    def lines(self, expected: Expected) -> list[str]:
        """Sentences on the contract's bytes that are not judged: given outputs, and padding that is not promised."""
        lines = [f"given: {name} is the oracle's" for name in expected.fields if name in self.given]
        for name, field in expected.fields.items():
            said = self.declared.get(name, AS_IT_IS).padding
            if name not in self.given and said != "written" and is_scales(field):
                form = replace(self.form(name, field), said=AS_IT_IS)
                count = int(np.count_nonzero(form.regions == PADDING))
                if count:
                    is_what = "absent" if said == "absent" else "anything"
                    lines.append(f"padding: {count:,} bytes of {name} are {is_what}")
        return lines

    def _has_rows(self, name: str) -> bool:
        """Whether an array's rows are the tensor's; only then, in rowwise arrays, can it have masked rows."""
        if name == "bias" or (self.case.is_gemm and name.startswith("b_")):
            return False
        return not name.endswith("amax") or self._amax_by_row(name)

    def _amax_by_row(self, name: str) -> bool:
        known = fields_of(self.case).get(name)
        if known is not None:
            return known.shape[:1] == (self.case.rows,)
        if self.case.is_gemm:
            return self.case.flags.get("epilogue") != "per_tensor"
        return self.case.flags.get("granularity", "tensor") != "tensor"


_SIDE = {"dequantize": "outputs", "swizzle": "direction", "swizzle_grouped": "direction"}  # the flag that names a copy
_PRODUCTS = ("gemm", "gemm_ordered", "gemm_grouped")


def input_fields(case: Case, arrays: Mapping[str, np.ndarray]) -> dict[str, Field]:
    """A field for each array that the case reads."""
    fields = {name: Field(array.shape, array.dtype.name) for name, array in arrays.items()}
    # The oracle only describes the tensor, so the padding of a larger allocation is unknown.
    scales = {name: field for name, field in _scales(case).items() if field.size == fields[name].size}
    return fields | {name: replace(field, shape=fields[name].shape) for name, field in scales.items()}


def read_side(case: Case, name: str) -> str:
    """The copy of a quantized tensor that an input array belongs to, `rowwise` or `columnwise`; else empty."""
    if case.recipe in _SIDE:
        return str(case.flags[_SIDE[case.recipe]])
    if case.recipe in _PRODUCTS and name[:2] in ("a_", "b_"):
        return gemm_flags.direction(case, name[0]).name
    return ""


def _scales(case: Case) -> dict[str, Field]:
    if case.recipe in _PRODUCTS:
        operands = {name: [_of_operand(part, name) for part in case.parts] for name in "ab"}
        return {f"{name}_scale_inv": Field.joined(of) if case.is_group else of[0] for name, of in operands.items()}
    if case.recipe not in _SIDE:
        return {}
    flags, direction = case.flags, layout.DIRECTIONS[read_side(case, "")]
    if case.recipe == "dequantize":
        swizzled = flags.scale_layout == "swizzled"
        return {"scale_inv": layout.scale_field(case.rows, case.cols, direction, str(flags.block), swizzled)}
    swizzled = flags.to == "compact"
    extents = case.problem.tensors if case.is_group else [(case.rows, case.cols)]
    parts = [layout.scale_field(*each, direction, "block_1x16", swizzled) for each in extents]
    return {"swizzled_scale_inv" if swizzled else "scale_inv": Field.joined(parts) if case.is_group else parts[0]}


def _of_operand(case: Case, name: str) -> Field:
    valid = gemm_flags.lines(case, name), case.cols // nvfp4.BLOCK
    return Field(
        layout.padded_shape(*valid), "uint8", valid=valid, swizzled=case.flags[f"{name}_scale_layout"] == "swizzled"
    )


Starts = Mapping[str, tuple[int, ...]]


def tensor_starts(card_forms: CardForms, inputs: Mapping[str, np.ndarray]) -> Starts:
    """By array, the byte at which each tensor's part begins; none if the case is no group.

    inputs: in the contract's form. Extents and offsets have no parts: the device has one array of each.
    """
    case = card_forms.case
    if not case.is_group:
        return {}
    fields = fields_of(case)
    known = {
        **{name: _of_fields(parts) for name, parts in _quantizer_inputs(case).items() if name in inputs},
        **(_of_products(case, inputs) if case.is_gemm else {}),
    }
    forms = {**card_forms.inputs(inputs), **{name: card_forms.form(name, field) for name, field in fields.items()}}
    return known | {name: _of_fields(form.stored.parts) for name, form in forms.items() if form.stored.parts}


def _of_fields(parts: Iterable[Field]) -> tuple[int, ...]:
    return (0, *accumulate(part.nbytes for part in parts))[:-1]


def _quantizer_inputs(case: Case) -> dict[str, tuple[Field, ...]]:
    if case.recipe != "grouped":
        return {}
    dtype = nvfp4.DTYPES[case.flags.dtype].name
    values = tuple(Field(extents, dtype) for extents in case.problem.tensors)
    return {"input": values, "act_input": values} | {
        name: field.parts for name, field in grouped.given_fields(case).items() if field.parts
    }


def _of_products(case: Case, inputs: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    places = gemm_grouped.places(case)
    return {
        name: tuple(group[name].start * inputs[name][:1].nbytes for group in places)
        for name in places[0]
        if name in inputs
    }
