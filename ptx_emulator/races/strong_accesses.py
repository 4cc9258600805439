"""Atomics and other strong accesses to global memory, by address: who made them, and when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from ptx_emulator.memory import Access
from ptx_emulator.registers import WARP

# Plain tuples, because there are many and Python's garbage collector soon stops tracking tuples.
Thread = tuple[int, int]  # block of the grid, thread of the block


class StrongAccesses:
    """The strong accesses of a launch. Blocks count in the grid, and `when` counts accesses."""

    def __init__(self) -> None:
        self._count = 0
        self._narrowest = self._widest = 1  # bytes of the narrowest and the widest update; addresses are aligned
        # address → thread → its last update: time, epoch of its block, bytes, and whether it is a gathering atomic
        self._updates: dict[int, dict[Thread, tuple[int, int, int, bool]]] = defaultdict(dict)
        # block, address → thread → time and epoch of its last access
        self._seen: dict[tuple[int, int], dict[int, tuple[int, int]]] = defaultdict(dict)

    def record(
        self, access: Access, addresses: np.ndarray, blocks: np.ndarray, threads: np.ndarray, epochs: np.ndarray
    ) -> None:
        """Record accesses by threads, one after another; all (n,)."""
        size, gathers = access.bytes, access.gathers
        every = list(
            zip(
                range(self._count, self._count + len(addresses)),
                addresses.tolist(),
                blocks.tolist(),
                threads.tolist(),
                epochs.tolist(),
                strict=True,
            )
        )
        self._count += len(addresses)
        if not gathers:  # an atomic that gathers has not seen earlier updates: their order is chance
            for when, address, block, thread, epoch in every:
                self._seen[block, address][thread] = when, epoch
        if access.kind != "reads":
            self._narrowest = min(size, self._narrowest) if self._updates else size
            self._widest = max(size, self._widest)
            for when, address, block, thread, epoch in every:
                self._updates[address][block, thread] = when, epoch, size, gathers

    def unseen(self, access: Access, address: int, by: Thread, known: list[int]) -> Iterator[tuple[int, Thread]]:
        """Yield updates that may race with a thread's access, because neither it nor its block has seen them.

        known: the epochs that its warp knows of each warp. Yields each update's epoch and thread.
        """
        block, thread = by
        for start in range(address - address % self._widest, address + access.bytes, self._narrowest):
            if start not in self._updates:
                continue
            seen = -1  # time of the last access to the address that this thread knows of
            for other, (when, epoch) in self._seen.get((block, start), {}).items():
                if when > seen and (other == thread or epoch < known[other // WARP]):
                    seen = when
            for who, (when, epoch, size, gathers) in self._updates[start].items():
                if when >= seen and who != by and start + size > address and _may_race(access, block, who, gathers):
                    yield epoch, who


def _may_race(access: Access, block: int, who: Thread, gathers: bool) -> bool:
    """Whether another thread's update races with an access unless something orders it before."""
    return not access.strong or (access.takes and gathers) or (access.of_block and who[0] != block)
