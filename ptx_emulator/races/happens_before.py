"""The order that fences and strong accesses make between threads, of one block or of several.

Release: what a thread did or knew before a fence is published when that thread, or one behind a common barrier, next
updates an address by a strong access. Acquire: a thread that then accesses the address knows this once it, or a thread
behind a common barrier, has fenced. A store that depends on what was acquired needs no fence.

Both fences, and both accesses, need a scope that takes in the other thread. Levels count the scopes that differ in a
launch: a block, a cluster if it has clusters, and the grid.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ptx_emulator.compiled.layout import IN_ONE_WARP, IN_SEVERAL_WARPS
from ptx_emulator.memory import OF_CLUSTER, OF_GRID, Access
from ptx_emulator.races.acquisitions import Acquisitions, Known, Place, Release, Where
from ptx_emulator.races.block_order import WARPS_OF, BlockOrder, Fences
from ptx_emulator.registers import U32, U64, WARP, Bits

_LOOKED_AT = 4  # latest acquisitions that a new one is compared with


class OfBatch(NamedTuple):
    """The synchronisation of the blocks of one batch. first: its first block in the grid; cluster: blocks of a cluster

    fences: by level; fenced: (blocks,) bool, which have fenced at all; pending: by block
    """

    order: BlockOrder
    first: int
    cluster: int
    fences: list[Fences]
    fenced: np.ndarray
    pending: list[list[Acquisitions]]


def of_batch(order: BlockOrder, first: int, cluster: int) -> OfBatch:
    """Begin a batch, whose first block is this."""
    return OfBatch(
        order,
        first,
        cluster,
        fences=[Fences(order) for _ in range(3 if cluster > 1 else 2)],
        fenced=np.zeros(order.blocks, bool),
        pending=[[] for _ in range(order.blocks)],
    )


class HappensBefore:
    """The order of one launch. Blocks are numbered in the batch, but in the grid for `Release` and `Knowledge`."""

    def __init__(self) -> None:
        self._releases: dict[Where, list[Release]] = {}
        self._settled: dict[int, list[Known]] = defaultdict(list)  # block → the places that all its threads know
        self._reached: dict[tuple, Knowledge] = {}
        # address, block, thread → its last release there
        self._latest: dict[tuple[Where, int, int], Release] = {}
        self._narrow = False  # whether any thread has fenced below the top level

    def turn_to(self, batch: OfBatch) -> None:
        """From now on, blocks are those of this batch."""
        self._order, self._first, self._cluster, self._fences, self._fenced, self._pending = batch
        self._top = len(self._fences) - 1

    def _level(self, scope: int) -> int:
        """The level of a scope of `memory`. Without clusters, each block is one."""
        return self._top if scope == OF_GRID else min(scope, self._top - 1)

    def _between(self, block: int, other: int) -> int:
        """The lowest level whose scope takes in threads of both blocks of the grid."""
        if block == other:
            return 0
        return self._top - (self._cluster > 1 and block // self._cluster == other // self._cluster)

    def fence(self, lanes: np.ndarray, scope: int) -> None:
        """Record a fence by these lanes, (blocks, threads). scope: of `memory`"""
        order, blocks, level = self._order, lanes.any(axis=1), self._level(scope)
        order.advance(blocks)
        self._fenced |= blocks
        self._narrow |= level < self._top
        for fences in self._fences[: level + 1]:
            fences.fence(lanes)
        for block in np.flatnonzero(blocks).tolist():
            for acquired in self._pending[block]:
                acquired.fence(level, int(order.epoch[block]), lanes[block], order.known[block])

    def barrier(self, blocks: np.ndarray | None, of_all: bool) -> None:
        """Record a barrier of these blocks, (blocks,) bool or None for all. of_all: whether all threads take part"""
        blocks = self._fenced if blocks is None else blocks & self._fenced
        if not blocks.any():
            return
        for fences in self._fences:
            fences.barrier(blocks)
        for block in np.flatnonzero(blocks).tolist() if of_all else ():
            for acquired in self._pending[block]:
                here = self._first + block
                self._settled[here] += [(place, self._top, here) for place in acquired.settle(self._top)]
            self._pending[block] = [acquired for acquired in self._pending[block] if acquired.places]

    def access(self, access: Access, addresses: np.ndarray, blocks: np.ndarray, threads: np.ndarray) -> None:
        """Record strong accesses by threads, one after another; all (n,)."""
        releases = self._releases_of(blocks, threads) if access.kind != "reads" else [None] * len(blocks)
        if not self._releases and not any(releases):
            return
        acquired: dict[int, tuple[list[int], list[Place]]] = defaultdict(lambda: ([], []))
        every = zip(addresses.tolist(), blocks.tolist(), threads.tolist(), releases, strict=True)
        level = self._level(access.scope)
        for address, block, thread, release in every:
            where = self._places(address, block)
            for each in where:
                if each in self._releases:
                    threads_of_block, places = acquired[block]
                    threads_of_block.append(thread)
                    places.append(Place(each, len(self._releases[each])))
            if release:
                self._publish(where[level], release)
        for block, (by, places) in acquired.items():
            pending = self._pending[block]
            new = Acquisitions(int(self._order.epoch[block]), by, places)
            if any(earlier.covers(new) for earlier in pending[-_LOOKED_AT:]):
                continue
            if pending and pending[-1].is_replaced_by(new):
                pending.pop()
            pending.append(new)

    def tell(self, address: int, block: int, thread: int, fences: bool, far: bool) -> None:
        """Record that a thread arrives at an mbarrier, which is as a strong store, behind a fence unless it is relaxed.

        far: whether the mbarrier is another block's
        """
        if fences:
            lanes = np.zeros((self._order.blocks, WARP * self._order.warps), bool)
            lanes[block, thread] = True
            self.fence(lanes, OF_CLUSTER)
        (release,) = self._releases_of(np.array([block]), np.array([thread]))
        if release:
            self._publish(self._places(address, block)[far], release)

    def hear(self, address: int, block: int, far: bool, relaxed: np.ndarray | None) -> None:
        """Record that threads waited for what `tell` recorded. From then on their whole block counts as knowing it.

        relaxed: (n,), the threads, if these know it only once they fence
        """
        here = self._places(address, block)[: 1 + far]
        places = [Place(where, len(self._releases[where])) for where in here if where in self._releases]
        if relaxed is not None:
            for place in places:
                each = Acquisitions(int(self._order.epoch[block]), relaxed.tolist(), [place] * len(relaxed))
                self._pending[block].append(each)
            return
        settled = self._settled[self._first + block]
        known = [(place, self._top, self._first + block) for place in places]
        settled += [each for each in known if each not in settled[-_LOOKED_AT:]]

    def _places(self, address: int, block: int) -> list[Where]:
        """Where releases at an address are found that are for a block, by level."""
        here = self._first + block
        return [(0, here, address), *([(1, here // self._cluster, address)] if self._top > 1 else []), address]

    def _publish(self, where: Where, release: Release) -> None:
        """Add a release, unless its thread published the same there before, as one that polls by atomics does."""
        by = where, release.block, release.thread
        if by not in self._latest or not self._latest[by].says(release):
            self._latest[by] = release
            self._releases.setdefault(where, []).append(release)

    def _releases_of(self, blocks: np.ndarray, threads: np.ndarray) -> list[Release | None]:
        """The release that each of (n,) threads publishes now; None if no thread of its block has fenced."""
        out: list[Release | None] = [None] * len(blocks)
        for block in np.unique(blocks[self._fenced[blocks]]).tolist():
            here, at = self._first + block, np.flatnonzero(blocks == block)
            by = threads[at]
            own = list(zip(*(fences.own[block, by].tolist() for fences in self._fences), strict=True))
            published: dict[tuple, tuple[Bits, ...]] = {}  # by the facts that decide what a thread publishes
            settled, known = len(self._settled[here]), self._known_to(block, by, fenced=True)
            for i, thread, last, more in zip(at.tolist(), by.tolist(), own, known, strict=True):
                key = thread // WARP, *(epoch > 0 for epoch in last)
                if key not in published:
                    published[key] = tuple(
                        fences.published(block, key[0], fenced)
                        for fences, fenced in zip(self._fences, key[1:], strict=True)
                    )
                out[i] = Release(here, thread, last, published[key], settled, more)
        return out

    def _known_to(self, block: int, threads: np.ndarray, fenced: bool) -> list[tuple[Known, ...]]:
        """The places that each of (n,) threads knows in addition to what all threads of its block know.

        fenced: whether it needs a fence
        """
        pending = [each for each in self._pending[block] if each.fences or not fenced]
        if not pending:
            return [()] * len(threads)
        known = self._order.known[block, threads // WARP]
        top = None if fenced else self._top
        which = np.concatenate([each.known_to(threads, known, top) for each in pending], axis=1)
        places = [place for each in pending for place in each.places]
        same: dict[bytes, tuple[Known, ...]] = {}  # many threads share a few results
        out = []
        for row in which:
            key = row.tobytes()
            if key not in same:
                here = self._first + block
                same[key] = tuple((places[i], int(row[i]), here) for i in np.flatnonzero(row >= 0).tolist())
            out.append(same[key])
        return out

    def _knowledge(self, block: int, places: tuple[Known, ...]) -> Knowledge:
        """The knowledge of a thread that knows these places in addition to what all threads of its block know."""
        here = self._first + block
        key = here, len(self._settled[here]), places
        if key not in self._reached:
            if len(self._reached) > 256:
                self._reached.clear()
            self._reached[key] = Knowledge(self._reach(*key))
        return self._reached[key]

    def knowledge_of(
        self, block: np.ndarray, thread: np.ndarray, reads: bool
    ) -> Iterator[tuple[Knowledge, np.ndarray]]:
        """Yield what threads know now, and the indices of the (n,) threads that do. reads: they will read, not write"""
        for each in np.unique(block).tolist():
            chosen = np.flatnonzero(block == each)
            by_places: dict[tuple[Known, ...], list[int]] = defaultdict(list)
            for i, places in enumerate(self._known_to(each, thread[chosen], fenced=reads)):
                by_places[places].append(i)
            for places, members in by_places.items():
                yield self._knowledge(each, places), chosen[members]

    def _reach(self, block: int, settled: int, places: tuple[Known, ...]) -> Iterator[tuple[Release, int]]:
        """Yield all releases that follow from these places and from the first `settled` ones of a block.

        With each the level between its block and the one that acquired it.
        """
        counts: dict[Where | tuple[Where, int, int], int] = {}
        of_block = {block: settled}
        todo, level, narrow = [*self._settled[block][:settled], *places], 0, self._narrow
        while todo:
            (address, count), fenced, by = todo.pop()
            # Where all fences are of the top level, a release publishes the same at each, whoever acquired it.
            key = (address, by, fenced) if narrow else address
            start = counts.get(key, 0)
            if count <= start:
                continue
            counts[key] = count
            for release in self._releases[address][start:count]:
                if narrow and (level := self._between(by, release.block)) > fenced:
                    continue
                yield release, level
                todo.extend(release.more)
                known = of_block.get(release.block, 0)
                if release.settled > known:
                    todo.extend(self._settled[release.block][known : release.settled])
                    of_block[release.block] = release.settled


class Knowledge:
    """Releases that a thread knows, by level and block."""

    def __init__(self, releases: Iterator[tuple[Release, int]]):
        self._releases: list[dict[int, list[Release]]] = [defaultdict(list) for _ in range(3)]
        self._epochs: dict[int, Bits] = {}
        for release, level in releases:
            self._releases[level][release.block].append(release)

    def epochs(self, block: int) -> Bits | None:
        """(threads,), the epoch before which each thread's accesses are all known; None if nothing is known."""
        if block not in self._epochs:
            found = [(level, of[block]) for level, of in enumerate(self._releases) if block in of]
            if not found:
                return None
            epochs = np.maximum.reduce([each.published[level] for level, releases in found for each in releases])
            for level, releases in found:
                for release in releases:
                    epochs[release.thread] = max(int(epochs[release.thread]), release.own[level])
            self._epochs[block] = epochs
        return self._epochs[block]


def came_before(epoch: Bits, agent: Bits, epochs: Bits) -> np.ndarray:
    """Whether agents of a block acted before the epochs known of its threads. epoch, agent: (n,); epochs: (threads,)"""
    out = np.zeros(len(agent), bool)
    single = agent < U64(IN_ONE_WARP)
    out[single] = epoch[single] < epochs[agent[single].astype(int)]
    for i in np.flatnonzero(~single).tolist():
        before = epochs.reshape(-1, WARP) > epoch[i]
        warps = WARPS_OF[agent[i]] >> np.arange(len(before), dtype=U32) & U32(1) != 0
        if agent[i] < U64(IN_SEVERAL_WARPS):
            out[i] = before[warps].sum() > 1  # lanes of one warp, it is not known which, but at least two
        else:
            out[i] = before[warps].any(axis=1).all()
    return out
