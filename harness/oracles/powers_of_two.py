"""What a contract makes of a tensor times a power of two, where that follows from the contract: NUMERICS 2 to 10.

Of x and of x * 2^-n, n = POWER, a quantizer makes the same codes and block scales, and amaxes times 2^-n: an amax is a
maximum of magnitudes, S_enc a quotient by it, a block scale a product of an amax and S_enc, and a code one of x and a
multiplier made of S_enc, so that every step either keeps its value or is multiplied by a power of two, which changes no
rounding. Random bits belong to places and stay. A decoded tensor is multiplied by 2^-n, and a product of two such
tensors by 2^-2n, if C and the bias are.

This ends where a number is not normal or a bound is reached: S_enc at FLT_MAX, the floor of 1e-12 under an amax, an
infinite amax whose S_enc is 1, a subnormal product, an fp16 below 2^-14. So it is only said of entries that are 0 or
lie in LEAST to LARGEST, before and, in their dtype, after; then each of these steps has normal numbers alone: a
multiplier is at most 2^60, a code under a scale of 0 is +-6 either way, and an error of four_over_six is 0 or above
2^-62, and its square above 2^-126. Casts have no amax, and neither has a quantizer without a global scale, whose block
scales follow x; an activation's derivative is multiplied before the amax is taken, by any number. Of these, and of a
user's recipe, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.contract.case import Case
from harness.contract.interval import Demand, Interval

POWER = 3
LEAST, LARGEST = 2.0**-36, 2.0**36
_QUANTIZERS = {"per_tensor", "row_scaled", "local_1x64", "four_over_six", "per_token", "grouped"}
_PRODUCTS = {"gemm", "gemm_ordered", "gemm_grouped"}
_CODES = ("data", "scale_inv", "offsets", "dims")  # how the names end of arrays that stay
_MANTISSA = {"float16": 10, "bfloat16": 7, "float32": 23}  # bits
_CHUNK = 1 << 16  # entries that fit in a core's cache, with what is made of them


def follows(case: Case) -> bool:
    """Whether the answer for other tensors follows from the contract of the case's recipe, which is not a pipeline."""
    known = case.recipe in _QUANTIZERS | _PRODUCTS | {"dequantize"}
    levels = all(case.flags.get(f"{operand}global_scale", True) for operand in ("", "a_", "b_"))
    return known and levels and case.flags.get("activation", "none") == "none"


def powers(recipe: str, name: str) -> int:
    """How many times an array of a recipe, one that it reads or writes, is multiplied by 2^-POWER."""
    if name.endswith(_CODES):
        return 0
    return 2 if recipe in _PRODUCTS and not name.endswith("amax") else 1


def times(value: Demand, power: int) -> Demand | None:
    """An array, or an interval of arrays, times 2^-(POWER * power); None if that is not certain for some entry."""
    if power == 0:
        return value
    if isinstance(value, Interval):
        ends = [divided(end, POWER * power) for end in (value.low, value.high)]
        ordered = None if value.ordered is None else divided(value.ordered, POWER * power)
        uncertain = any(end is None for end in ends) or (ordered is None) != (value.ordered is None)
        return None if uncertain else Interval(*ends, ordered=ordered)
    return divided(value, POWER * power)


def divided(array: np.ndarray, *powers: int) -> np.ndarray | None:
    """An array divided by 2 to these powers, which its entries take in turns; None for entries beyond the range above.

    Only exponents are changed, because arithmetic on a large tensor of bf16 takes seconds.
    """
    if array.dtype.name not in _MANTISSA:
        return None
    bits = np.dtype(f"u{array.dtype.itemsize}")
    magnitude = bits.type(np.iinfo(bits).max >> 1)
    steps = np.resize(np.array(powers, bits) << bits.type(_MANTISSA[array.dtype.name]), _CHUNK)
    least, largest = np.array(_range(array.dtype, max(powers)), np.float32).astype(array.dtype).view(bits)
    source = np.ascontiguousarray(array).reshape(-1).view(bits)
    made = np.empty_like(source)
    for chunk in _chunks(source.size):
        sizes = source[chunk] & magnitude
        if sizes.max() > largest or (sizes - bits.type(1)).min() < least - 1:  # where 0 is the largest integer
            return None
        np.subtract(source[chunk], (sizes != 0) * steps[: sizes.size], out=made[chunk])
    return made.view(array.dtype).reshape(array.shape)


def _range(dtype: np.dtype, power: int) -> tuple[float, float]:
    if dtype == np.float16:
        return 2.0 ** (power - 14), 2.0**15
    return LEAST, LARGEST


def _chunks(size: int) -> Iterator[slice]:
    return (slice(first, min(first + _CHUNK, size)) for first in range(0, size, _CHUNK))
