"""Releases and acquires by strong accesses, for `happens_before`: places, and the fences behind them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ptx_emulator.registers import U64, WARP, Bits

# An address; with a level, and a block or cluster, for releases within that alone.
Where = int | tuple[int, int, int]


class Place(NamedTuple):
    """The first `count` releases at an address."""

    address: Where
    count: int


# A place that a thread knows, the level of its fence, and its block. A plain tuple, because there are many.
Known = tuple[Place, int, int]


class Release(NamedTuple):
    """The knowledge that a thread published with a strong access.

    own: the epoch of its last fence, by level; published: by level, the epochs of its block's threads that it publishes
    settled: how many of its block's settled places are published with it; more: further places that it knew
    """

    block: int
    thread: int
    own: tuple[int, ...]
    published: tuple[Bits, ...]
    settled: int
    more: tuple[Known, ...]

    def says(self, other: Release) -> bool:
        """Whether another release of this thread publishes the same."""
        return (
            (self.own, self.settled, self.more) == (other.own, other.settled, other.more)
            and all(map(np.array_equal, self.published, other.published))
        )  # fmt: skip


class Fence(NamedTuple):
    """A fence after an acquisition.

    lanes: (threads,) bool, who fenced; behind: (warps, warps) bool, whether a warp is ordered after another's
    acquisition
    """

    level: int
    epoch: int
    lanes: np.ndarray
    behind: np.ndarray


class Acquisitions:
    """The places that threads of a block acquired by one instruction. fences: later fences, until a barrier"""

    def __init__(self, epoch: int, threads: list[int], places: list[Place]):
        self.epoch, self.threads, self.places = epoch, np.array(threads), places
        self.warps = self.threads // WARP
        self.fences: list[Fence] = []

    def is_replaced_by(self, later: Acquisitions) -> bool:
        """Whether the same threads access the same addresses again, as in a loop that polls."""
        return (
            not self.fences
            and self.threads.tolist() == later.threads.tolist()
            and [place.address for place in self.places] == [place.address for place in later.places]
        )

    def covers(self, later: Acquisitions) -> bool:
        """Whether the same threads acquire again what they acquired here, as in a loop that polls in vain."""
        return self.places == later.places and self.threads.tolist() == later.threads.tolist()

    def fence(self, level: int, epoch: int, lanes: np.ndarray, known: np.ndarray) -> None:
        """Record a fence by lanes of their block. known: (warps, warps)"""
        behind = known > U64(self.epoch)
        for last in self.fences[-2:]:  # in a loop that polls, each turn has the same fences, and the first is enough
            if last.level == level and np.array_equal(last.lanes, lanes) and np.array_equal(last.behind, behind):
                return
        self.fences.append(Fence(level, epoch, lanes.copy(), behind))

    def settle(self, top: int) -> list[Place]:
        """Remove and return the places that all threads know, at the top level, after a barrier of the whole block."""
        fenced = np.zeros(len(self.threads), bool)
        for fence in self.fences:
            if fence.level == top:
                fenced |= self._fenced(fence).any(axis=0)
        self.fences = [fence for fence in self.fences if fence.level != top]
        places = self._chosen(fenced)
        self.places = self._chosen(~fenced)
        self.threads, self.warps = self.threads[~fenced], self.warps[~fenced]
        return places

    def _fenced(self, fence: Fence) -> np.ndarray:
        """(warps, n) bool: whether some thread of each warp fenced after what each of these threads acquired."""
        by_warp = fence.lanes.reshape(-1, WARP).any(axis=1)
        out = by_warp[:, None] & fence.behind[:, self.warps]
        out[self.warps, np.arange(len(self.warps))] |= fence.lanes[self.threads]
        return out

    def known_to(self, threads: np.ndarray, known: Bits, top: int | None) -> np.ndarray:
        """(n, places): the level at which each of (n,) threads knows each place, -1 for none.

        known: (n, warps), the epochs that their warps know; top: the level where no fence is needed, else None
        """
        own = self.threads == threads[:, None]
        out = np.full(own.shape, -1, np.int8)
        if top is not None:
            out[own | (U64(self.epoch) < known[:, self.warps])] = top
            return out
        for fence in sorted(self.fences, key=lambda each: each.level):
            out[(own | fence.behind[threads // WARP][:, self.warps]) & fence.lanes[threads, None]] = fence.level
            out[(U64(fence.epoch) < known) @ self._fenced(fence)] = fence.level
        return out

    def _chosen(self, which: np.ndarray) -> list[Place]:
        return [self.places[i] for i in np.flatnonzero(which).tolist()]
