"""Where a byte lands: directions, padding, and the 128x4 order of scale bytes. No numerics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from harness.case import Case
from harness.errors import ContractError
from harness.oracles.nvfp4 import BLOCK, CODES_PER_BYTE
from harness.tensor import Field, round_up

TILE_ROWS, TILE_COLS = 128, 4  # scale bytes of one GEMM tile
TILE_ROW_GROUP = 32  # rows r, r+32, r+64, r+96 of a tile lie side by side
SLAB_ELEMENTS = 1 << 18  # a slab and its temporaries stay in cache, and 8192x8192 needs no gigabytes


@dataclass(frozen=True)
class Direction:
    """One of the two outputs; `lines` run along its contiguous axis.

    transposed: True if a line is a column of the input
    counter: what the Philox counter calls it
    """

    name: str
    transposed: bool
    counter: int

    def extents(self, rows: int, cols: int) -> tuple[int, int]:
        """(lines, length) of this output for a (rows, cols) input."""
        return (cols, rows) if self.transposed else (rows, cols)

    def slabs(self, x: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """All of `x` in float32, a slab at a time: (which lines, those lines)."""
        for part in slabs(*self.extents(*x.shape)):
            lines = x[:, part].astype(np.float32).T if self.transposed else x[part].astype(np.float32)
            yield part, np.ascontiguousarray(lines)


def slabs(lines: int, length: int) -> Iterator[slice]:
    """Slices that cover all lines, each a multiple of 16 lines, so that no 16x16 tile is cut."""
    step = max(BLOCK, SLAB_ELEMENTS // length // BLOCK * BLOCK)
    for first in range(0, lines, step):
        yield slice(first, min(first + step, lines))


ROWWISE = Direction("rowwise", transposed=False, counter=0)
COLUMNWISE = Direction("columnwise", transposed=True, counter=1)
DIRECTIONS = {d.name: d for d in (ROWWISE, COLUMNWISE)}


def require_whole_blocks(case: Case) -> None:
    """Raise ContractError unless both extents are positive multiples of 16."""
    if case.rows % BLOCK or case.cols % BLOCK or case.rows < 1 or case.cols < 1:
        raise ContractError(
            f"{case.recipe}: rows and cols must be positive multiples of {BLOCK}, not {case.rows}x{case.cols}"
        )


def data_field(rows: int, cols: int, direction: Direction) -> Field:
    """Packed codes of a (rows, cols) input: (lines, length/2) u8."""
    lines, length = direction.extents(rows, cols)
    shape = (lines, length // CODES_PER_BYTE)
    return Field(shape, "uint8", block=(1, CODES_PER_BYTE), transposed=direction.transposed)


def scale_field(rows: int, cols: int, direction: Direction, block: str, swizzled: bool) -> Field:
    """e4m3 scale bytes of a (rows, cols) input: (roundup(lines, 128), roundup(length/16, 4)) u8."""
    lines, length = direction.extents(rows, cols)
    return Field(
        padded_shape(lines, length // BLOCK),
        "uint8",
        valid=(lines, length // BLOCK),
        swizzled=swizzled,
        block=(BLOCK, BLOCK) if block == "block_16x16" else (1, BLOCK),
        transposed=direction.transposed,
    )


def padded_shape(lines: int, blocks: int) -> tuple[int, int]:
    """Shape of the allocation that holds (lines, blocks) scale bytes."""
    return round_up(lines, TILE_ROWS), round_up(blocks, TILE_COLS)


def arrange(scale_inv: np.ndarray, scale_layout: str) -> np.ndarray:
    """(lines, blocks) scale bytes → the whole allocation, padding 0, `compact` or `swizzled`."""
    compact = np.zeros(padded_shape(*scale_inv.shape), np.uint8)
    compact[: scale_inv.shape[0], : scale_inv.shape[1]] = scale_inv
    return swizzle(compact) if scale_layout == "swizzled" else compact


def gather(allocation: np.ndarray, valid: tuple[int, int], scale_layout: str) -> np.ndarray:
    """The inverse of `arrange`: the (lines, blocks) = `valid` corner, in compact order."""
    compact = unswizzle(allocation) if scale_layout == "swizzled" else allocation
    return compact[: valid[0], : valid[1]]


def swizzle(compact: np.ndarray) -> np.ndarray:
    """Padded (R, C) scale bytes into the order of 128x4 tiles, same shape.

    off(r, c) = ((r/128)*T + c/4)*512 + (r%32)*16 + ((r%128)/32)*4 + c%4 with T = C/4.
    """
    rows, cols = compact.shape
    groups = TILE_ROWS // TILE_ROW_GROUP
    tiles = compact.reshape(rows // TILE_ROWS, groups, TILE_ROW_GROUP, cols // TILE_COLS, TILE_COLS)
    return np.ascontiguousarray(tiles.transpose(0, 3, 2, 1, 4)).reshape(rows, cols)


def unswizzle(swizzled: np.ndarray) -> np.ndarray:
    """The inverse of `swizzle`."""
    rows, cols = swizzled.shape
    groups = TILE_ROWS // TILE_ROW_GROUP
    tiles = swizzled.reshape(rows // TILE_ROWS, cols // TILE_COLS, TILE_ROW_GROUP, groups, TILE_COLS)
    return np.ascontiguousarray(tiles.transpose(0, 3, 2, 1, 4)).reshape(rows, cols)
