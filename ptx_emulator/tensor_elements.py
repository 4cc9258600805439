"""The elements of a tensor map: their types, the fill for places outside of the tensor, and how a load converts them.

An H200 (driver 580.159.04) fills with these NaN, rounds tfloat32 to the nearest, ties to even, and leaves subnormals of
`_ftz` as they are on their way to shared memory.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.registers import U8, U32

# Element type → bits, in the order of CUtensorMapDataType; the last is packed without gaps.
BITS = {
    "uint8": 8, "uint16": 16, "uint32": 32, "int32": 32, "uint64": 64, "int64": 64, "float16": 16, "float32": 32,
    "float64": 64, "bfloat16": 16, "float32_ftz": 32, "tfloat32": 32, "tfloat32_ftz": 32, "uint4": 4,
}  # fmt: skip
TYPES = tuple(BITS)
FLOATS = frozenset(kind for kind in TYPES if "float" in kind)
NAN_PAIR = b"\xf7\x7f"  # 0x7FF7, a 16-bit NaN; repeated, it is a NaN in wider elements, too
_NAN_TF32 = U32(0x7FFFE000)


def loaded(content: np.ndarray, kind: str) -> np.ndarray:
    """Bytes of elements, (n, width) uint8, as a load writes them to shared memory."""
    if kind not in ("tfloat32", "tfloat32_ftz"):
        return content
    bits = np.ascontiguousarray(content).view(U32)
    magnitude = bits & U32(0x7FFFFFFF)
    even = bits + U32(0xFFF) + (bits >> U32(13) & U32(1))
    rounded = np.where(magnitude < U32(0x7F800000), even & U32(0xFFFFE000), bits)
    bits = np.where(magnitude > U32(0x7F800000), _NAN_TF32, rounded)
    return np.ascontiguousarray(bits).view(U8)
