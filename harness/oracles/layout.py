"""Shapes and places of bytes: directions, padding, and the 128x4 order of scale bytes. No numerics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field, round_up
from harness.errors import ContractError
from harness.oracles.nvfp4 import BLOCK, CODES_PER_BYTE, WINDOW

TILE_ROWS, TILE_COLS = 128, 4  # rows and columns of scale bytes in one GEMM tile
TILE_ROW_GROUP = 32  # rows r, r+32, r+64, r+96 of a tile lie side by side
SLAB_ELEMENTS = 1 << 18  # a slab and its temporaries stay in cache, and 8192x8192 needs no gigabytes


@dataclass(frozen=True)
class Direction:
    """One of the two outputs; its lines run along the contiguous axis.

    transposed: True if a line is a column of the input
    counter: its number in the Philox counter
    """

    name: str
    transposed: bool
    counter: int

    def extents(self, rows: int, cols: int) -> tuple[int, int]:
        """(lines, length) of this output for a (rows, cols) input."""
        return (cols, rows) if self.transposed else (rows, cols)

    def slabs(self, x: np.ndarray) -> Iterator[Slab]:
        """Cut `x` into slabs of this output's lines."""
        for part in slabs(*self.extents(*x.shape)):
            v = x[:, part].astype(np.float32).T if self.transposed else x[part].astype(np.float32)
            yield Slab(self, part, np.ascontiguousarray(v))


class Slab(NamedTuple):
    """Consecutive lines of one output and their values, (lines, length) float32."""

    direction: Direction
    lines: slice
    v: np.ndarray


def slabs(lines: int, length: int) -> Iterator[slice]:
    """Slices that cover all lines, each a multiple of 16 lines so that no 16x16 tile is cut; none without elements.

    At least two, where there are lines enough, so that small cases show what becomes of a cut.
    """
    if not length:
        return
    elements = min(SLAB_ELEMENTS, lines * length // 2)
    step = max(BLOCK, elements // length // BLOCK * BLOCK)
    for first in range(0, lines, step):
        yield slice(first, min(first + step, lines))


ROWWISE = Direction("rowwise", transposed=False, counter=0)
COLUMNWISE = Direction("columnwise", transposed=True, counter=1)
DIRECTIONS = {d.name: d for d in (ROWWISE, COLUMNWISE)}


def require_whole_blocks(case: Case, block: int = BLOCK, no_rows: bool = False) -> None:
    """Raise ContractError unless both extents are positive multiples of `block`. no_rows: whether 0 rows are right"""
    if case.rows % block or case.cols % block or case.rows < (not no_rows) or case.cols < 1:
        raise ContractError(
            f"{case.recipe}: rows and cols must be positive multiples of {block}, not {case.rows}x{case.cols}"
            f"{'; rows may be 0' if no_rows else ''}"
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


def amax_field(rows: int, cols: int, direction: Direction, granularity: str) -> Field:
    """Raw amaxes of a (rows, cols) input, float32: (1,), (lines,) or (lines, length/64) by granularity."""
    lines, length = direction.extents(rows, cols)
    shape, granule = {
        "tensor": ((1,), (lines, length)),
        "row": ((lines,), (1, length)),
        "window": ((lines, length // WINDOW), (1, WINDOW)),
    }[granularity]
    return Field(shape, "float32", block=granule, transposed=direction.transposed)


def require_amax(case: Case, name: str, amax: Any, direction: Direction, granularity: str) -> None:
    """Raise ContractError unless an amax, of either library, has one entry per granule, none of them impossible.

    No amax is reinterpreted.
    """
    expected = amax_field(case.rows, case.cols, direction, granularity).shape
    if tuple(amax.shape) != expected:
        raise ContractError(
            f"{case.recipe}: {name} must have the shape {expected}, one amax per {granularity}, not {tuple(amax.shape)}"
        )
    require_magnitudes(case, name, amax)


def require_magnitudes(case: Case, name: str, amax: Any) -> None:
    """2.2  Raise ContractError for an amax that is negative or NaN; infinity is one that a tensor can have."""
    wrong = ~(amax >= 0)
    if wrong.any():
        raise ContractError(
            f"{case.recipe}: {name} has {float(amax[wrong][0]):g}; an amax is the largest of magnitudes, so none is "
            "negative or NaN"
        )


def amax_of_blocks(amax: np.ndarray, lines: slice, granularity: str) -> np.ndarray:
    """The amax that governs each 16-block of some lines, broadcastable to (lines, length/16)."""
    if granularity == "tensor":
        return amax
    return amax[lines, None] if granularity == "row" else np.repeat(amax[lines], WINDOW // BLOCK, axis=1)


def padded_shape(lines: int, blocks: int) -> tuple[int, int]:
    """Shape of the allocation that holds (lines, blocks) scale bytes."""
    return round_up(lines, TILE_ROWS), round_up(blocks, TILE_COLS)


def arrange(scale_inv: np.ndarray, scale_layout: str) -> np.ndarray:
    """(lines, blocks) scale bytes → the padded allocation, `compact` or `swizzled`; padding is 0."""
    compact = np.zeros(padded_shape(*scale_inv.shape), np.uint8)
    compact[: scale_inv.shape[0], : scale_inv.shape[1]] = scale_inv
    return swizzle(compact) if scale_layout == "swizzled" else compact


def gather(allocation: np.ndarray, valid: tuple[int, int], scale_layout: str) -> np.ndarray:
    """Invert `arrange`: the corner of `valid` = (lines, blocks) scale bytes, in compact order."""
    compact = unswizzle(allocation) if scale_layout == "swizzled" else allocation
    return compact[: valid[0], : valid[1]]


def swizzle(compact: np.ndarray) -> np.ndarray:
    """1.7  Padded (R, C) scale bytes into the order of 128x4 tiles, same shape.

    off(r, c) = ((r/128)*(C/4) + c/4)*512 + (r%32)*16 + ((r%128)/32)*4 + c%4
    """
    rows, cols = compact.shape
    groups = TILE_ROWS // TILE_ROW_GROUP
    tiles = compact.reshape(rows // TILE_ROWS, groups, TILE_ROW_GROUP, cols // TILE_COLS, TILE_COLS)
    return np.ascontiguousarray(tiles.transpose(0, 3, 2, 1, 4)).reshape(rows, cols)


def unswizzle(swizzled: np.ndarray) -> np.ndarray:
    rows, cols = swizzled.shape
    groups = TILE_ROWS // TILE_ROW_GROUP
    tiles = swizzled.reshape(rows // TILE_ROWS, cols // TILE_COLS, TILE_ROW_GROUP, groups, TILE_COLS)
    return np.ascontiguousarray(tiles.transpose(0, 3, 2, 1, 4)).reshape(rows, cols)
