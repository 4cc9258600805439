"""A case on the emulator as the last rows and columns of a tensor of up to 2^39 elements, to catch an index of 32 bits.

All CTAs of such a grid would take the emulator hours, and memory that few machines have. So only the CTAs at both ends
of the grid run, some of which have the case's tiles, in memory of which only the pages that they touch exist.
"""

from __future__ import annotations

import copy
import itertools
import mmap
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.device.emulator import EmulatedProgram, EmulatorDevice
from harness.jit.geometry import Grid
from harness.suite.launch_plan import own_memory
from ptx_emulator.memory import WINDOW_BITS, Buffer

LARGEST_ARRAY = 1 << WINDOW_BITS - 1  # bytes
_TILE = 128, 4, 512  # lines, scales per line, and bytes of a swizzled tile
_NO_RESERVE = 0x4000  # Linux's MAP_NORESERVE, for which `mmap` has no name
_ALL = 1 << 24  # multiprocessors; with so many, a persistent grid has a CTA for each tile


class CornerProgram(EmulatedProgram):
    """A dense case inside of a larger one, for one target.

    larger: the case with the extents of the tensor around it; inputs: the case's own arrays
    around: the shape of each input in the larger case; fields, larger_fields: what each of the two cases writes
    """

    def __init__(
        self, device: EmulatorDevice, case: Case, larger: Case, target: str, inputs: Mapping[str, np.ndarray],
        around: Mapping[str, Field], fields: Mapping[str, Field], larger_fields: Mapping[str, Field],
    ):  # fmt: skip
        wide = copy.copy(device)
        wide.multiprocessors = _ALL
        super().__init__(wide, larger, target, inputs, fields)
        self.own, self.around, self.larger_fields = case, around, larger_fields

    def written(self, poison: int, repeat: int) -> dict[str, np.ndarray]:
        """Run the launches and return the bytes of the case's fields. Raises AccessError and LaunchError.

        poison: what these bytes are before; repeat: counts runs, whose grids alternate
        """
        arrays: dict[str, Buffer] = {}
        for name, value in self.inputs.items():
            memory = sparse(self.around[name].nbytes)
            field = self.around[name]
            corner(memory, field, value.shape)[...] = value.view(field.dtype).reshape(sides(value.shape, field))
            arrays[name] = Buffer(name, memory, writable=False)
        seen = {}
        for name, field in self.larger_fields.items():
            memory = sparse(field.nbytes)
            seen[name] = corner(memory, field, self.fields[name].shape)
            seen[name].view(np.uint8)[...] = poison
            arrays[name] = Buffer(name, memory)
        for sizes in own_memory(self.steps):
            arrays |= {name: Buffer(name, sparse(size)) for name, size in sizes.items()}
        for step, compiled in zip(self.steps, self.kernels, strict=True):
            own = replace(step, stage=replace(step.stage, case=self.own))
            grids, small = (
                compiled.launch.grids(each.case.problem, self.device.multiprocessors) for each in (step, own)
            )
            cluster = compiled.launch.cluster_x, compiled.launch.cluster_y
            only = ends(grids[repeat % len(grids)], small[repeat % len(small)], cluster)
            self._launch(step, compiled, arrays, repeat, only=only)
        return {name: np.ascontiguousarray(array).reshape(-1).view(np.uint8) for name, array in seen.items()}


def ends(grid: Grid, small: Grid, cluster: tuple[int, int] = (1, 1)) -> tuple[int, ...]:
    """Numbers of the clusters in the first and the last columns and rows of tiles, as many as the small grid has.

    Rows of tiles go on along z, whose last layer may end before y does, so a layer more is taken; and of clusters of
    several CTAs one more, because the last may end before its CTAs do. cluster: CTAs along x and y
    """
    across, down, layers = grid[0] // cluster[0], grid[1] // cluster[1], grid[2]
    columns = _both_ends(across, small[0] // cluster[0], cluster[0] > 1)
    rows = _both_ends(down * layers, small[1] * small[2] // cluster[1], layers + (cluster[1] > 1))
    return tuple(row * across + column for row, column in itertools.product(rows, columns))


def _both_ends(count: int, taken: int, more: int = 0) -> list[int]:
    return sorted({*range(min(taken, count)), *range(max(0, count - taken - more), count)})


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
