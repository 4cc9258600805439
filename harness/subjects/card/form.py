"""One array in memory: the contract's field in the form that a card declares, and which bytes are promised. A group's
array has its tensors back to back. Behind a tensor's rows there may be masked rows, which are in the same allocation
but belong to no tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from harness.contract.field import Field, owner_of
from harness.contract.interval import Demand, Interval
from harness.device.device import Outcome
from harness.oracles import layout, nvfp4
from harness.subjects.card.schema import ArrayForm

TENSOR, PADDING, MASKED = 0, 1, 2  # the region that a byte belongs to
REGIONS = {TENSOR: "the tensor", PADDING: "padding", MASKED: "masked rows"}
_NEGATIVE_ZERO, _LOW = 8, 15


def is_scales(field: Field) -> bool:
    """Whether a field holds padded scale bytes, of one tensor or of each tensor of a group."""
    if field.parts:
        return any(is_scales(part) for part in field.parts)
    return field.valid is not None and len(field.shape) == 2 and field.dtype == "uint8"


def is_codes(name: str) -> bool:
    """Whether an array of this name holds packed e2m1 codes."""
    return name.endswith("data") and "e4m3" not in name


@dataclass(frozen=True)
class Form:
    """The form of one array.

    field: the contract's; said: the card's entry; masked: rows behind the tensor's; e4m3_max: that of the case
    """

    name: str
    field: Field
    said: ArrayForm
    masked: int = 0
    e4m3_max: int = nvfp4.E4M3_MAX

    @property
    def swizzled(self) -> bool:
        """Whether the card keeps the scale bytes in tiles."""
        said = self.said.layout
        contract = self.field.parts[0].swizzled if self.field.parts else self.field.swizzled
        return contract if said is None else said == "swizzled"

    @cached_property
    def stored(self) -> Field:
        """The field in the card's form."""
        if self.field.parts:
            parts = [form.stored for form in self._parts()]
            same = sum(part.size for part in parts) == self.field.size
            return Field.joined(parts, self.field.shape if same else None, self.field.slack)
        if not is_scales(self.field):
            rows = self.field.shape[0] + self.masked if self.field.shape else 0
            return replace(self.field, shape=(rows, *self.field.shape[1:])) if self.masked else self.field
        rows, cols = self.field.valid
        rows += self.masked
        if self.said.padding == "absent":
            return replace(self.field, shape=(rows, cols), valid=None, swizzled=False)
        shape = layout.padded_shape(rows, cols)
        return replace(self.field, shape=shape, valid=(rows, cols), swizzled=self.swizzled)

    @cached_property
    def regions(self) -> np.ndarray:
        """The region of each byte, flat, in memory order."""
        if self.field.parts:
            return np.concatenate([np.empty(0, np.uint8), *(form.regions for form in self._parts())])
        if is_scales(self.field):
            rows, cols = self.field.valid
            grid = np.full(self.stored.shape, PADDING, np.uint8)
            grid[: rows + self.masked, :cols] = MASKED
            grid[:rows, :cols] = TENSOR
            return (layout.swizzle(grid) if self.stored.swizzled else grid).reshape(-1)
        entries = np.full(self.stored.size, TENSOR, np.uint8)
        entries[self.field.size :] = MASKED
        return np.repeat(entries, np.dtype(self.field.dtype).itemsize)

    @property
    def promised(self) -> np.ndarray:
        """Mask of the bytes, flat, that are promised to equal those of `put`."""
        found = self.regions == TENSOR
        if self.said.padding == "written":
            found |= self.regions == PADDING
        if self.said.masked == "zero":
            found |= self.regions == MASKED
        return found

    def put(self, value: Demand) -> Demand:
        """The contract's value in the card's form; padding and masked rows are zero."""
        if isinstance(value, Interval):
            return value.map(self._put)
        return self._put(value)

    def take(self, kept: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Convert a kernel's output to the contract's form. value: the contract's, for parts that the array lacks"""
        if self.field.parts:
            parts = [form.take(self.stored.part(kept, g), self.field.part(value, g)) for g, form in self._numbered()]
            return np.concatenate([np.empty(0, value.dtype), *(part.reshape(-1) for part in parts)]).reshape(
                value.shape
            )
        if self.said.form != "amax":
            return value
        if is_scales(self.field):
            return self._scales(kept, value)
        return _swapped(kept[: len(value)]) if self._swaps else kept[: len(value)]

    def place(self, byte: int) -> tuple[str, list[int]]:
        """The region and the entry that a byte of the array belongs to; for scale bytes the entry in compact order."""
        itemsize = np.dtype(self.stored.dtype).itemsize
        entry = byte // itemsize
        if self.field.parts:
            number, entry = owner_of(self.stored, entry)
            what, at = self._parts()[number].place(entry * itemsize)
            return f"{what} of tensor {number}", at
        number = np.arange(self.stored.size).reshape(self.stored.shape)
        where = (layout.unswizzle(number) if self.stored.swizzled else number) == entry
        return REGIONS[int(self.regions[byte])], [int(i) for i in np.argwhere(where)[0]]

    @property
    def _swaps(self) -> bool:
        return self.said.nibbles == "high" and is_codes(self.name)

    def _numbered(self) -> Iterator[tuple[int, Form]]:
        for number, part in enumerate(self.field.parts):
            yield number, replace(self, field=part)

    def _parts(self) -> list[Form]:
        return [form for _, form in self._numbered()]

    def _put(self, value: np.ndarray) -> np.ndarray:
        if self.field.parts:
            parts = [form._put(self.field.part(value, g)).reshape(-1) for g, form in self._numbered()]
            return np.concatenate([np.empty(0, value.dtype), *parts]).reshape(self.stored.shape)
        if is_scales(self.field):
            rows, cols = self.field.valid
            grid = np.zeros(self.stored.shape, np.uint8)
            grid[:rows, :cols] = (layout.unswizzle(value) if self.field.swizzled else value)[:rows, :cols]
            return layout.swizzle(grid) if self.stored.swizzled else grid
        if self.said.form != "amax":
            encode = nvfp4.global_encode_scale(value, self.e4m3_max)
            value = encode if self.said.form == "encode" else nvfp4.global_decode_scale(encode)
        if is_codes(self.name):
            value = _unsigned(value) if self.said.zeros == "unsigned" else value
            value = _swapped(value) if self._swaps else value
        if not self.masked:
            return value
        return np.concatenate([value, np.zeros((self.masked, *value.shape[1:]), value.dtype)])

    def _scales(self, kept: np.ndarray, value: np.ndarray) -> np.ndarray:
        rows, cols = self.field.valid
        compact = layout.unswizzle(kept) if self.stored.swizzled else kept
        found = (layout.unswizzle(value) if self.field.swizzled else value).copy()
        if self.said.padding == "written" and not self.masked:
            found[...] = compact
        else:
            found[:rows, :cols] = compact[:rows, :cols]
        return layout.swizzle(found) if self.field.swizzled else found


def _swapped(codes: np.ndarray) -> np.ndarray:
    return (codes >> 4) | (codes << 4)


def _unsigned(codes: np.ndarray) -> np.ndarray:
    """The codes, two in a byte, with -0 replaced by +0."""
    low = np.where(codes & _LOW == _NEGATIVE_ZERO, codes ^ _NEGATIVE_ZERO, codes)
    return np.where(low >> 4 == _NEGATIVE_ZERO, low & _LOW, low).astype(np.uint8)


class Promised:
    """A program whose unpromised output bytes are replaced by the expected ones.

    forms: its outputs'; values: expected outputs, in the card's form
    """

    kernels = ()

    def __init__(self, program: Any, forms: Mapping[str, Form], values: Mapping[str, Demand]):
        self.program, self.forms = program, forms
        self.promise(values)

    def promise(self, values: Mapping[str, Demand]) -> None:
        """Take the unpromised bytes from these values from now on."""
        forms = self.forms
        self._rest: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for name, value in values.items():
            places = np.flatnonzero(~forms[name].promised)
            if places.size:
                content = value.low if isinstance(value, Interval) else value
                flat = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
                self._rest[name] = places, flat[places]

    def run(self, poison: int, repeat: int, **how: bool) -> Outcome:
        return self.filled(self.program.run(poison, repeat, **how))

    def order(self, repeat: int) -> Any:
        return self.program.order(repeat)

    def filled(self, outcome: Outcome) -> Outcome:
        """The outcome with the expected bytes wherever nothing is promised."""
        return replace(outcome, outputs=outcome.outputs | {
            name: _filled(outcome.outputs[name], *rest) for name, rest in self._rest.items()
        })  # fmt: skip


def _filled(array: Any, places: np.ndarray, content: np.ndarray) -> Any:
    array = array.copy()
    if isinstance(array, np.ndarray):
        array[places] = content
    else:
        cupy = import_module("cupy")
        array[cupy.asarray(places)] = cupy.asarray(content)
    return array
