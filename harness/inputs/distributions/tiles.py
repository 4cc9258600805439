"""Places in a matrix: its 16x16 tiles, whose lines are the blocks of 16 either way, and a few elements of it."""

from __future__ import annotations

import numpy as np

from harness.contract.field import round_up

BLOCK = 16


def tile_grid(rows: int, cols: int) -> tuple[int, int]:
    """Rows and columns of the 16x16 tiles that cover (rows, cols)."""
    return round_up(rows, BLOCK) // BLOCK, round_up(cols, BLOCK) // BLOCK


def joined(tiles: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """(R, C, 16, 16) tiles → (rows, cols)."""
    return tiles.swapaxes(1, 2).reshape(tiles.shape[0] * BLOCK, -1)[:rows, :cols]


def diagonals(shift: np.ndarray) -> np.ndarray:
    """(R, C) → (R, C, 16, 16) bool: a cyclic diagonal per tile, so that every line of it, either way, has one True."""
    lane = np.arange(BLOCK)
    return (lane - lane[:, None]) % BLOCK == shift[..., None, None]


def random_diagonals(rng: np.random.Generator, tile_rows: int, tile_cols: int) -> np.ndarray:
    """Cyclic diagonals with a random shift for each tile."""
    return diagonals(rng.integers(0, BLOCK, (tile_rows, tile_cols)))


def one_in_499(rng: np.random.Generator, rows: int, cols: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of one element in 499 of a matrix, at least one."""
    count = max(1, rows * cols // 499)
    return rng.integers(0, rows, count), rng.integers(0, cols, count)
