"""Compare bytes in NumPy or CuPy arrays."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

_THREADS, _BLOCKS = 256, 1024
_SOURCE = r"""
typedef unsigned long long u64;

__device__ bool unlike(uint4 a, uint4 b) { return a.x != b.x || a.y != b.y || a.z != b.z || a.w != b.w; }

// Sets *found if `one` has a byte that is not the other's or, without another, is not `byte`.
extern "C" __global__ void differ(
    const unsigned char* one, const unsigned char* other, u64 size, unsigned byte, unsigned* found) {
  const u64 step = u64(gridDim.x) * blockDim.x, first = u64(blockIdx.x) * blockDim.x + threadIdx.x;
  const u64 wide = (u64(one) | u64(other)) % 16 ? 0 : size / 16;
  const unsigned four = byte * 0x01010101u;
  const uint4 same = make_uint4(four, four, four, four);
  bool wrong = false;
  for (u64 i = first; i < wide; i += step)
    wrong |= unlike(((const uint4*)one)[i], other ? ((const uint4*)other)[i] : same);
  for (u64 i = 16 * wide + first; i < size; i += step) wrong |= one[i] != (other ? other[i] : byte);
  if (wrong) atomicOr(found, 1);
}
"""


def equal_bytes(one: Any, other: Any) -> bool:
    """Whether two arrays have the same bytes, or every byte of an array of bytes is the integer `other`.

    Both on the host or both on the GPU, contiguous. On the GPU a kernel compares them: CuPy's `==` and `all` would
    compile for seconds and need memory for a result per byte.
    """
    if not isinstance(other, int) and one.nbytes != other.nbytes:
        return False
    if isinstance(one, np.ndarray):
        return bool((one == other).all()) if isinstance(other, int) else one.tobytes() == other.tobytes()
    if not one.size:
        return True
    found = import_module("cupy").zeros(1, np.uint32)
    second, byte = (0, other) if isinstance(other, int) else (other.data.ptr, 0)
    blocks = min(_BLOCKS, -(-one.nbytes // (16 * _THREADS)))
    arguments = np.uint64(one.data.ptr), np.uint64(second), np.uint64(one.nbytes), np.uint32(byte), found
    _kernel()((blocks,), (_THREADS,), arguments)
    return not int(found.get()[0])


@cache
def _kernel() -> Any:
    return import_module("cupy").RawKernel(_SOURCE, "differ")
