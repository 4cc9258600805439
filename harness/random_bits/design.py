"""Tensors whose rounding is known except for chance: blocks have a scale of 1, so their elements are rounded directly.

Each 16x16 tile has 6 on its diagonal, one in each block of either direction. In the first tiles of every row and column
it is 2688 = 6 * 448, which makes the factor of a tensor, a row or a column 1; their blocks are no part of the sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.errors import UsageError
from harness.oracles.nvfp4 import BLOCK

INTERVALS = ((0.0, 0.5), (0.5, 1.0), (1.0, 1.5), (1.5, 2.0), (2.0, 3.0), (3.0, 4.0), (4.0, 6.0))  # ends: codes 0 to 7
FINEST = {"bf16": 64, "fp16": 256, "fp32": 256}  # steps per interval that the type can represent everywhere
PROBES = tuple(range(4, 13))  # for points 2^-k of [0, 0.5], exact in every type, to find how many bits there are
ONE = 0x38  # 1 in e4m3
FEWEST = 4096  # the least number of elements behind the first tiles
PROBED = 8  # a probe gets this many times as many elements as another place, because few of them go up
_LARGEST, _FACTOR = 6.0, 2688.0
_HALF = INTERVALS.index((1.0, 1.5))


@dataclass(frozen=True)
class Cell:
    """Elements at one place: interval, sign, and the fraction of the way up, which is the right P(up)."""

    interval: int
    negative: bool
    fraction: float
    probe: bool = False

    @property
    def value(self) -> float:
        low, high = INTERVALS[self.interval]
        size = low + self.fraction * (high - low)
        return -size if self.negative else size


def cells(dtype: str, bits: int) -> list[Cell]:
    """All places of a design: on a value, a step above it, a quarter, half, three quarters, a step below the next.

    bits: of a random number; a step must be a multiple of its resolution
    """
    step = max(1 / FINEST[dtype], 2.0**-bits)
    fractions = (0.0, step, 0.25, 0.5, 0.75, 1 - step)
    found = [Cell(i, sign, part) for i in range(len(INTERVALS)) for sign in (False, True) for part in fractions]
    return found + [Cell(0, False, 2.0**-bits, True) for bits in PROBES]


def spread(rows: int, cols: int, of: Sequence[Cell]) -> np.ndarray:
    """A cell number for each element, without a pattern, the same in every call."""
    weights = np.array([PROBED if cell.probe else 1 for cell in of])
    return np.random.default_rng(2681).choice(len(of), size=(rows, cols), p=weights / weights.sum())


def tensor(values: np.ndarray) -> np.ndarray:
    """The float32 tensor with tile diagonals set. values: (rows, cols)"""
    x = values.astype(np.float32)
    row, col = np.indices(x.shape)
    diagonal = diagonals(*x.shape)
    x[diagonal] = _LARGEST
    x[diagonal & ((row < BLOCK) | (col < BLOCK))] = _FACTOR
    return x


def diagonals(rows: int, cols: int) -> np.ndarray:
    """Mask of the elements that no test counts."""
    row, col = np.indices((rows, cols))
    return row % BLOCK == col % BLOCK


def require_enough(rows: int, cols: int) -> None:
    """Raise UsageError for a tensor with too few counted elements."""
    if max(0, rows - BLOCK) * max(0, cols - BLOCK) < FEWEST:
        raise UsageError(
            f"a tensor of {rows}x{cols} has too few elements behind its first {BLOCK} rows and columns, which are not "
            f"counted; {FEWEST} are the fewest, as 80x80 has"
        )


def halves(rows: int, cols: int) -> np.ndarray:
    """A tensor with every element halfway between 1 and 1.5, so that each code is one random bit of the kernel."""
    return np.full((rows, cols), Cell(_HALF, False, 0.5).value)


HALF_CODES = (_HALF, _HALF + 1)
