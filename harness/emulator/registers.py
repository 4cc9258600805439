"""What an arithmetic instruction is to the machine: a function on register arrays, with the types it reads and writes.

A register holds raw bits in an unsigned array of shape (blocks or 1, threads or 1); an extent of 1 means that all
blocks, or all threads of a block, share the value. Every function here and in the modules that fill the tables maps
such arrays to such arrays by broadcasting and never writes to its arguments. Predicates are bool arrays.
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
    """One mnemonic without memory or control. compute: one array per source in, one array out."""

    compute: Compute
    result: str
    sources: tuple[str, ...]


def same_shape(*arrays: Bits) -> tuple[Bits, ...]:
    """The arrays broadcast against each other and contiguous, so that each may be viewed as narrower elements."""
    if all(array.shape == arrays[0].shape for array in arrays):
        return arrays
    return tuple(np.ascontiguousarray(array) for array in np.broadcast_arrays(*arrays))


def halves(compute: Compute, half: type = U16, whole: type = U32) -> Compute:
    """A function on 16-bit (or 32-bit) arrays as one on registers twice as wide that hold two."""

    def on_pairs(*arrays: Bits) -> Bits:
        return np.ascontiguousarray(compute(*(array.view(half) for array in same_shape(*arrays)))).view(whole)

    return on_pairs
