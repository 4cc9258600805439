"""Counts of instructions and memory traffic."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from ptx_emulator.registers import U32, WARP, Bits

BANKS = 32
SECTOR_BITS = 5  # 32 bytes


@dataclass(frozen=True)
class Counters:
    """Totals of one launch. An instruction counts for a lane whose guard is false, too: it takes the issue slot.

    lane_instructions, warp_instructions: executed, once per lane, and once per warp with an active lane
    global_bytes_read, global_bytes_written: requested by lanes; an atomic counts as both
    global_requests, global_sectors: warp-wide accesses, and the 32-byte sectors they touch
    shared_requests, shared_wavefronts: warp-wide accesses, and their passes over the 32 banks
    shared_conflicts: bank conflicts: wavefronts beyond the fewest that the access width allows
    barriers: completed, once per block
    opcodes: warp instructions by mnemonic
    approximated: `ex2.approx.f32 at file.cu:12` for each instruction whose bits PTX leaves open and the order chose
    """

    lane_instructions: int
    warp_instructions: int
    global_bytes_read: int
    global_bytes_written: int
    global_requests: int
    global_sectors: int
    shared_requests: int
    shared_wavefronts: int
    shared_conflicts: int
    barriers: int
    opcodes: Counter[str]
    approximated: tuple[str, ...] = ()


@dataclass
class Traffic:
    """The memory counts of Counters, while a launch runs.

    compiled: (7,) int64, what the compiled interpreter adds to the first seven
    """

    global_bytes_read: int = 0
    global_bytes_written: int = 0
    global_requests: int = 0
    global_sectors: int = 0
    shared_requests: int = 0
    shared_wavefronts: int = 0
    shared_conflicts: int = 0
    barriers: int = 0
    compiled: np.ndarray = field(default_factory=lambda: np.zeros(7, np.int64))
    _scratch: np.ndarray = field(default_factory=lambda: np.zeros(0, U32), repr=False)

    def count_global(self, address: Bits, lanes: np.ndarray | None, blocks: int, threads: int) -> None:
        """Count the sectors of one instruction. address: a register; lanes: (blocks, threads) bool, None for all."""
        if lanes is None and address.shape[1] == 1:
            self.global_requests += blocks * threads // WARP
            self.global_sectors += blocks * threads // WARP
            return
        sectors = (address >> address.dtype.type(SECTOR_BITS)).astype(np.int64)
        if lanes is not None:
            sectors = np.where(lanes, sectors, -1)
        sectors = sectors.reshape(-1, WARP)
        repeat = 1 if lanes is not None else blocks // address.shape[0]
        steps = np.diff(sectors, axis=1)
        if (steps < 0).any():
            sectors = np.sort(sectors, axis=1)
            steps = np.diff(sectors, axis=1)
        # Inactive lanes sort first, as -1.
        first = sectors[:, 0] >= 0
        self.global_sectors += repeat * int(np.count_nonzero(steps) + np.count_nonzero(first))
        self.global_requests += repeat * int(np.count_nonzero(sectors[:, -1] >= 0))

    def count_shared(self, address: Bits, lanes: np.ndarray | None, size: int, blocks: int, threads: int) -> None:
        """Count the wavefronts of one instruction of `size` bytes per lane. address: a register"""
        lanes_per_wavefront = min(WARP, BANKS * 4 // size)
        words_per_lane = max(1, size // 4)
        if lanes is None:
            repeat = blocks // address.shape[0]
            words = np.broadcast_to(address, (address.shape[0], threads)).reshape(-1) >> address.dtype.type(2)
            group = np.arange(len(words)) // lanes_per_wavefront
            self.shared_requests += repeat * (len(words) // WARP)
        else:
            repeat = 1
            active = np.flatnonzero(lanes)
            words = np.broadcast_to(address, lanes.shape).reshape(-1)[active] >> address.dtype.type(2)
            group = active // lanes_per_wavefront
            self.shared_requests += len(np.unique(active // WARP))
        wavefronts = len(np.unique(group)) if lanes is not None else len(words) // lanes_per_wavefront
        words = (words[:, None] + np.arange(words_per_lane, dtype=words.dtype)).reshape(-1)
        group = np.repeat(group, words_per_lane)
        conflicts = self._bank_conflicts(words.astype(U32), group)
        self.shared_wavefronts += repeat * (wavefronts + conflicts)
        self.shared_conflicts += repeat * conflicts

    def _bank_conflicts(self, words: Bits, group: np.ndarray) -> int:
        """Extra wavefronts: in each, a bank serves one word to all lanes of a group that read it."""
        bank = group * BANKS + (words & U32(BANKS - 1)).astype(np.int64)
        if len(self._scratch) <= bank.max():
            self._scratch = np.zeros(int(bank.max()) + 1, U32)
        table, extra = self._scratch, 0
        while True:
            table[bank] = words
            waiting = table[bank] != words
            if not waiting.any():
                return extra
            words, bank = words[waiting], bank[waiting]
            extra += len(np.unique(bank // BANKS))
