"""A case on the emulator as the last rows and columns of a tensor of up to 2^39 elements, to catch an index of 32 bits.

All CTAs of such a grid would take the emulator hours, and memory that few machines have. So only the CTAs at both ends
of the grid run, some of which have the case's tiles, in memory of which only the pages that they touch exist.
"""

from __future__ import annotations

import itertools
import mmap
from collections.abc import Mapping, Sequence
from typing import NoReturn

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.device.device import Outcome
from harness.device.emulator import EmulatedMemory, EmulatedProgram, module_of
from harness.device.launches import BoundLaunch, Launches, LibraryCall
from harness.device.memory import flat
from harness.errors import LaunchError
from harness.jit.geometry import Grid
from ptx_emulator.memory import WINDOW_BITS

LARGEST_ARRAY = 1 << WINDOW_BITS - 1  # bytes
_TILE = 128, 4, 512  # lines, scales per line, and bytes of a swizzled tile
_NO_RESERVE = 0x4000  # Linux's MAP_NORESERVE, for which `mmap` has no name


class TooLargeError(LaunchError):
    """An array of the larger case is larger than any of the emulator, or a library's product of it would be."""


class CornerProgram(EmulatedProgram):
    """A dense case, or the last tensor of a group, inside of a larger one.

    launches: of the case with the extents of the tensor around it; small: the grids of each for the case itself
    rows: of CTAs that have a tile, for the grids of each by turns; none where the grids alone are known
    inputs, fields: the case's own arrays; around: the field of each array in the larger case
    """

    def __init__(
        self, launches: Launches, small: Sequence[tuple[Grid, ...]], larger: Case, inputs: Mapping[str, np.ndarray],
        fields: Mapping[str, Field], around: Mapping[str, Field], seed: int | None = None,
        rows: Sequence[tuple[int, ...]] = (),
    ):  # fmt: skip
        super().__init__(launches, larger, inputs, fields, seed)
        self.small, self.around = dict(zip(launches.of_kernels, small, strict=True)), around
        self.rows = dict(zip(launches.of_kernels, rows, strict=True)) if rows else {}

    def run(self, poison: int, repeat: int) -> Outcome:
        """The launches, in memory of which only touched pages exist; the outputs are the case's own part of it.

        poison: what these bytes are before. Raises AccessError and LaunchError.
        """
        memory = SparseMemory()
        for name, value in self.inputs.items():
            field = self.around[name]
            place = corner(memory.reserve(name, field.nbytes, writable=False), field, value.shape)
            place[...] = value.view(field.dtype).reshape(sides(value.shape, field))
        seen = {}
        for name, field in self.fields.items():
            whole = self.around[name]
            seen[name] = corner(memory.reserve(name, whole.nbytes), whole, field.shape)
            seen[name].view(np.uint8)[...] = poison
        for name, size in {**self.launches.scratch, **self.launches.workspace}.items():
            memory.reserve(name, size)
        self._launch_all(memory, repeat, None)
        return Outcome({name: flat(part) for name, part in seen.items()})

    def _play(self, call: LibraryCall, memory: EmulatedMemory) -> NoReturn:
        raise TooLargeError(
            f"{call.step.signature.name} is played whole, and the product of the larger tensors is too large"
        )

    def _only(self, each: BoundLaunch, repeat: int) -> tuple[int, ...]:
        cluster = each.cluster or module_of(each.code).code(each.entry).resources.kernel.cluster or (1, 1, 1)
        if cluster[2] > 1:
            raise LaunchError("clusters of blocks along z")
        small, rows = self.small[each], self.rows.get(each, (None,))
        grid = each.grids[repeat % len(each.grids)]
        return ends(grid, small[repeat % len(small)], cluster[:2], rows[repeat % len(rows)])


class SparseMemory(EmulatedMemory):
    """The arrays of one run, zero, of any size."""

    def reserve(self, name: str, size: int, writable: bool = True) -> np.ndarray:
        if size >= LARGEST_ARRAY:
            raise TooLargeError(f"'{name}' has {size:,} bytes; the emulator allows {LARGEST_ARRAY:,}")
        content = sparse(size)
        self.put(name, content, writable)
        return content

    def clear(self, name: str) -> None:
        clear(self.arrays[name].data)


def ends(grid: Grid, small: Grid, cluster: tuple[int, int] = (1, 1), with_tiles: int | None = None) -> tuple[int, ...]:
    """Numbers of the clusters in the first and the last columns and rows of tiles, as many as the small grid has.

    Rows of tiles go on along z, whose last layer may end before y does. All CTAs behind the last tile are taken, too,
    and as many more of the first, which are those without a tile where a kernel begins with the last row; if it is not
    known which tile is the last, a layer more; and of clusters of several CTAs one more, because the last may end
    before its CTAs do.

    cluster: CTAs along x and y; with_tiles: rows of CTAs that have a tile
    """
    across, down, layers = grid[0] // cluster[0], grid[1] // cluster[1], grid[2]
    columns = _both_ends(across, small[0] // cluster[0], cluster[0] > 1)
    behind = layers if with_tiles is None else down * layers - -(-with_tiles // cluster[1])
    ahead = 0 if with_tiles is None else behind
    rows = _both_ends(down * layers, small[1] * small[2] // cluster[1], behind + (cluster[1] > 1), ahead)
    return tuple(row * across + column for row, column in itertools.product(rows, columns))


def _both_ends(count: int, taken: int, behind: int = 0, ahead: int = 0) -> list[int]:
    return sorted({*range(min(taken + ahead, count)), *range(max(0, count - taken - behind), count)})


def corner(memory: np.ndarray, field: Field, shape: tuple[int, ...]) -> np.ndarray:
    """The last entries of a field along every axis, in the extents `shape`; swizzled scales in whole tiles."""
    array, parts = memory.view(field.dtype).reshape(sides(field.shape, field)), sides(shape, field)
    return array[tuple(slice(whole - part, None) for whole, part in zip(array.shape, parts, strict=True))]


def sides(shape: tuple[int, ...], field: Field) -> tuple[int, ...]:
    """The shape itself, or for swizzled scales the shape of their tiles, (down, across, bytes)."""
    lines, scales, size = _TILE
    return (shape[0] // lines, shape[1] // scales, size) if field.swizzled else shape


def sparse(size: int) -> np.ndarray:
    """Allocate (size,) uint8 of zeros, of any size, in pages that take no memory until they are touched."""
    if not size:
        return np.zeros(0, np.uint8)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    pages.madvise(mmap.MADV_NOHUGEPAGE)  # with huge pages, touching one byte would take two megabytes
    return np.frombuffer(pages, np.uint8)


def clear(memory: np.ndarray) -> None:
    """Set memory that `sparse` made to zero, by giving its pages back."""
    if memory.size:
        memory.base.obj.madvise(mmap.MADV_DONTNEED)
