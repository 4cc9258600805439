"""Promises of values on and beside the thresholds of a rounding. Scales are computed here independently."""

from __future__ import annotations

import numpy as np

from harness.inputs.promises.claims import PRECISION, Claims, both_signs, finite, whole_tiles

F32 = np.float32
_E2M1_MIDPOINTS = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5])
# Halfway between e4m3 values: (2i + 1) * 2^-10 of subnormals, (17 + 2i) * 2^e of every binade up to 448.
_E4M3_MIDPOINTS = np.array(
    [(2 * i + 1) * 2.0**-10 for i in range(8)]
    + [(17 + 2 * i) * 2.0**e for e in range(-10, 5) for i in range(8) if (17 + 2 * i) * 2.0**e < 448]
)


def ties(x: np.ndarray, dtype: str) -> Claims:
    amax = np.abs(x).max()
    yield finite(x)
    yield float(amax) * 32 / 7 in (19, 31, 33, 35), "the amax is 7 times 19, 31, 33 or 35, over 32"
    product = _product(x, F32(amax)).reshape(-1)
    if x.size >= 256:
        away = np.abs(product[:, None] / _E2M1_MIDPOINTS - 1).min(axis=1)
        yield bool((away < 2.0**-6).mean() > 0.8), "most products are within 1/64 of a midpoint of e2m1"
    for middle in _E2M1_MIDPOINTS if x.size >= 1 << 14 else ():
        close = product[np.abs(product / middle - 1) < 2.0**-6]
        yield (close == middle).any(), f"some products are {middle:g} exactly"
        yield (
            (close < middle).any() and (close > middle).any(),
            f"some products are just below and just above {middle:g}",
        )
    yield both_signs(x)


def four_over_six_ties(x: np.ndarray, dtype: str) -> Claims:
    amax = float(np.abs(x).max())
    yield finite(x)
    yield amax > 0, "some values are not 0"
    yield any(np.frexp(6 * bound / amax)[0] == 0.5 for bound in (448, 256)), "S_enc is a power of two for 448 or 256"
    yield bool((np.abs(x).max(axis=1) == amax).all()), "every row holds the amax"
    yield not (x[1:] == x[:-1]).all(axis=1).any(), "no row repeats its neighbour"
    blocks = np.abs(whole_tiles(x).astype(np.float64)).reshape(-1, 16)
    largest = blocks.max(axis=1, initial=0)
    blocks, six = blocks[largest > 0, :, None], largest[largest > 0, None, None] / 6
    grid = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    gain = (np.abs(blocks - grid * six).min(axis=2) - np.abs(blocks - grid * (six * 1.5)).min(axis=2)).sum(axis=1)
    yield gain.size < 16 or bool((gain == 0).mean() > 0.25), "many blocks are equally close mapped to 4 and to 6"
    if largest.size >= 1024:
        yield bool((largest == 0).any()), "some blocks are zero"
        yield bool((gain > 0).any() and (gain < 0).any()), "some blocks are closer mapped to 4, and some to 6"
    yield both_signs(x[x != 0])


def four_over_six_far(x: np.ndarray, dtype: str) -> Claims:
    amax = np.abs(x).max()
    near = (2.0**-3, 2.0**8) if dtype == "fp16" else (2.0**-80, 2.0**80)
    yield not near[0] < amax < near[1], f"the amax is below {near[0]:g} or above {near[1]:g}"
    yield from four_over_six_ties(np.ldexp(x.astype(np.float64), -int(np.frexp(amax)[1])), dtype)


def scale_edges(x: np.ndarray, dtype: str) -> Claims:
    amax = F32(np.abs(x).max())
    yield finite(x)
    yield float(amax) / (21 * 128) in (7, 9, 11), "the amax is 21 * 128 times 7, 9 or 11"
    tiles = np.abs(whole_tiles(x))
    # All but the first tile, which holds the amax of the tensor in one place.
    of_columns, of_tiles = tiles.max(axis=2).reshape(-1, 16)[1:], tiles.max(axis=(2, 3)).reshape(-1, 1)[1:]
    yield bool((of_columns == of_tiles).all()), "every column of a tile holds its amax"
    scale = (of_tiles[:, 0] * (F32(2688) / amax * (F32(1) / F32(6)))).astype(np.float64)
    edges = np.concatenate([_E4M3_MIDPOINTS, [2.0**-11, 2.0**-12, 448]])
    off = scale[:, None] / edges - 1
    nearest = np.abs(off).argmin(axis=1)
    off = np.take_along_axis(off, nearest[:, None], axis=1)[:, 0]
    yield (
        bool((np.abs(off) < 3.5 * PRECISION[dtype]).all()),
        "every block scale is on a rounding edge of e4m3 or beside it",
    )
    yield np.unique(nearest).size >= min(scale.size // 3, edges.size), "the block scales are on different edges"
    if scale.size >= 64:
        yield bool((off < 0).any() and (off > 0).any()), "some are below their edge and some above"
    yield both_signs(x[x != 0])


def power_edges(x: np.ndarray, dtype: str) -> Claims:
    yield finite(x)
    yield both_signs(x)
    rows, cols = (extent // 32 for extent in x.shape)
    tiles = np.abs(x[: rows * 32, : cols * 32].astype(np.float64)).reshape(rows, 32, cols, 32)
    amaxes = np.concatenate([tiles.max(axis=axis).reshape(-1) for axis in (1, 3)]) if rows and cols else np.empty(0)
    yield bool((amaxes > 0).all()), "no block is zero"
    sixteenths = np.frexp(amaxes)[0] * 32
    off = sixteenths / np.rint(sixteenths) - 1
    yield (
        bool((np.abs(off) < 2.5 * PRECISION[dtype]).all()),
        "every amax is a multiple of 1/16 of its binade or beside it",
    )
    if amaxes.size >= 256:
        yield bool((off < 0).any() and (off == 0).any() and (off > 0).any()), "some are below it, some it, some above"
        yield np.unique(np.rint(sixteenths) % 16).size == 16, "each of sixteen occurs"
        yield np.unique(np.frexp(amaxes)[1]).size > 16, "they are in many binades"


def sr_edges(x: np.ndarray, dtype: str) -> Claims:
    size = np.abs(x.astype(np.float64))
    low = size[size < 6]
    k = np.ceil(low * 512)
    gap = k / 512 - low
    yield size.max() == 2688, "the amax is 2688"
    yield bool((size.max(axis=1) >= 6).all()), "nearly every block's amax is 6"
    yield bool(((k >= 1) & (k <= 127)).all()), "the others are between 1/512 and 127/512"
    yield (
        bool((gap <= (2.0**-25 if dtype == "fp32" else low * 2 * PRECISION[dtype])).all()),
        "they are k/512 or just below",
    )
    if low.size >= 2048:
        yield np.unique(k).size == 127, "every k occurs"
        yield bool((gap > 0).mean() > 0.3), "many are below k/512"
        yield dtype == "fp32" or bool((gap == 0).mean() > 0.3), "many are k/512"
    yield both_signs(x)


def midpoints(x: np.ndarray, dtype: str) -> Claims:
    edges = np.concatenate([_E2M1_MIDPOINTS, _E4M3_MIDPOINTS, [448]])
    size = np.abs(x.astype(np.float64)).reshape(-1, 1)
    off = size / edges - 1
    yield bool((np.abs(off).min(axis=1) <= 2 * PRECISION[dtype]).all()), "every value is a midpoint or beside one"
    if x.size >= 1024:
        for sign in (-1, 1):
            of_sign = off[np.signbit(x.reshape(-1)) == (sign < 0)]
            close = np.where(np.abs(of_sign) <= 2 * PRECISION[dtype], of_sign, np.nan)
            met = (close == 0).any(axis=0) & (close < 0).any(axis=0) & (close > 0).any(axis=0)
            yield bool(met.all()), f"every midpoint and its neighbours occur with the sign {sign:+d}"


def _product(x: np.ndarray, amax: np.float32) -> np.ndarray:
    """The magnitude that rounds to a code: each 1x16 block times its multiplier 1 / (scale * 1 / S_enc)."""
    blocks = np.abs(x[:, : x.shape[1] // 16 * 16]).reshape(-1, 16)
    s_enc = F32(2688) / amax
    scale = _e4m3(blocks.max(axis=1) * (s_enc * (F32(1) / F32(6))))
    with np.errstate(divide="ignore"):
        return blocks * (F32(1) / (scale * (F32(1) / s_enc)))[:, None]


def _e4m3(values: np.ndarray) -> np.ndarray:
    """The nearest e4m3 value; `rint` goes to the even one."""
    exponent = np.maximum(np.frexp(values)[1] - 1, -6)
    step = np.ldexp(F32(1), exponent - 3)
    return np.minimum(np.rint(values / step) * step, F32(448))
