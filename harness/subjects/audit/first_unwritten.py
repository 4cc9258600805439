"""The place of the first byte of an output that a subject never wrote."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.oracles import layout
from harness.verify.diagnosis.difference import first_input


def place(case: Case, field: Field, byte: int) -> str:
    """Where a byte of an output lies, such as `[0, 64], from input [0, 128]`; scale bytes in compact order."""
    entry, tensor = byte // np.dtype(field.dtype).itemsize, ""
    if field.parts:
        ends = list(accumulate(part.size for part in field.parts))
        number = next(number for number, end in enumerate(ends) if entry < end)
        field, entry, tensor = (
            field.parts[number],
            entry - (ends[number] - field.parts[number].size),
            f" of tensor {number}",
        )
    if field.swizzled:
        entry = int(np.flatnonzero(layout.unswizzle(np.arange(field.size).reshape(field.shape)) == entry)[0])
    at = tuple(int(index) for index in np.unravel_index(entry, field.shape))
    if field.valid and any(index >= extent for index, extent in zip(at, field.valid, strict=True)):
        return f"{list(at)}{tensor}, in the padding"
    source = "" if case.is_gemm or len(at) != 2 else f", from input {list(first_input(field, at))}"
    return f"{list(at)}{tensor}{source}"
