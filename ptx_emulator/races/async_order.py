"""The order of threads and of asynchronous copies in kernels that use mbarriers, bulk copies or clusters.

Here one thread may wait for another, so each has a row of its own, of a vector clock: what it knows of every thread of
its cluster, how much of that a proxy fence made visible to copies, and which copies it knows to be complete. When a
barrier, an mbarrier or a warp lets one thread know what others know, rows are merged by taking the larger entry.

A copy belongs to a counter: the phases of its mbarrier, or the groups of the thread that issued it. A thread whose
entry for the counter exceeds the copy's number knows that the copy is complete. In a cluster, the first counters are
one for each block, and tell that it has begun: relaxed operations, and those of a block's scope, pass on no more than
these. `BlockOrder`, which tells only warps apart, is kept beside, for global memory.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.races.block_order import BlockOrder
from ptx_emulator.registers import U32, U64, WARP, Bits

SHARED, GLOBAL = "shared", "global"
_FIRST_COUNTERS = 16
_OF_BLOCK = 4  # counters per block that typical kernels need: for its mbarriers, and two for a thread that stores


class AsyncOrder(BlockOrder):
    """rows: threads of a cluster, `rank * threads + thread`; now: (clusters,), the epoch, which begins at 1

    floor: (clusters,), before which epoch all threads of a cluster know what all did, since they last met

    clock: (clusters, rows, 3 * rows + counters): for each row, the epoch before which it knows what each row did; the
    epoch before which a proxy fence made that visible to copies in shared memory; the same for global memory; counters
    """

    def __init__(self, blocks: int, threads: int, cluster: int = 1):
        super().__init__(blocks, threads)
        self.threads, self.cluster, self.rows = threads, cluster, cluster * threads
        self.clusters = blocks // cluster
        columns = 3 * self.rows + max(_FIRST_COUNTERS, _OF_BLOCK * blocks)
        self.clock = np.zeros((self.clusters, self.rows, columns), U32)
        self.now = np.ones(self.clusters, U32)
        self.floor = np.zeros(self.clusters, U32)
        self.counters = 0
        self.activity = 1  # changes with every access and every merge, so that a warp that meets again costs nothing
        self._met: dict[bytes, int] = {}
        self._waiting: dict[tuple[int, int], Bits] = {}
        # As `clock`, by whether they are of the cluster or more: what each row knew at its last fence, and what its
        # next one lets it know; None before any.
        self._fenced: list[Bits | None] = [None, None]
        self._seen: list[Bits | None] = [None, None]
        self.narrow: dict[int, str] = {}  # by cluster, the last operation whose scope left out threads of other blocks
        self._gates: dict[int, Bits] = {}  # by cell of shared memory, what strong accesses there pass on
        self._gated: dict[tuple[int, int], Bits] = {}  # cluster, row → what it got so
        self._seen_warps: dict[tuple[int, int], Bits] = {}  # as `_seen`, of warps: block, warp → epochs
        self.begun = slice(3 * self.rows, 3 * self.rows + (cluster if cluster > 1 else 0))
        for rank in range(cluster if cluster > 1 else 0):
            self.clock[:, rank * threads : (rank + 1) * threads, self.counter()] = 1

    def row(self, block: np.ndarray, thread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Clusters, and rows in them, of threads."""
        return block // self.cluster, block % self.cluster * self.threads + thread

    def place(self, cluster: int, row: int) -> tuple[int, int]:
        """The block in the batch and the thread that belong to a row."""
        return cluster * self.cluster + row // self.threads, row % self.threads

    def publish(self, cluster: int, rows: np.ndarray) -> Bits:
        """The clock of what these rows know and did until now."""
        out = self.clock[cluster, together(rows)].max(axis=0)
        out[rows] = self.now[cluster] + U32(1)
        self.now[cluster] += U32(1)
        self.activity += 1
        return out

    def learn(self, cluster: int, rows: np.ndarray, clock: Bits) -> None:
        """Merge a clock into the knowledge of these rows. clock: one for all, or one for each, in ascending order"""
        self.activity += 1
        rows, width = together(rows), clock.shape[-1]
        self.clock[cluster, rows, :width] = np.maximum(self.clock[cluster, rows, :width], clock)

    def meet(self, cluster: int, rows: np.ndarray) -> None:
        """Record that these rows met at a barrier, so that each knows what all know."""
        self.clock[cluster, together(rows)] = self.publish(cluster, rows)
        if len(rows) == self.rows:
            self.floor[cluster] = self.now[cluster]

    def fence_proxy(self, lanes: np.ndarray, space: str | None) -> None:
        """Execute `fence.proxy.async` for these lanes, (blocks, threads) bool. space: only this one, None for both"""
        n = self.rows
        for cluster, rows in self.rows_of(lanes):
            for start in [n] * (space != GLOBAL) + [2 * n] * (space != SHARED):
                clock, passed, which = self.clock[cluster], slice(start, start + n), together(rows)
                clock[which, passed] = np.maximum(clock[which, passed], clock[which, :n])
                clock[rows, start + rows] = self.now[cluster] + U32(1)
            self.now[cluster] += U32(1)
        self.activity += 1

    def fence(self, lanes: np.ndarray, wide: bool) -> None:
        """Execute a `fence`: these lanes, (blocks, threads) bool, learn what they saw by a relaxed wait, and publish by
        a relaxed arrival what came before. wide: whether it is of the cluster or more"""
        for cluster, rows in self.rows_of(lanes):
            for level in range(1 + wide):
                if self._seen[level] is not None:
                    self.learn(cluster, rows, self._each(self._seen, level)[cluster, rows])
            for block, warp in {self.place(cluster, row // WARP * WARP) for row in rows.tolist()}:
                if (released := self._seen_warps.pop((block, warp // WARP), None)) is not None:
                    self.acquire_warps(block, np.array([warp // WARP]), released)
            for level in range(1 + wide):
                fenced = self._each(self._fenced, level)
                fenced[cluster, rows] = np.maximum(fenced[cluster, rows], self.clock[cluster, rows])
                fenced[cluster, rows, rows] = self.now[cluster] + U32(1)
            self.now[cluster] += U32(1)
        self.activity += 1

    def fence_column(self, cluster: int, row: int, column: int) -> None:
        """Let a thread know that a counter has reached 1, and publish so much by a relaxed arrival."""
        self.reach(cluster, np.array([row]), column, 1)
        for level in range(2):
            self._each(self._fenced, level)[cluster, row, column] = 1

    def fenced(self, cluster: int, rows: np.ndarray, wide: bool) -> Bits:
        """The clock that these rows publish by a relaxed arrival: what they knew and had done at their last fence.

        wide: whether it is for threads of other blocks
        """
        out = self.only_begun(self.clock[cluster, together(rows)].max(axis=0))
        if self._fenced[wide] is not None:
            out = np.maximum(out, self._each(self._fenced, wide)[cluster, rows].max(axis=0))
        return out

    def see(self, cluster: int, rows: np.ndarray, clock: Bits, wide: bool) -> None:
        """Remember what a fence of these rows, which waited relaxed, lets them know. wide: if it is of the cluster"""
        seen = self._each(self._seen, wide)
        seen[cluster, rows, : len(clock)] = np.maximum(seen[cluster, rows, : len(clock)], clock)

    def see_warps(self, block: int, warps: np.ndarray, released: Bits) -> None:
        """Remember epochs that a later fence lets these warps acquire, as `acquire_warps` takes them."""
        for warp in warps.tolist():
            before = self._seen_warps.get((block, warp))
            self._seen_warps[block, warp] = released if before is None else np.maximum(before, released)

    def pass_gate(self, cell: int, cluster: int, row: int, kind: str) -> None:
        """Record a strong access to shared memory, which passes on what threads did where no barrier does."""
        at = cluster, row
        if kind != "writes" and cell in self._gates:
            self._gated[at] = larger(self._gated.get(at), self._gates[cell])
        if kind != "reads":
            clock = larger(self._gated.get(at), self.publish(cluster, np.array([row])))
            self._gates[cell] = larger(self._gates.get(cell), clock)

    def behind_gates(self, cluster: int, row: int) -> Bits:
        """The clock of a row, with what strong accesses to shared memory have passed on to it."""
        return larger(self._gated.get((cluster, row)), self.clock[cluster, row])

    def only_begun(self, clock: Bits) -> Bits:
        """The part of a clock that says which blocks of the cluster have begun, as a clock."""
        out = np.zeros_like(clock)
        out[self.begun] = clock[self.begun]
        return out

    def not_begun(self, cluster: np.ndarray, row: np.ndarray, block: np.ndarray) -> np.ndarray:
        """(n,) bool: whether rows do not know that a block has begun. block: (n,), its rank in the cluster"""
        return self.clock[cluster, row, self.begun.start + block] == 0

    def _each(self, held: list[Bits | None], level: int) -> Bits:
        """An array as the clock, made at its first use."""
        found = held[level]
        if found is None or found.shape != self.clock.shape:
            wider = held[level] = np.zeros_like(self.clock)
            if found is not None:  # counters were added
                wider[:, :, : found.shape[2]] = found
        return held[level]

    def rows_of(self, lanes: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """The clusters with some of these lanes, (blocks, threads) bool, and their rows."""
        by_cluster = lanes.reshape(self.clusters, self.rows)
        return [(int(each), np.flatnonzero(by_cluster[each])) for each in np.flatnonzero(by_cluster.any(axis=1))]

    def release_warp(self, block: int, warp: int) -> Bits:
        """The epochs that a warp knows of its block's warps; global memory does not tell threads of a warp apart."""
        self.epoch[block] += U64(1)
        out = self.known[block, warp].copy()
        out[warp] = self.epoch[block]
        return out

    def acquire_warps(self, block: int, warps: np.ndarray, released: Bits) -> None:
        """Merge released epochs into the knowledge of warps of a block."""
        self.known[block, warps] = np.maximum(self.known[block, warps], released)
        self.common[block] = self.known[block].min(axis=1)

    def counter(self) -> int:
        """Add a counter and return its column in the clock."""
        self.counters += 1
        column = 3 * self.rows + self.counters - 1
        if column == self.clock.shape[2]:
            self.clock = np.concatenate([self.clock, np.zeros_like(self.clock[:, :, 3 * self.rows :])], axis=2)
        return column

    def reach(self, cluster: int, rows: np.ndarray, column: int, count: int) -> None:
        """Record that these rows know that a counter has reached this count."""
        self.activity += 1
        self.clock[cluster, rows, column] = np.maximum(self.clock[cluster, rows, column], U32(count))

    def block_barrier(self, blocks: np.ndarray | None) -> None:
        super().block_barrier(blocks)
        for block in range(self.blocks) if blocks is None else np.flatnonzero(blocks).tolist():
            cluster, first = self.row(block, 0)
            self.meet(cluster, np.arange(first, first + self.threads))

    def arrive(self, number: int, lanes: np.ndarray) -> None:
        super().arrive(number, lanes)
        for block in np.flatnonzero(lanes.any(axis=1)).tolist():
            cluster, rows = self._in_block(block, lanes)
            clock, key = self.publish(cluster, rows), (block, number)
            self._waiting[key] = larger(self._waiting.get(key), clock)

    def barrier(self, number: int, lanes: np.ndarray) -> None:
        super().barrier(number, lanes)
        for block in np.flatnonzero(lanes.any(axis=1)).tolist():
            cluster, rows = self._in_block(block, lanes)
            self.meet(cluster, rows)
            arrived = self._waiting.pop((block, number), None)
            if arrived is not None:
                self.learn(cluster, rows, arrived)

    def _in_block(self, block: int, lanes: np.ndarray) -> tuple[int, np.ndarray]:
        cluster, first = self.row(block, 0)
        return cluster, first + np.flatnonzero(lanes[block])

    def warp_barrier(self, lanes: np.ndarray | None) -> None:
        super().warp_barrier(lanes)
        key = b"" if lanes is None else np.packbits(lanes).tobytes()
        if self._met.get(key) == self.activity:
            return
        every = np.ones((self.blocks, self.threads), bool) if lanes is None else lanes
        by_warp = every.reshape(-1, WARP)
        warps = np.flatnonzero(by_warp.any(axis=1))
        clocks = self.clock.reshape(-1, WARP, self.clock.shape[2])
        mine, takes_part = clocks[warps], by_warp[warps][..., None]
        merged = np.where(takes_part, mine, U32(0)).max(axis=1)
        of_cluster, in_cluster = np.divmod(warps, self.rows // WARP)
        columns = in_cluster[:, None] * WARP + np.arange(WARP)
        at = np.arange(len(warps))[:, None]
        merged[at, columns] = np.where(by_warp[warps], self.now[of_cluster][:, None] + U32(1), merged[at, columns])
        clocks[warps] = np.where(takes_part, merged[:, None], mine)
        self.now[np.unique(of_cluster)] += U32(1)
        self.activity += 1
        self._met = {key: self.activity}


def together(rows: np.ndarray) -> np.ndarray | slice:
    """The rows in ascending order, as a slice if they are contiguous, so that NumPy need not gather."""
    if not len(rows):
        return rows
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first == len(rows) - 1 else rows


def larger(a: Bits | None, b: Bits) -> Bits:
    """The elementwise larger of two clocks; the first may be None, and either may lack the newest counters."""
    if a is None:
        return b
    short, long = sorted((a, b), key=len)
    out = long.copy()
    out[: len(short)] = np.maximum(out[: len(short)], short)
    return out
