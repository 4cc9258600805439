"""The state that the batches of a launch share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from ptx_emulator.counters import Traffic
from ptx_emulator.memory import CLUSTER_RANK_BITS, Access, Buffer
from ptx_emulator.ptx.syntax import Instruction, Kernel, Location
from ptx_emulator.races.async_global import GlobalCopies
from ptx_emulator.races.borne import LateReads
from ptx_emulator.races.dependent_launches import Dependence
from ptx_emulator.races.global_memory import GlobalShadow
from ptx_emulator.registers import U32, U64, WARP, WARPGROUP, Bits
from ptx_emulator.schedule import ASCENDING, Schedule

Extent = tuple[int, int, int]


class Hazard(NamedTuple):
    """A step that uses registers of a `wgmma`.

    location: of its instruction; copies: whether that is a move; reads, writes: slots that a `wgmma` ever uses
    """

    location: Location
    copies: bool
    reads: tuple[int, ...]
    writes: tuple[int, ...]


class Wait(NamedTuple):
    """The event that lanes wait for at the entry of a block: a phase of an mbarrier or of their cluster's barrier.

    slot, offset: of its address; state: slot of a phase, or of a parity
    """

    slot: int
    offset: int
    state: int
    by_parity: bool
    of_cluster: bool = False


@dataclass
class Resources:
    """Registers and memory of a decoded kernel.

    kinds: type of every slot; rows: where each lies in a block's file of 32-bit or 64-bit registers
    constants: values of the constants, whose slots are negative; specials: special register → slot
    undefined: slots that may be read before they are written, which hold other bits in each order
    accesses: memory accesses by number
    shared_size, local_size: bytes of a block, without what a launch adds, and of a thread
    cell_shared, cell_global: bytes of the narrowest access
    asynchronous: whether it uses mbarriers, bulk copies or clusters; relaxed: whether an arrival or a wait is, so
        that fences count for it
    fragments: slots of the registers that `wgmma` uses asynchronously, in order; empty in kernels without
    hazards: uses of these registers by other instructions
    ranked: whether addresses in shared memory have the rank of their block in the cluster
    lacking: a sentence on what the kernel has and its target lacks, for which no launch runs; empty if there is nothing
    """

    kernel: Kernel
    kinds: list[np.dtype]
    rows: list[int]
    row_counts: tuple[int, int]
    constants: list[Bits]
    specials: dict[str, int]
    undefined: tuple[int, ...]
    accesses: dict[int, Access]
    shared_size: int
    local_size: int
    parameter_offsets: dict[str, int]
    parameter_size: int
    cell_shared: int
    cell_global: int
    fragments: tuple[int, ...]
    hazards: list[Hazard]
    asynchronous: bool = False
    relaxed: bool = False
    ranked: bool = False
    lacking: str = ""


UNHURRIED = 1 << 11  # reads of a clock with nothing changed, from which on time runs faster


class Clock:
    """The time of a launch, in units of its own, of which every instruction takes some. reads: how often it was read

    A loop that waits for a time of day would take the emulator hours. So if clocks are read again and again and nothing
    changes, time runs the faster; a deadline of what still makes progress is not met sooner.
    """

    def __init__(self) -> None:
        self.time, self.reads = 0, 0
        self._changes, self._since = -1, 0  # the launch's changes when it was last read, and reads since then

    def read(self, spent: int, changes: int) -> int:
        """The time now. spent: what the reader has executed since it read last; changes: of the launch"""
        self._since = self._since + 1 if changes == self._changes else 0
        self._changes = changes
        self.time += spent + 1 + (self.time >> 6 if self._since > UNHURRIED else 0)
        self.reads += 1
        return self.time

    def skip(self, turn: int) -> None:
        """Let time pass because nobody can do anything but wait; much more in each turn."""
        self.time += 1 << min(4 * turn, 40)


@dataclass
class LaunchState:
    """One launch.

    memory: window of addresses → buffer; parameters: (size,) uint8
    buffers: of the compiled interpreter, one row for each; see `compiled.layout`
    cluster: extent in blocks, of which each in the grid is a multiple
    schedule: the order of blocks and warps; by_warpgroup: whether the warps of a warpgroup stay together in it
    strict: names in `races.borne` of what is reported, too
    late: reads that come late in this run, see `races.borne`; None in any other
    shadow: of global memory; None without the sanitizer; dependence: on the launches before, if it is of a stream
    echo: takes each line that a kernel prints
    title: how sentences name the kernel; target: the architecture of the module
    approximated: instructions whose bits an order chose, and their lines
    copies: what copies did to global memory
    workspace: address of what `grid.sync()` waits with; 0 if the launch is not cooperative
    changes: how often a thread changed what others may wait for: it wrote to global memory, copied, arrived or exited
    clock: that threads read
    take_cluster: takes a cluster that has not begun, for a batch that has executed so much, and returns the place of
        its first block; None if there is none, or the request is refused
    requests: the instructions that asked for one
    """

    resources: Resources
    grid: Extent
    block: Extent
    memory: Mapping[int, Buffer]
    parameters: np.ndarray
    traffic: Traffic
    counts_traffic: bool
    sanitize: bool
    buffers: np.ndarray
    schedule: Schedule = ASCENDING
    by_warpgroup: bool = False
    strict: frozenset[str] = frozenset()
    late: LateReads | None = None
    shadow: GlobalShadow | None = None
    echo: Callable[[str], object] = lambda line: None
    cluster: Extent = (1, 1, 1)
    dependence: Dependence | None = None
    title: str = ""
    target: str = ""
    approximated: dict[str, None] = field(default_factory=dict)
    copies: GlobalCopies = field(default_factory=GlobalCopies)
    workspace: int = 0
    changes: int = 0
    clock: Clock = field(default_factory=Clock)
    take_cluster: Callable[[int], int | None] = lambda spent: None
    requests: list[Instruction] = field(default_factory=list)

    @property
    def cluster_size(self) -> int:
        """Blocks of a cluster."""
        return self.cluster[0] * self.cluster[1] * self.cluster[2]

    @property
    def blocks(self) -> int:
        """Blocks of the grid that run."""
        of_grid = self.grid[0] * self.grid[1] * self.grid[2]
        return len(self.schedule.only) * self.cluster_size if self.schedule.only else of_grid

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @cached_property
    def thread_at(self) -> np.ndarray:
        """The number of the thread at each place of a block, padded to whole warps."""
        return self.schedule.threads(-(-self.threads // WARP), WARPGROUP // WARP if self.by_warpgroup else 1)

    def block_name(self, place: int) -> Extent:
        """The index of the block at a place of the grid."""
        return tuple(int(each) for each in self.block_at(np.int64(place)))

    def block_at(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The indices x, y, z of the blocks at places of the grid; those of one cluster stand side by side."""
        return block_at(places, self.grid, self.cluster, self.schedule)

    def thread_name(self, place: int) -> Extent:
        """The index of the thread at a place of a block."""
        return coordinates(int(self.thread_at[place]), self.block)

    def in_cluster_name(self, cluster: int, row: int) -> str:
        """A thread and its block, by the place of its cluster in the grid and its row in the cluster."""
        rank, thread = divmod(row, len(self.thread_at))
        return f"thread {self.thread_name(thread)} of block {self.block_name(cluster * self.cluster_size + rank)}"


def block_at(places: np.ndarray, grid: Extent, cluster: Extent, schedule: Schedule) -> tuple[np.ndarray, ...]:
    """The indices x, y, z of the blocks at places of a grid."""
    clusters = tuple(extent // of for extent, of in zip(grid, cluster, strict=True))
    size = cluster[0] * cluster[1] * cluster[2]
    number = schedule.clusters(places // size, clusters[0] * clusters[1] * clusters[2])
    of_cluster, in_cluster = coordinates(number, clusters), coordinates(places % size, cluster)
    return tuple(outer * extent + inner for outer, extent, inner in zip(of_cluster, cluster, in_cluster, strict=True))


def coordinates(index: int, extent: Extent) -> Extent:
    """Index number `index` in a grid or block, x fastest."""
    return index % extent[0], index // extent[0] % extent[1], index // (extent[0] * extent[1])


@lru_cache(maxsize=64)
def _lane_specials(block: Extent, threads: bytes) -> dict[str, Bits]:
    """Special registers that depend on the thread only, (1, threads) uint32. threads: by place, int64"""
    thread = np.frombuffer(threads, np.int64)[None, :]
    lane = thread % WARP
    one = np.int64(1)
    registers = {
        "%tid.x": thread % block[0],
        "%tid.y": thread // block[0] % block[1],
        "%tid.z": thread // (block[0] * block[1]),
        "%laneid": lane,
        "%warpid": thread // WARP,
        "%lanemask_eq": one << lane,
        "%lanemask_lt": (one << lane) - 1,
        "%lanemask_le": (one << lane + 1) - 1,
        "%lanemask_gt": 0xFFFFFFFF - ((one << lane + 1) - 1),
        "%lanemask_ge": 0xFFFFFFFF - ((one << lane) - 1),
    }
    return {name: values.astype(U32) for name, values in registers.items()}


def specials_of(
    state: LaunchState, first: int, blocks: int, parameters: int, dynamic_shared: int, shared_size: int
) -> dict[str, Bits]:
    """The special registers of a batch, by name. parameters: their address"""
    numbers = {"%dynamic_smem_size": dynamic_shared, "%total_smem_size": shared_size}
    numbers |= {"%envreg1": state.workspace >> 32, "%envreg2": state.workspace & 0xFFFFFFFF}
    return {
        **_lane_specials(state.block, state.thread_at.tobytes()),
        **_block_specials(state.grid, state.block, state.cluster, state.schedule, first, blocks),
        **{name: np.full((1, 1), size, U32) for name, size in numbers.items()},
        "%parameters": np.full((1, 1), parameters, U64),
    }


@lru_cache(maxsize=64)
def _block_specials(
    grid: Extent, block: Extent, cluster: Extent, schedule: Schedule, first: int, blocks: int
) -> dict[str, Bits]:
    """Special registers that depend on the block only, (blocks, 1) or (1, 1) uint32."""
    places, size = np.arange(first, first + blocks, dtype=np.int64), math.prod(cluster)
    at = block_at(places, grid, cluster, schedule)
    registers: dict[str, np.ndarray] = {
        **{f"%ctaid.{axis}": index[:, None] for axis, index in zip("xyz", at, strict=True)},
        "%cluster_ctarank": (places % size)[:, None],
        "%shared_window": (places % size << CLUSTER_RANK_BITS)[:, None],
    }
    for axis, index, extent in zip("xyz", at, cluster, strict=True):
        registers |= {f"%clusterid.{axis}": index[:, None] // extent, f"%cluster_ctaid.{axis}": index[:, None] % extent}
    shared = {
        "%nwarpid": -(-math.prod(block) // 32),
        **{f"%ntid.{axis}": extent for axis, extent in zip("xyz", block, strict=True)},
        **{f"%nctaid.{axis}": extent for axis, extent in zip("xyz", grid, strict=True)},
        **{f"%cluster_nctaid.{axis}": extent for axis, extent in zip("xyz", cluster, strict=True)},
        **{f"%nclusterid.{axis}": extent // of for axis, extent, of in zip("xyz", grid, cluster, strict=True)},
        "%cluster_nctarank": size,
        "%is_explicit_cluster": int(size > 1),
    }
    registers |= {name: np.full((1, 1), value) for name, value in shared.items()}
    return {name: values.astype(U32) for name, values in registers.items()}
