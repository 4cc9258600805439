"""Promises of special inputs: zeros, subnormal numbers, infinities and NaNs; places, sums, and ends of the range."""

from __future__ import annotations

import numpy as np

from harness.inputs.promises.claims import (
    LARGEST,
    SMALLEST_NORMAL,
    Claims,
    both_signs,
    different_lines,
    finite,
    near,
    standard_normal,
    uniform,
    varied,
    whole_tiles,
)

_MANTISSA = {"bf16": 7, "fp16": 10, "fp32": 23}
_SIGN_MASKS = (0xD7E8, 0xACE1)


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
        yield from _any_nan(x[nan])
    yield from standard_normal(x[~nan])


def nan_lines(x: np.ndarray, dtype: str) -> Claims:
    nan = np.isnan(x)
    rows, cols = nan.all(axis=1), nan.all(axis=0)
    for lines, name in ((rows, "row"), (cols, "column")):
        yield np.count_nonzero(lines) == max(lines.size // 64, lines.size > 1), f"one {name} in 64 is NaN, one at least"
    yield not nan[~rows][:, ~cols].any(), "no other value is"
    yield from _any_nan(x[nan])
    yield from standard_normal(x[~nan])


def all_nan(x: np.ndarray, dtype: str) -> Claims:
    yield bool(np.isnan(x).all()), "every value is NaN"
    yield different_lines(x.view(np.uint32))
    yield from _any_nan(x.reshape(-1))


def _any_nan(values: np.ndarray) -> Claims:
    bits = values.view(np.uint32)
    if bits.size > 16:
        yield np.unique(bits & 0x7FFFFF).size > 8, "NaNs have different payloads"
    yield near((bits >> 31).mean(), 0.5, 0.5, bits.size), "half of the NaNs have the sign bit"


def one_hot_block(x: np.ndarray, dtype: str) -> Claims:
    tiles = whole_tiles(x) != 0
    yield finite(x)
    yield bool((tiles.sum(axis=2) == 1).all() and (tiles.sum(axis=3) == 1).all()), "every block has one value"
    if tiles.shape[0] * tiles.shape[1] >= 256:
        yield bool(tiles[:, :, 0].any(axis=(0, 1)).all()), "it stands in every position"
    yield both_signs(x[x != 0])
    yield varied(x[x != 0])


def rht_adversarial(x: np.ndarray, dtype: str) -> Claims:
    yield finite(x)
    yield np.unique(np.abs(x)).size >= min(x.size, 512) // 128, "the values differ from each other"
    columns = x[: len(x) // 16 * 16].reshape(-1, 16, x.shape[1]).transpose(0, 2, 1).reshape(-1, 16).astype(np.float64)
    if len(columns) < 64:
        return
    one = (columns != 0).sum(axis=1) == 1
    yield near(one.mean(), 0.2, 0.4, one.size), "a fifth of the columns of 16 have one value"
    hadamard = np.ones((1, 1))
    for _ in range(4):
        hadamard = np.kron([[1, 1], [1, -1]], hadamard)
    for mask in _SIGN_MASKS:
        signs = np.array([-1 if mask >> lane & 1 else 1 for lane in range(16)])
        turned = np.abs((columns * signs) @ hadamard)
        single = (turned > turned.max(axis=1, keepdims=True) * 2.0**-20).sum(axis=1) == 1
        yield near(single.mean(), 0.2, 0.4, one.size), f"the signs {mask:#x} rotate a fifth of the columns to one value"


def exhaustive(x: np.ndarray, dtype: str) -> Claims:
    """Claims that all 16-bit patterns come in order, but a block takes one from each sixteenth of four binades."""
    shift, binades = (0, 1 << 12) if dtype == "fp16" else (16, 1 << 9)
    place = np.arange(min(x.size, 1 << 16))
    within = place % binades
    pattern = place - within + within % 16 * (binades // 16) + within // 16
    flat = x.reshape(-1)[: place.size]
    if dtype == "fp16":
        right = pattern.astype(np.uint16).view(np.float16).astype(np.float32)
        same = (flat == right) | (np.isnan(flat) & np.isnan(right))
        yield bool(same.all() and (np.signbit(flat) == np.signbit(right)).all()), "every fp16 value is in its place"
    else:
        yield bool((flat.view(np.uint32) == pattern << shift).all()), "every bf16 value is in its place"


def exact_sum(x: np.ndarray, dtype: str) -> Claims:
    yield from _codes(x)
    yield bool((np.abs(x) <= 12).all() and (x * 2 % 1 == 0).all()), "the scales are 1 and 2"
    if x.size >= 1024:
        yield np.unique(np.abs(x)).size == 10, "every magnitude times 1 and 2 occurs"


def wide_sum(x: np.ndarray, dtype: str) -> Claims:
    yield from _codes(x)
    blocks = np.abs(x[:, : x.shape[1] // 16 * 16]).reshape(-1, 16).max(axis=1)
    if blocks.size >= 64:
        powers = np.frexp(blocks[blocks > 0])[1]
        yield int(powers.max() - powers.min()) >= 8, "the scales span many binades"


def _codes(x: np.ndarray) -> Claims:
    yield finite(x)
    yield (
        bool((np.frexp(x.astype(np.float64))[0] * 64 % 1 == 0).all()),
        "every value is an e2m1 value times an e4m3 value",
    )
    yield both_signs(x)
    if x.size >= 256:
        yield near((x == 0).mean(), 0.125, 0.7, x.size), "an eighth of the codes is zero"
        yield np.unique(x).size >= 8, "the values differ from each other"


def tiny_amax(x: np.ndarray, dtype: str) -> Claims:
    yield from uniform(x, 2.0**-14 if dtype == "fp16" else 2.0**-119)


def large_amax(x: np.ndarray, dtype: str) -> Claims:
    yield from uniform(x, 2.0**14 if dtype == "fp16" else 2.0**118)


def near_floor(x: np.ndarray, dtype: str) -> Claims:
    if dtype == "fp16":
        yield not x.any(), "fp16 rounds such values to zero"
        return
    yield both_signs(x)
    yield varied(x)
    for lines in (x, x.T):
        amax = np.abs(lines).max(axis=1)
        yield bool((amax < 17e-12).all()), "no magnitude is above 16e-12"
        if lines.shape[1] >= 64:
            yield bool((amax > 1e-14).all()), "every line has a magnitude near 1e-12"
        if min(lines.shape) >= 64:
            yield bool((amax < 1e-12).any() and (amax > 1e-12).any()), "some amaxes are below 1e-12 and some above"


def huge(x: np.ndarray, dtype: str) -> Claims:
    yield bool(np.abs(x).max() == LARGEST[dtype]), "the largest value of the dtype occurs"
    yield from uniform(x, LARGEST[dtype])
