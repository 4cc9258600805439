"""Registers as arrays, and operations on them.

A register is an unsigned array of shape (blocks or 1, threads or 1); an extent of 1 means that all blocks, or all
threads of a block, share the value. A predicate is a bool array. Operations broadcast and never write to their
arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

WARP, WARPGROUP = 32, 128  # threads

Bits = np.ndarray
Compute = Callable[..., Bits]

U8, U16, U32, U64 = np.uint8, np.uint16, np.uint32, np.uint64
I8, I16, I32, I64 = np.int8, np.int16, np.int32, np.int64
F16, F32, F64 = np.float16, np.float32, np.float64

UNSIGNED = {1: U8, 2: U16, 4: U32, 8: U64}
SIGNED = {1: I8, 2: I16, 4: I32, 8: I64}


@dataclass(frozen=True)
class Operation:
    """A mnemonic that neither touches memory nor branches.

    compute: one array per source → result; lane: its compiled form, see `compiled.lanes`, "" if it has none
    """

    compute: Compute
    result: str
    sources: tuple[str, ...]
    lane: str = ""


def same_shape(*arrays: Bits) -> tuple[Bits, ...]:
    """Broadcast the arrays and make them contiguous, so that each may be viewed as narrower elements."""
    if all(array.shape == arrays[0].shape for array in arrays):
        return arrays
    return tuple(np.ascontiguousarray(array) for array in np.broadcast_arrays(*arrays))


def halves(compute: Compute, half: type = U16, whole: type = U32) -> Compute:
    """Lift a function on 16-bit (or 32-bit) arrays to packed registers of two."""

    def on_pairs(*arrays: Bits) -> Bits:
        return np.ascontiguousarray(compute(*(array.view(half) for array in same_shape(*arrays)))).view(whole)

    return on_pairs
