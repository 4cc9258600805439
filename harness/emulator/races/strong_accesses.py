"""Atomics and other strong accesses to global memory, by address: who made them, and when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from harness.emulator.memory import Access
from harness.emulator.registers import WARP

# There are many entries, so they are plain tuples, which Python's garbage collector soon leaves alone.
Thread = tuple[int, int]  # block of the grid, thread of the block


class StrongAccesses:
    """The strong accesses of a launch. Blocks count in the grid, and `when` counts accesses."""

    def __init__(self) -> None:
        self._count = 0
        self._narrowest = self._widest = 1  # bytes of an update, of which its address is a multiple
        # address → thread → its last update: when, the epoch of its block, bytes, and whether by an atomic that gathers
        self._updates: dict[int, dict[Thread, tuple[int, int, int, bool]]] = defaultdict(dict)
        # block, address → thread → when it last accessed it, and the epoch
        self._seen: dict[tuple[int, int], dict[int, tuple[int, int]]] = defaultdict(dict)

    def record(
        self, access: Access, addresses: np.ndarray, blocks: np.ndarray, threads: np.ndarray, epochs: np.ndarray
    ) -> None:
        """Accesses of threads, one after another; all (n,)."""
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
        if not gathers:  # one that gathers comes after others by chance
            for when, address, block, thread, epoch in every:
                self._seen[block, address][thread] = when, epoch
        if access.kind != "reads":
            self._narrowest = min(size, self._narrowest) if self._updates else size
            self._widest = max(size, self._widest)
            for when, address, block, thread, epoch in every:
                self._updates[address][block, thread] = when, epoch, size, gathers

    def unseen(self, access: Access, address: int, by: Thread, known: list[int]) -> Iterator[tuple[int, Thread]]:
        """Updates that may race with an access of a thread, which has not seen them, itself or through its block.

        known: the epochs that its warp knows of each warp. Yields the epoch of an update, and whose it was.
        """
        block, thread = by
        for start in range(address - address % self._widest, address + access.bytes, self._narrowest):
            if start not in self._updates:
                continue
            seen = -1  # when one that it knows of last accessed the address
            for other, (when, epoch) in self._seen.get((block, start), {}).items():
                if when > seen and (other == thread or epoch < known[other // WARP]):
                    seen = when
            for who, (when, epoch, size, gathers) in self._updates[start].items():
                if when >= seen and who != by and start + size > address and _may_race(access, block, who, gathers):
                    yield epoch, who


def _may_race(access: Access, block: int, who: Thread, gathers: bool) -> bool:
    """Whether another thread's update concerns an access of a block, if nothing orders it before."""
    return not access.strong or (access.takes and gathers) or (access.of_block and who[0] != block)
