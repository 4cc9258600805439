"""The grid of a kernel, from the geometry that its `.cu` declares."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from harness.contract.field import round_up
from harness.contract.problem import Problem
from harness.errors import CompileError

_PADDED_TO = 128  # Schedule::tiles covers extents rounded up to this multiple, to which scale matrices are padded
_LARGEST_Y = 65535
_TILES_OF_ONE = 64
_MOST_THREADS = 1024

Grid = tuple[int, int, int]


class Schedule(IntEnum):
    """How CTAs share the tiles of a case, number for number as in `kernels/scheduler/launch.cuh`."""

    TILES = 0
    PERSISTENT = 1
    RESIDENT = 2
    PATCHES = 3
    BY_FLAG = 4


@dataclass(frozen=True)
class LaunchGeometry:
    """The `Launch` constant of a kernel, field for field (see `kernels/scheduler/launch.cuh`).

    tile_rows, tile_cols: elements that one CTA takes, in all or (persistent) at a time
    blocks_per_sm: CTAs that an SM holds at once or, with Schedule.PATCHES, at least; 0 if it does not matter. With
        Schedule.BY_FLAG, and where Schedule.PERSISTENT has 0, what the instantiation's launch bounds ask for
    schedule: Schedule.BY_FLAG has to be resolved by `of_case` before a grid can be asked for
    cluster_x, cluster_y: CTAs of a cluster, as `__cluster_dims__` of the instantiation says. A grid has whole clusters,
        so some of its CTAs may have no tile
    """

    tile_rows: int
    tile_cols: int
    threads: int
    blocks_per_sm: int
    schedule: int
    cluster_x: int = 1
    cluster_y: int = 1

    def of_case(self, flags: Mapping[str, object]) -> LaunchGeometry:
        """The launch with the schedule that the flags of a case choose, where its kernel leaves it to them."""
        if self.schedule != Schedule.BY_FLAG:
            return self
        chosen = str(flags.get("schedule"))
        if chosen not in ("tiles", "persistent"):
            raise CompileError(f"Schedule::by_flag takes the flag schedule, tiles or persistent; it is {chosen}")
        return replace(self, schedule=Schedule[chosen.upper()])

    def grids(self, problem: Problem, multiprocessors: int) -> tuple[Grid, ...]:
        """`grid` first, then other grids that must give the same bytes: grids of other devices, or two layers along z.

        A layer holds the tiles that exceed the largest y. Small grids use them as well, so that small cases test them.
        A group's persistent CTAs take three tiles each on a device that is small enough, and one CTA takes a tensor
        of few tiles; of many it would take an emulator long.
        """
        if self.schedule == Schedule.PERSISTENT and not problem.is_gemm:
            own, _, _ = self.grid(problem, multiprocessors)
            count = self._shared(problem)
            few = max(1, count // 3) if problem.is_group else 1 if count <= _TILES_OF_ONE else own
            few = round_up(few, self.cluster_x)
            return ((own, 1, 1), (few, 1, 1)) if few < own else ((own, 1, 1),)
        if self.schedule == Schedule.PATCHES:
            return tuple(each.grid(problem, multiprocessors) for each in self._in_turn(problem, multiprocessors))
        across, down, layers = own = self.grid(problem, multiprocessors)
        layered = self.schedule == Schedule.TILES and layers == 1 < down
        return (own, (across, round_up(-(-down // 2), self.cluster_y), 2)) if layered else (own,)

    def rows(self, problem: Problem, multiprocessors: int) -> tuple[int, ...]:
        """How many rows of CTAs have a tile, in `grids` by turns; their last layer may have more."""
        if self.schedule == Schedule.PERSISTENT or problem.is_group:
            return (1,)
        return tuple(max(1, each._all_tiles(problem)[0][0]) for each in self._in_turn(problem, multiprocessors))

    def _in_turn(self, problem: Problem, multiprocessors: int) -> tuple[LaunchGeometry, ...]:
        """The launch itself, or with Schedule.PATCHES the two that give its grids."""
        if self.schedule != Schedule.PATCHES:
            return (self,)
        by_patch = replace(self, schedule=Schedule.TILES)
        by_tile = replace(by_patch, tile_rows=_PADDED_TO, tile_cols=_PADDED_TO)
        enough = math.prod(by_patch.grid(problem, multiprocessors)) >= self.blocks_per_sm * multiprocessors
        return (by_patch, by_tile) if enough else (by_tile, by_patch)

    def grid(self, problem: Problem, multiprocessors: int) -> Grid:
        """CTAs along x, y and z for the problem's extents; at least one, even for a group without elements."""
        if self.schedule == Schedule.PATCHES:
            return self.grids(problem, multiprocessors)[0]
        if self.schedule == Schedule.PERSISTENT:
            return self._row(min(self._shared(problem), self.blocks_per_sm * multiprocessors))
        if problem.is_group:
            return self._row(self._count(problem))
        down, across = (max(1, count) for count in self._all_tiles(problem)[0])
        layers = -(-down // (_LARGEST_Y // self.cluster_y * self.cluster_y))
        return round_up(across, self.cluster_x), round_up(-(-down // layers), self.cluster_y), layers

    def _row(self, count: int) -> Grid:
        """A one-dimensional grid of `count` CTAs."""
        if self.cluster_y > 1:
            raise CompileError(f"a grid of one row of CTAs has no clusters with {self.cluster_y} along y; use x alone")
        return round_up(max(1, count), self.cluster_x), 1, 1

    def _shared(self, problem: Problem) -> int:
        """How many tiles a persistent grid shares.

        A single tensor is read without padding, so its elements are counted.
        """
        if problem.is_group or problem.is_gemm:
            return self._count(problem)
        return -(-problem.elements // (self.tile_rows * self.tile_cols))

    def _count(self, problem: Problem) -> int:
        return sum(map(math.prod, self._all_tiles(problem)))

    def _all_tiles(self, problem: Problem) -> list[tuple[int, int]]:
        padded_to = 1 if problem.is_gemm else _PADDED_TO  # tiles of a GEMM are of its output, which is not padded
        return [self._tiles(*extents, padded_to) for extents in problem.grid_extents]

    def _tiles(self, rows: int, cols: int, padded_to: int) -> tuple[int, int]:
        return -(-round_up(rows, padded_to) // self.tile_rows), -(-round_up(cols, padded_to) // self.tile_cols)


def _require_possible(launch: LaunchGeometry, ptx: str, kernel: str, entry: str) -> None:
    """Raise CompileError for tiles, threads or a schedule that no launch can have."""
    wrong = f"{kernel}: {kernel}_launch has"
    for name in ("tile_rows", "tile_cols"):
        if getattr(launch, name) < 1:
            raise CompileError(f"{wrong} {name} {getattr(launch, name)}; a tile has an element or more")
    bounds = _directive(ptx, entry, "maxntid|reqntid")
    most = bounds[0] if bounds else _MOST_THREADS
    if not 1 <= launch.threads <= most:
        allows = f"its __launch_bounds__ allow {most}" if bounds else f"a CTA has 1 to {most}"
        raise CompileError(f"{wrong} {launch.threads} threads; {allows}")
    if launch.schedule not in set(Schedule):
        raise CompileError(f"{wrong} the schedule {launch.schedule}; one is a Schedule, as Schedule::tiles")
    if launch.blocks_per_sm < 0:
        raise CompileError(f"{wrong} blocks_per_sm {launch.blocks_per_sm}; give the CTAs that an SM holds at once")


def _cluster(ptx: str, kernel: str, entry: str) -> tuple[int, int]:
    """CTAs of a cluster along x and y. Raises CompileError for clusters along z."""
    x, y, z = (*_directive(ptx, entry, "reqnctapercluster"), 1, 1, 1)[:3]
    if z > 1:
        raise CompileError(f"{kernel}: __cluster_dims__ ask for {z} CTAs along z; a grid has tiles along x and y alone")
    return x, y


def _directive(ptx: str, entry: str, names: str) -> tuple[int, ...]:
    """The numbers after the entry's directive with one of these names; none if it has no such directive."""
    found = re.search(rf"\.entry {re.escape(entry)}\([^)]*\)[^{{]*?\.(?:{names}) (\d+(?:, *\d+)*)", ptx)
    return tuple(map(int, found[1].split(","))) if found else ()


def read_launch(ptx: str, symbol: str, kernel: str, entry: str = "") -> LaunchGeometry:
    """The `Launch` that initialises the constant `symbol` in PTX text; CompileError if it cannot be one.

    entry: mangled name of the instantiation, which declares its clusters and, where the Launch leaves them to it, the
        CTAs per SM
    """
    found = re.search(rf"\.align 4 \.b8 {re.escape(symbol)}\[20\] = \{{([\d, ]+)\}};", ptx)
    if not found:
        raise CompileError(
            f"{kernel}: its file has no "
            f"`__constant__ Launch {kernel}_launch = {{rows, cols, threads, blocks_per_sm, schedule}};`"
        )
    # Trailing zero bytes are left out of an initialiser.
    content = bytes(int(byte) for byte in found[1].split(",")).ljust(20, b"\0")
    launch = LaunchGeometry(*struct.unpack("<5i", content))
    across, down = _cluster(ptx, kernel, entry)
    launch = replace(launch, cluster_x=across, cluster_y=down)
    _require_possible(launch, ptx, kernel, entry)
    by_flag = launch.schedule == Schedule.BY_FLAG
    if not by_flag and (launch.schedule != Schedule.PERSISTENT or launch.blocks_per_sm):
        return launch
    bound = _directive(ptx, entry, "minnctapersm")
    if not bound:
        what = "Schedule::by_flag" if by_flag else "Schedule::persistent with blocks_per_sm 0"
        raise CompileError(f"{kernel}: {what} needs the CTAs of an SM in __launch_bounds__(threads, CTAs)")
    return replace(launch, blocks_per_sm=bound[0])
