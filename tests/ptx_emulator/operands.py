"""Test operands: the edges of every type, and random numbers with a seed from the mnemonic."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from exact_floats import FORMATS, Format

COUNT = 200


def edges(kind: str) -> list[int]:
    """Edge cases of a type."""
    if kind in FORMATS:
        return _float_edges(FORMATS[kind])
    width = int(kind[1:])
    top = 1 << (width - 1)
    near = [0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 255, 256]
    values = [
        *near,
        *(-v for v in near),
        top,
        top - 1,
        top + 1,
        top >> 1,
        0x7FFF,
        0x8000,
        0xFFFF,
        0x5555_5555_5555_5555,
    ]
    return sorted({v & ((1 << width) - 1) for v in values})


def _float_edges(form: Format) -> list[int]:
    one = form.bias << form.mantissa
    smallest = 1 << form.mantissa
    half = 1 << max(form.mantissa - 1, 0)
    values = [0, 1, 2, 3, smallest - 1, smallest, smallest + 1, smallest + half, one, one - 1, one + 1, one + half]
    values += [form.largest, form.largest - 1, one + (5 << form.mantissa) + 1, one - (3 << form.mantissa) + half]
    values += [one + (form.mantissa << form.mantissa), one + ((form.mantissa + 1) << form.mantissa) + 1]
    if form.infinity is not None:
        values += [form.infinity, form.infinity + 1, form.infinity | half]
    return [v & (form.sign_bit - 1) | sign for v in values for sign in (0, form.sign_bit)]


def draw(mnemonic: str, kinds: Sequence[str]) -> list[np.ndarray]:
    """COUNT tuples of operands, edges first, then random: one unsigned array for each operand."""
    rng = np.random.default_rng(zlib.crc32(mnemonic.encode()))
    return [_column(rng, kind) for kind in kinds]


def _column(rng: np.random.Generator, kind: str) -> np.ndarray:
    if kind == "pred":
        return rng.integers(0, 2, COUNT).astype(bool)
    if kind.endswith("x2"):
        low, high = _column(rng, kind[:-2]), _column(rng, kind[:-2])
        width = FORMATS[kind[:-2]].width
        return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(width)
    known = edges(kind)
    width = FORMATS[kind].width if kind in FORMATS else int(kind[1:])
    random = [int(v) & ((1 << width) - 1) for v in rng.integers(0, 1 << 63, COUNT, dtype=np.uint64)]
    if kind in FORMATS:
        # Uniform exponents, but near each other half of the time, so that sums cancel and round.
        form = FORMATS[kind]
        keep = form.sign_bit | (1 << form.mantissa) - 1
        near = (form.bias << form.mantissa) - (1 << form.mantissa + 1)
        random = [v & keep | near + (v >> 7 & 3) * (1 << form.mantissa) if v & 1 else v for v in random]
    chosen = rng.choice(len(known), COUNT)
    pick = rng.random(COUNT) < 0.5
    return np.array([known[c] if p else r for c, p, r in zip(chosen, pick, random, strict=True)], np.uint64)
