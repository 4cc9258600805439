"""The blocks of an output in which two implementations differ, as arrays of what they were made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.oracles import layout, nvfp4

Arrays = Mapping[str, np.ndarray]

LARGEST_E2M1 = 6.0
MOST_BLOCKS = 1 << 17  # at most this many differing blocks of an output are compared, in tiles spread evenly over it


@dataclass(frozen=True)
class Differing:
    """n blocks of one output, at least one byte of each being different.

    x: (n, 16) float64, the quantized values, rotated if the case rotates them
    amax, block_amax: (n,) float64, of the granule and of the block or tile
    scale: (n,) uint8 and codes: (n, 16) uint8 as expected; their_scale, their_codes: as written
    group: (n,) int64, the same number for blocks that share one scale
    total: blocks that differ, of which these are a sample
    padding: bytes of scale padding that differ
    """

    x: np.ndarray
    amax: np.ndarray
    block_amax: np.ndarray
    scale: np.ndarray
    codes: np.ndarray
    their_scale: np.ndarray
    their_codes: np.ndarray
    group: np.ndarray
    total: int
    padding: int

    @property
    def other_scale(self) -> np.ndarray:
        return self.scale != self.their_scale

    @property
    def other_codes(self) -> np.ndarray:
        return self.codes != self.their_codes


def differing(
    case: Case,
    direction: layout.Direction,
    field: Field,
    x: np.ndarray,
    amax: np.ndarray,
    expected: Arrays,
    actual: Arrays,
) -> Differing:
    """The differing blocks of one direction. field: the scales'; x: (rows, cols), the input; amax: by the contract"""
    order = "swizzled" if field.swizzled else "compact"
    scales = [layout.gather(part[f"{direction.name}_scale_inv"], field.shape, order) for part in (expected, actual)]
    data = [np.ascontiguousarray(part[f"{direction.name}_data"]) for part in (expected, actual)]
    lines, blocks = field.valid or field.shape
    valid = np.zeros(field.shape, bool)
    valid[:lines, :blocks] = True
    padding = int(np.count_nonzero((scales[0] != scales[1]) & ~valid))
    scales = [part[:lines, :blocks] for part in scales]
    whole = [part.view(np.uint64) for part in data]  # compares the eight bytes of a block at once
    other = (whole[0] != whole[1]) | (scales[0] != scales[1])
    line, block = np.nonzero(other)
    total = line.size
    tile = line // nvfp4.BLOCK * blocks + block
    if total > MOST_BLOCKS:
        kept = tile % -(-total // MOST_BLOCKS) == 0
        line, block, tile = line[kept], block[kept], tile[kept]
    codes = [nvfp4.unpack(part.reshape(lines, blocks, -1)[line, block]) for part in data]
    square = case.flags.get("block") == "block_16x16"
    values = _blocks(direction, x, line, block)
    if case.flags.get("rht") and direction.transposed:
        values = nvfp4.rht(values.astype(np.float32), case.flags.sign_mask).astype(np.float64)
    return Differing(
        values,
        _granules(amax, lines, blocks)[line, block],
        _tile_amax(direction, x, tile, blocks) if square else _amax(values),
        scales[0][line, block],
        codes[0],
        scales[1][line, block],
        codes[1],
        tile if square else np.arange(line.size),
        total,
        padding,
    )


def _blocks(direction: layout.Direction, x: np.ndarray, line: np.ndarray, block: np.ndarray) -> np.ndarray:
    if direction.transposed:
        found = x.reshape(-1, nvfp4.BLOCK, x.shape[1])[block, :, line]
    else:
        found = x.reshape(len(x), -1, nvfp4.BLOCK)[line, block]
    return found.astype(np.float32).astype(np.float64)


def _amax(values: np.ndarray) -> np.ndarray:
    return np.fmax.reduce(np.abs(values), axis=1, initial=0.0)


def _tile_amax(direction: layout.Direction, x: np.ndarray, tile: np.ndarray, blocks: int) -> np.ndarray:
    each, where = np.unique(tile, return_inverse=True)
    down, across = np.divmod(each, blocks)
    if direction.transposed:
        down, across = across, down
    whole = x.reshape(x.shape[0] // nvfp4.BLOCK, nvfp4.BLOCK, -1, nvfp4.BLOCK)[down, :, across]
    return _amax(whole.reshape(each.size, -1).astype(np.float32).astype(np.float64))[where]


def _granules(amax: np.ndarray, lines: int, blocks: int) -> np.ndarray:
    across = 1 if amax.size in (1, lines) else amax.shape[1]
    found = amax.astype(np.float64).reshape(-1, across)
    if across > 1:
        found = np.repeat(found, blocks // across, axis=1)
    return np.broadcast_to(found, (lines, blocks))
