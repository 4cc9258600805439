"""Operands of a GEMM drawn as bytes, for the inputs that test its sums: `exact_sum` and `wide_sum`.

They depend on the seed of the case alone, so both oracles and every kernel of the case read the same bytes.
"""

from __future__ import annotations

import numpy as np

from harness.contract.case import Case
from harness.oracles import gemm_flags, layout, nvfp4

INPUTS = ("exact_sum", "wide_sum")

_ONE_TO_TWO = np.array([0x38, 0x40], np.uint8)  # e4m3 bytes of 1 and 2
_SIGN = np.uint8(8)  # bit of a code
# Ranges of the binary exponents of amaxes: usual ones, and extreme ones, where factors in another order than the
# contract's lose bits to subnormals and even bf16 shows it.
_EXPONENTS = {"a": ((-2, 12), (-126, -123)), "b": ((-2, 12), (60, 76))}


def fields(case: Case, name: str) -> dict[str, np.ndarray]:
    """`data` (lines, K/2), `scale_inv` whole allocation, `amax` float32 of the operand `a` or `b`.

    exact_sum: any codes under scales of 1 and 2, so that no sum of up to 16,384 products rounds
    wide_sum: any codes under any scales but NaN, so that sums round at every step; in even rows of A the second half of
        the blocks cancels the first half, so that only roundings are left
    """
    rng = np.random.default_rng([case.seed, "ab".index(name)])
    lines, blocks = gemm_flags.lines(case, name), case.cols // nvfp4.BLOCK
    codes = rng.integers(0, 16, (lines, blocks, nvfp4.BLOCK), np.uint8)
    if case.input == "exact_sum":
        scale_inv = rng.choice(_ONE_TO_TWO, (lines, blocks))
    else:
        scale_inv = rng.integers(0, nvfp4.E4M3_NAN, (lines, blocks), np.uint8)
        _cancel(name, codes, scale_inv)
    return {
        "data": nvfp4.pack(codes.reshape(lines, case.cols)),
        "scale_inv": layout.arrange(scale_inv, case.flags[f"{name}_scale_layout"]),
        "amax": _amax(case, name, rng),
    }


def _cancel(name: str, codes: np.ndarray, scale_inv: np.ndarray) -> None:
    step = 2 if name == "a" else 1
    half = codes.shape[1] // 2
    codes[::step, half : 2 * half] = codes[::step, :half] ^ (_SIGN if name == "a" else 0)
    scale_inv[::step, half : 2 * half] = scale_inv[::step, :half]


def _amax(case: Case, name: str, rng: np.random.Generator) -> np.ndarray:
    """Amaxes (1,), (lines,) or (lines, K/64), float32 with full mantissas; for windows with exact sums, 1 and 2."""
    lines, granularity = gemm_flags.lines(case, name), gemm_flags.granularity(case, name)
    count = {"tensor": (1,), "row": (lines,), "window": (lines, case.cols // nvfp4.WINDOW)}[granularity]
    if granularity == "window" and case.input == "exact_sum":
        return rng.integers(1, 3, count).astype(np.float32)
    usual, far = (rng.integers(*ends, count) for ends in _EXPONENTS[name])
    exponents = np.where(rng.integers(0, 2, count) == 0, usual, far)
    return np.ldexp(rng.uniform(1, 2, count).astype(np.float32), exponents)
