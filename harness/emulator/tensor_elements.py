"""The elements of a tensor map: their types, what fills places outside of the tensor, and what a load makes of them.

The pattern of the NaN, and that loads round tfloat32 to nearest with ties away from zero and flush subnormals of
`_ftz`, are as the Ventus project published of an H100 and a B200 (2026-07); they were not measured here.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.arithmetic.rounding import flush_f32
from harness.emulator.registers import U8, U32

# Element type → bits, in the order of CUtensorMapDataType; the last is packed without gaps.
BITS = {
    "uint8": 8, "uint16": 16, "uint32": 32, "int32": 32, "uint64": 64, "int64": 64, "float16": 16, "float32": 32,
    "float64": 64, "bfloat16": 16, "float32_ftz": 32, "tfloat32": 32, "tfloat32_ftz": 32, "uint4": 4,
}  # fmt: skip
TYPES = tuple(BITS)
FLOATS = frozenset(kind for kind in TYPES if "float" in kind)
NAN_PAIR = b"\xf7\x7f"  # 0x7FF7, a NaN of 16 bits, which repeats in wider elements and is a NaN of each
_NAN_TF32 = U32(0x7FFFE000)


def loaded(content: np.ndarray, kind: str) -> np.ndarray:
    """Bytes of elements, (n, width) uint8, as a load writes them to shared memory."""
    if kind not in ("float32_ftz", "tfloat32", "tfloat32_ftz"):
        return content
    bits = np.ascontiguousarray(content).view(U32)
    if kind.endswith("_ftz"):
        bits = flush_f32(bits)
    if kind.startswith("tfloat32"):
        magnitude = bits & U32(0x7FFFFFFF)
        rounded = np.where(magnitude < U32(0x7F800000), (bits + U32(0x1000)) & U32(0xFFFFE000), bits)
        bits = np.where(magnitude > U32(0x7F800000), _NAN_TF32, rounded)
    return np.ascontiguousarray(bits).view(U8)
