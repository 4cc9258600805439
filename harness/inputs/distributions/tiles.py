"""Places in a matrix: its 16x16 tiles, whose rows and columns are the 1x16 blocks, and a few single elements."""

from __future__ import annotations

import numpy as np

from harness.contract.field import round_up

BLOCK = 16


def tile_grid(rows: int, cols: int) -> tuple[int, int]:
    """How many 16x16 tiles cover (rows, cols), down and across."""
    return round_up(rows, BLOCK) // BLOCK, round_up(cols, BLOCK) // BLOCK


def joined(tiles: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """(R, C, 16, 16) tiles → (rows, cols)."""
    return tiles.swapaxes(1, 2).reshape(tiles.shape[0] * BLOCK, -1)[:rows, :cols]


def diagonals(shift: np.ndarray) -> np.ndarray:
    """(R, C) → (R, C, 16, 16) bool: a cyclic diagonal per tile, one True in each of its rows and columns."""
    lane = np.arange(BLOCK)
    return (lane - lane[:, None]) % BLOCK == shift[..., None, None]


def random_diagonals(rng: np.random.Generator, tile_rows: int, tile_cols: int) -> np.ndarray:
    return diagonals(rng.integers(0, BLOCK, (tile_rows, tile_cols)))


def one_in_499(rng: np.random.Generator, rows: int, cols: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of one element in 499 of a matrix, at least one."""
    count = max(1, rows * cols // 499)
    return rng.integers(0, rows, count), rng.integers(0, cols, count)
