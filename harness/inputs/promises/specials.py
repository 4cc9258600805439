"""Promises of zeros, subnormal numbers, infinities and NaNs."""

from __future__ import annotations

import numpy as np

from harness.inputs.promises.claims import (
    SMALLEST_NORMAL,
    Claims,
    both_signs,
    different_lines,
    finite,
    near,
    standard_normal,
    whole_tiles,
)

_MANTISSA = {"bf16": 7, "fp16": 10, "fp32": 23}


def zeros(x: np.ndarray, dtype: str) -> Claims:
    yield not x.view(np.uint32).any(), "every value is +0"


def zero_rows(x: np.ndarray, dtype: str) -> Claims:
    zero = ~x.any(axis=1)
    yield finite(x)
    yield np.count_nonzero(zero) == (len(x) + 1) // 2, "half of the rows are zero"
    yield from standard_normal(x[~zero])


def zero_blocks(x: np.ndarray, dtype: str) -> Claims:
    yield finite(x)
    tiles = whole_tiles(x) != 0
    rows, cols, whole = tiles.any(axis=3), tiles.any(axis=2), tiles.any(axis=(2, 3))
    if whole.size >= 4:
        yield not (rows.all() or cols.all()), "some 1x16 and some 16x1 blocks are zero"
        yield bool(rows.any()), "some blocks are not zero"
        if whole.size >= 32:
            yield not whole.all(), "some 16x16 tiles are zero"
            # A quarter of all tiles, and a quarter of all blocks in the other tiles.
            yield near(rows.mean(), 0.5625, 2, rows.size), "a quarter of the blocks of other tiles are zero"
    yield from standard_normal(x[x != 0])


def signed_zero(x: np.ndarray, dtype: str) -> Claims:
    zero = x == 0
    yield finite(x)
    yield both_signs(x)
    yield both_signs(x[zero])
    if x.size >= 256:
        blocks = zero[:, : x.shape[1] // 16 * 16].reshape(len(x), -1, 16)
        yield 0.3 < zero.mean() < 0.8, "about half of the values are zeros"
        yield bool((np.abs(x[~zero]) < 2.0**-8).mean() > 0.2), "some values are so small that they round to zero"
        yield blocks[..., 0].size < 64 or bool(blocks.all(axis=2).any()), "some blocks hold nothing but zeros"
    yield from standard_normal(x[~zero & (np.abs(x) > 2.0**-7)] * np.float32(1))


def subnormal(x: np.ndarray, dtype: str) -> Claims:
    unit = SMALLEST_NORMAL[dtype] / 2 ** _MANTISSA[dtype]
    count = np.abs(x.astype(np.float64)) / unit
    yield bool((count < 2 ** _MANTISSA[dtype]).all()), "every value is a subnormal of its dtype, or zero"
    yield both_signs(x)
    if x.size >= 1024:
        lengths = np.unique(np.frexp(count[count > 0])[1])
        yield lengths.size == _MANTISSA[dtype], "subnormals of every length occur"


def specials_inf(x: np.ndarray, dtype: str) -> Claims:
    infinite, most = np.isinf(x), max(1, x.size // 499)
    yield most / 2 <= np.count_nonzero(infinite) <= most, "one value in 499, at least one, is infinite"
    yield both_signs(x[infinite])
    yield from standard_normal(x[~infinite])
    yield different_lines(x)


def specials_nan(x: np.ndarray, dtype: str) -> Claims:
    nan, tiles = np.isnan(x), whole_tiles(x)
    most = max(1, x.size // 499) + 256
    yield 1 <= np.count_nonzero(nan) <= most, "one value in 499, at least one, and a tile are NaN"
    if tiles.size == x.size > 256:
        yield bool(np.isnan(tiles).all(axis=(2, 3)).any()), "a whole tile is NaN"
        bits = x[nan].view(np.uint32)
        yield np.unique(bits & 0x7FFFFF).size > 8, "NaNs have different payloads"
        yield near((bits >> 31).mean(), 0.5, 0.5, bits.size), "half of the NaNs have the sign bit"
    yield from standard_normal(x[~nan])
