"""Atomics and other strong accesses to global memory, by address: who made them, and when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from harness.emulator.memory import Access

WIDEST = 32  # bytes of a strong access


class Update(NamedTuple):
    """A thread's last strong update of an address.

    when: counts all strong accesses; epoch: of its block; gathers: whether it was an atomic that does
    """

    address: int
    block: int
    thread: int
    when: int
    epoch: int
    size: int
    gathers: bool


class StrongAccesses:
    """The strong accesses of a launch. Blocks count in the grid."""

    def __init__(self) -> None:
        self._count = 0
        self._updates: dict[int, dict[tuple[int, int], Update]] = defaultdict(dict)
        # block, address → thread → when it last accessed it, and the epoch
        self._seen: dict[tuple[int, int], dict[int, tuple[int, int]]] = defaultdict(dict)

    def record(
        self, access: Access, addresses: np.ndarray, blocks: np.ndarray, threads: np.ndarray, epochs: np.ndarray
    ) -> None:
        """Accesses of threads, one after another; all (n,)."""
        updates, size, gathers = access.kind != "reads", access.bytes, access.gathers
        every = zip(addresses.tolist(), blocks.tolist(), threads.tolist(), epochs.tolist(), strict=True)
        for when, (address, block, thread, epoch) in enumerate(every, self._count):
            if not gathers:  # one that gathers comes after others by chance
                self._seen[block, address][thread] = when, epoch
            if updates:
                self._updates[address][block, thread] = Update(address, block, thread, when, epoch, size, gathers)
        self._count += len(addresses)

    def updates(self, address: int, size: int) -> Iterator[Update]:
        """Updates of any of these bytes."""
        for start in range(address - address % WIDEST, address + size):
            for update in self._updates[start].values() if start in self._updates else ():
                if start + update.size > address:
                    yield update

    def seen(self, block: int, update: Update) -> Iterator[tuple[int, int]]:
        """Threads of a block that accessed the address after an update, and the epochs."""
        for thread, (when, epoch) in self._seen.get((block, update.address), {}).items():
            if when > update.when:
                yield thread, epoch
