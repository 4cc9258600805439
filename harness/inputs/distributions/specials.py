"""Zeros, subnormal numbers, infinities and NaNs."""

from __future__ import annotations

import numpy as np

from harness.inputs.distributions.ordinary import normal
from harness.inputs.distributions.tiles import BLOCK, joined, one_in_499, tile_grid
from harness.inputs.dtypes import DTYPES, MANTISSA_BITS, rounded, unsigned

F32 = np.float32


def zeros(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """All +0: amax 0, S_enc 1, scale bytes 0."""
    return np.zeros((rows, cols), F32)


def zero_rows(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Normal with half of the rows zero."""
    x = normal(rng, rows, cols, dtype)
    x[rng.permutation(rows)[: (rows + 1) // 2]] = 0
    return x


def zero_blocks(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Normal with a quarter each of the 1x16 blocks, the 16x1 blocks and the 16x16 tiles zero."""
    tiles = rng.standard_normal((*tile_grid(rows, cols), BLOCK, BLOCK), F32)
    tiles[rng.random(tiles.shape[:3]) < 0.25] = 0
    tiles.swapaxes(2, 3)[rng.random(tiles.shape[:3]) < 0.25] = 0
    tiles[rng.random(tiles.shape[:2]) < 0.25] = 0
    return joined(tiles, rows, cols)


def signed_zero(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Zeros of both signs and values that round to them, some in blocks with nothing else: code 0x8 beside 0x0."""
    tiles = rng.standard_normal((*tile_grid(rows, cols), BLOCK, BLOCK), F32)
    kind = rng.random(tiles.shape)
    tiles[kind < 0.3] *= F32(2.0**-10)
    tiles[kind > 0.6] *= F32(0)
    tiles[rng.random(tiles.shape[:3]) < 0.25] *= F32(0)
    return joined(tiles, rows, cols)


def subnormal(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Subnormals of the dtype, of every length: flushing any of them to zero shows."""
    bits = rng.integers(0, 1 << MANTISSA_BITS[dtype], (rows, cols), np.uint32)
    bits >>= rng.integers(0, MANTISSA_BITS[dtype], (rows, cols), np.uint32)
    sign = rng.integers(0, 2, (rows, cols), np.uint32) << (8 * DTYPES[dtype].itemsize - 1)
    return (bits | sign).astype(unsigned(dtype)).view(DTYPES[dtype])


def specials_inf(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Normal with a few infinities of both signs: S_enc 1, scale byte 448, the others x/448."""
    x = normal(rng, rows, cols, dtype)
    x[one_in_499(rng, rows, cols)] *= F32(np.inf)
    return x


def specials_nan(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Normal with NaNs of both signs and any payload, quiet and signalling: code 7, neighbours as if absent.

    From two tiles on, one whole 16x16 tile is NaN: its amax is 0, not NaN.
    """
    where = np.zeros((*tile_grid(rows, cols), BLOCK, BLOCK), bool)
    if where[:, :, 0, 0].size > 1:
        where[rng.integers(where.shape[0]), rng.integers(where.shape[1])] = True
    where = joined(where, rows, cols)
    where[one_in_499(rng, rows, cols)] = True
    bits = rng.integers(1, 1 << MANTISSA_BITS[dtype], (rows, cols), np.uint32)
    infinity = np.array(np.inf, DTYPES[dtype]).view(unsigned(dtype)).astype(np.uint32)
    sign = rng.integers(0, 2, (rows, cols), np.uint32) << (8 * DTYPES[dtype].itemsize - 1)
    nan = (bits | infinity | sign).astype(unsigned(dtype)).view(DTYPES[dtype])
    return np.where(where, nan, rounded(normal(rng, rows, cols, dtype), dtype))
