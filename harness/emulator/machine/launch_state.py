"""What the batches of a launch share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from harness.emulator.counters import Traffic
from harness.emulator.memory import Access, Buffer
from harness.emulator.ptx.syntax import Kernel, Location
from harness.emulator.races.global_memory import GlobalShadow
from harness.emulator.registers import Bits

Extent = tuple[int, int, int]


class Hazard(NamedTuple):
    """A step that uses registers of a `wgmma`.

    location: of its instruction; copies: whether that is a move; reads, writes: slots that a `wgmma` ever uses
    """

    location: Location
    copies: bool
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass
class Resources:
    """Registers and memory of a decoded kernel.

    kinds: type of every slot; rows: where each lies in a block's file of 32-bit or 64-bit registers
    constants: values of the constants, whose slots are negative; specials: special register → slot
    undefined: slots that are read before they are written, and start as 0; accesses: memory accesses by number
    shared_size, local_size: bytes of a block, without what a launch adds, and of a thread
    cell_shared, cell_global: bytes of the narrowest access
    fragments: slots of the registers that `wgmma` uses asynchronously, in order; empty in kernels without
    hazards: uses of those by other instructions
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


@dataclass
class LaunchState:
    """One launch.

    memory: window of addresses → buffer; parameters: (size,) uint8
    buffers: of the compiled interpreter, one row for each; see `compiled.layout`
    shadow: of global memory; None without the sanitizer
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
    shadow: GlobalShadow | None = None

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]


def coordinates(index: int, extent: Extent) -> Extent:
    """Index number `index` in a grid or block, x fastest."""
    return index % extent[0], index // extent[0] % extent[1], index // (extent[0] * extent[1])
