"""Values on and beside the thresholds of a rounding: of a code, of a scale, or of the choice between two scales.

Where an input must know a scale, it works it out for itself.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from harness.contract.dtypes import moved, rounded
from harness.inputs.distributions.tiles import BLOCK, diagonals, joined, random_diagonals, tile_grid

F32 = np.float32
E4M3 = np.arange(0x7F, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(F32)

_E4M3_NORMALS = E4M3[8:]
_E4M3_MIDPOINTS = (E4M3[:-1] + E4M3[1:]) / 2


def ties(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Every e2m1 midpoint, exact or as near as the dtype gets, and its 1-ulp neighbours, under a full-mantissa amax.

    2688 = 7 * 384, so under an amax that is an odd multiple of 7, midpoint/m = midpoint * scale_inv * amax / 2688 is
    sometimes a bf16 value. The four amaxes were found by search: in some blocks the product is the midpoint itself, for
    each of the seven, and the tie rule shows; in others the roundings inside m push it one ulp to a side, and a direct
    multiplier shows.
    """
    amax = F32(7 * rng.choice([19, 31, 33, 35]) / 32)
    target = F32(rng.choice(_E4M3_NORMALS[_E4M3_NORMALS >= 7], tile_grid(rows, cols)))
    wobble = rng.uniform(0.97, 1.03, target.shape).astype(F32)
    block_amax = np.minimum(rounded(target * amax / F32(448) * wobble, dtype).astype(F32), amax)
    s_enc = F32(2688) / amax
    scale_inv = (block_amax * (s_enc * (F32(1) / F32(6)))).astype(ml_dtypes.float8_e4m3fn).astype(F32)
    multiplier = F32(1) / (scale_inv * (F32(1) / s_enc))

    midpoints = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5], F32)
    tiles = midpoints[rng.integers(0, 7, (*target.shape, BLOCK, BLOCK), np.uint8)]
    tiles /= multiplier[..., None, None]
    ulps = np.array([-1, 0, 0, 1], np.int8)[rng.integers(0, 4, tiles.shape, np.uint8)]
    tiles = moved(rounded(tiles, dtype), ulps).astype(F32)
    return _with_block_amax(rng, tiles, block_amax, amax, rows, cols)


def four_over_six_ties(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Blocks that come back equally close mapped to 4 and to 6, one ulp beside that, or equal but for roundings.

    The amax makes S_enc a power of two, under an e4m3 bound of 448 or 256 by the seed, so nothing rounds. In units of
    the map-to-6 scale, that map has 0, .5, 1, 1.5, 2, 3, 4, 6 and the other 0, .75, 1.5, 2.25, 3, 4.5, 6: each value is
    equally far from both, or is a .5, 2 or 4 in a block that also has a .75, 2.25 or 4.5. Zero tiles are ties as well.
    In some tiles values move by an ulp; in others some are so small that the order of a float32 sum decides which of
    them are lost. Every row holds the amax, so that an amax per row changes nothing.
    """
    grid = tile_grid(rows, cols)
    bound = int(rng.choice([448, 256]))
    exponent = int(rng.integers(-9, -5))
    unit = np.exp2(rng.integers(-3, 8, grid, endpoint=True)).astype(F32)
    unit[rng.random(grid) < 0.15] = 0
    unit[:, 0] = bound
    unit *= F32(2.0**exponent)

    equal = np.array([0, 0.25, 0.625, 0.875, 1.25, 1.5, 2.125, 3, 3.25, 3.5, 4.25, 5.25, 5.5, 6], F32)
    tiles = equal[rng.integers(0, len(equal), (*grid, BLOCK, BLOCK), np.uint8)]
    kind = rng.random(grid)[..., None, None]
    small = (kind > 0.7) & (rng.random(tiles.shape) < 0.3)
    count = np.count_nonzero(small)
    tiles[small] = np.ldexp(rng.integers(64, 128, count).astype(F32), rng.integers(-30, -14, count))
    shifts = rng.permuted(np.broadcast_to(np.arange(BLOCK), (*grid, BLOCK)), axis=-1)
    for shift, value in zip(np.moveaxis(shifts, -1, 0), (6, 0.5, 0.75, 2, 2.25, 4, 4.5), strict=False):
        tiles[diagonals(shift)] = value
    beside = (kind < 0.3) & (rng.random(tiles.shape) < 0.1) & (tiles > 0) & (tiles < 6) & (unit > 0)[..., None, None]
    ulps = np.where(beside, np.array([-1, 1], np.int8)[rng.integers(0, 2, tiles.shape, np.uint8)], np.int8(0))
    tiles *= unit[..., None, None]
    tiles = moved(rounded(tiles, dtype), ulps).astype(F32)
    tiles *= np.array([1, -1], F32)[rng.integers(0, 2, tiles.shape, np.uint8)]
    return joined(tiles, rows, cols)


def four_over_six_far(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Values of `four_over_six_ties` times a power of two: amaxes of 2^-118 to 2^-80, or of 2^80 to 2^119.

    There a square is 0 or infinite in float32, and so may be a factor between an amax and a scale. fp16 has no such
    values; its amaxes are those of its own range's ends.
    """
    ends = ((-10, -7), (7, 10)) if dtype == "fp16" else ((-120, -86), (78, 114))
    low, high = ends[rng.integers(2)]
    shift = rng.integers(low, high)
    return np.ldexp(four_over_six_ties(rng, rows, cols, dtype), shift)


def scale_edges(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Block amaxes on every e4m3 rounding edge and its 1-ulp neighbours: subnormal, underflow and saturation too.

    One for each 16x16 tile, so 320x320 elements hold them all.
    """
    amax = F32(21 * rng.choice([7, 9, 11]) * 128)
    edges = np.concatenate([_E4M3_MIDPOINTS, F32([2.0**-11, 2.0**-12, 448])])
    edges = rounded(edges / (F32(2688) / amax * (F32(1) / F32(6))), dtype)
    near = np.concatenate([moved(edges, np.full(edges.shape, ulps)) for ulps in (-1, 0, 1)]).astype(F32)
    block_amax = np.minimum(np.resize(rng.permutation(near), tile_grid(rows, cols)), amax)
    tiles = rng.uniform(-1, 1, (*block_amax.shape, BLOCK, BLOCK)).astype(F32) * block_amax[..., None, None]
    return _with_block_amax(rng, tiles, block_amax, amax, rows, cols)


def power_edges(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Amaxes of 1 + k/16 times any power of two and their 1-ulp neighbours: where a scale rounds to a power of two.

    Among them are the powers themselves and 6, 9, 448 and 672 times one, for blocks of up to 32 elements, each with an
    amax of its own. The others are below the amaxes of their row and column.
    """
    shape = (-(-rows // 32), -(-cols // 32), 32)
    least, most = (-14, 15) if dtype == "fp16" else (-126, 127)
    significand = (16 + rng.integers(0, 16, shape)) / 16
    amax = rounded(np.ldexp(significand, rng.integers(least, most, shape)).astype(F32), dtype)
    amax = moved(amax, rng.integers(-1, 2, shape)).astype(F32)
    shift = rng.integers(0, 32, shape[:2])
    lane = np.arange(32)
    column_of = (lane + shift[..., None]) % 32  # of each row's amax
    of_column = np.take_along_axis(amax, (lane - shift[..., None]) % 32, axis=2)
    tiles = np.minimum(amax[..., :, None], of_column[..., None, :]) * rng.uniform(-1, 1, (*shape, 32)).astype(F32)
    sign = np.array([1, -1], F32)[rng.integers(0, 2, shape)]
    np.put_along_axis(tiles, column_of[..., None], (amax * sign)[..., None], axis=3)
    return tiles.swapaxes(1, 2).reshape(shape[0] * 32, -1)[:rows, :cols]


def sr_edges(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Values at or just below k/512, k from 1 to 127: 256 - k is the least random byte that may take them to 1/2.

    The multiplier is 1: the amax is 2688, and nearly every block's is 6. fp32 values lie 2^-27 or 2^-26 below, which
    rounding the sum to float32 makes up for, or 2^-25, which it does not; a 16-bit dtype has k/512 or the value before.
    """
    k = rng.integers(1, 128, (*tile_grid(rows, cols), BLOCK, BLOCK))
    if dtype == "fp32":
        tiles = (k / 512 - np.exp2(rng.integers(-27, -24, k.shape))).astype(F32)
    else:
        tiles = moved(rounded(k / 512, dtype), -rng.integers(0, 2, k.shape)).astype(F32)
    return _with_block_amax(rng, tiles, np.full(k.shape[:2], 6, F32), F32(2688), rows, cols)


def midpoints(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Every midpoint of e2m1 and e4m3 and its 1-ulp neighbours, of both signs, for casts without a scale.

    They repeat over the tensor; 1,024 elements hold them all.
    """
    edges = np.concatenate([F32([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5]), _E4M3_MIDPOINTS, F32([448])])
    near = np.concatenate([moved(rounded(edges, dtype), np.full(edges.shape, ulps)) for ulps in (-1, 0, 1)])
    return np.resize(np.concatenate([near, -near]), (rows, cols))


def _with_block_amax(
    rng: np.random.Generator, tiles: np.ndarray, block_amax: np.ndarray, amax: np.float32, rows: int, cols: int
) -> np.ndarray:
    """Give tiles random signs, `block_amax` once in every row and column, and `amax` once, so that every m is known.

    One diagonal per tile serves rowwise blocks, columnwise blocks and 16x16 tiles.
    """
    hot = random_diagonals(rng, *block_amax.shape)
    tiles = np.where(hot, block_amax[..., None, None], tiles)
    tiles[0, 0, 0, 0] = amax
    tiles *= np.array([1, -1], F32)[rng.integers(0, 2, tiles.shape, np.uint8)]
    return joined(tiles, rows, cols)
