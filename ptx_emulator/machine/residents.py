"""Run the CTAs of a grid, a batch at a time, as many at once as a GPU holds.

A batch runs until all its lanes have exited, or until those left only wait for other CTAs. Then it is suspended with
all that it has, and others begin, until as many CTAs are there as a GPU holds; one that exited frees its place. After
that the suspended ones get turns, from the first to the last and back, so that a chain of waits ends soon in either
direction.

If all of them have had turns and nothing changes any more, they wait for ever. That is the kernel's fault: either all
CTAs have begun, or a GPU has no place for the others. GPUs begin CTAs in ascending order. In another order, those that
have not begun therefore go on from the lowest once all places are taken by CTAs that wait, and a kernel is at fault if
the lowest ones that a GPU holds all wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, NoReturn

import numpy as np

from ptx_emulator.errors import NotEmulated
from ptx_emulator.machine.launch_state import LaunchState
from ptx_emulator.machine.scheduler import Scheduler
from ptx_emulator.ptx.targets import parsed
from ptx_emulator.registers import WARP

# From the table "Technical Specifications per Compute Capability" of the CUDA programming guide, and, for each target,
# the most multiprocessors that a part sold has, or for sm_100 and sm_103 the whole chip: 160 in NVIDIA's "Inside NVIDIA
# Blackwell Ultra", of which a B200 has 148. Threads, shared memory and the limit of CTAs count; registers do not,
# because PTX does not say how many ptxas will take, so a GPU may hold fewer.
_OWN = 1 << 10  # bytes of shared memory that the system takes for each CTA


class Part(NamedTuple):
    """A GPU. shared: KiB of shared memory of a multiprocessor; ctas, threads: that it holds at most"""

    multiprocessors: int
    threads: int
    ctas: int
    shared: int


_PARTS = {
    75: Part(72, 1024, 16, 64), 80: Part(108, 2048, 32, 164), 86: Part(84, 1536, 16, 100), 87: Part(16, 1536, 16, 164),
    89: Part(142, 1536, 24, 100), 90: Part(132, 2048, 32, 228), 100: Part(160, 2048, 32, 228),
    103: Part(160, 2048, 32, 228), 110: Part(20, 1536, 24, 228), 120: Part(188, 1536, 24, 100),
    121: Part(48, 1536, 24, 100),
}  # fmt: skip
LARGEST = Part(*(max(each) for each in zip(*_PARTS.values(), strict=True)))


class Residency(NamedTuple):
    """ctas: how many a GPU holds at once, whole clusters; words: why no more"""

    ctas: int
    words: str


def residency(target: str, threads: int, shared: int, cluster: int) -> Residency:
    """The CTAs that a GPU holds at once. threads, shared: of a CTA, shared in bytes; cluster: CTAs of one

    A target that the table lacks counts as the largest GPU there is.
    """
    known = parsed(target)
    part = _PARTS.get(known.number, LARGEST) if known else LARGEST
    return held(part, f"a GPU of {target or 'any target'}", threads, shared, cluster)


def held(part: Part, gpu: str, threads: int, shared: int, cluster: int) -> Residency:
    """The CTAs that one GPU holds, as `residency`. gpu: as a sentence names it"""
    limits = {
        "by threads": part.threads // (-(-threads // WARP) * WARP),
        "by shared memory": (part.shared << 10) // (shared + _OWN),
        "as many as it has places": part.ctas,
    }
    why, each = min(limits.items(), key=lambda item: item[1])
    each = max(1, each)  # a launch that is allowed fits once
    ctas = max(cluster, part.multiprocessors * each // cluster * cluster)
    words = f"{gpu} holds at most {ctas:,} at once "
    words += f"({part.multiprocessors} SMs, {each} CTA{'s' * (each > 1)} each {why})"
    return Residency(ctas, words)


MOST_BYTES = 6 << 30  # of suspended batches
GRANTED = 4  # in a drawn order one in so many requests for a cluster is granted


class Residents:
    """The batches of a launch. begin: makes the one at some places of the grid, by the first and how many

    step: CTAs of a batch; shared: bytes of a CTA; budget: what turns may cost while nothing changes
    """

    def __init__(
        self, state: LaunchState, begin: Callable[[int, int], Scheduler], step: int, shared: int, budget: int
    ):  # fmt: skip
        self.state, self.begin, self.budget = state, begin, budget
        self.limit = residency(state.target, state.threads, shared, state.cluster_size)
        self.step = min(step, self.limit.ctas)
        self.begun = 0
        state.take_cluster = self._take
        seed = state.schedule.seed
        self._refuses = None if seed is None else np.random.default_rng((seed, GRANTED))
        self.waiting: list[Scheduler] = []
        self._sorted = not state.schedule.descending and state.schedule.seed is None
        self._seen: set[tuple[bytes, ...]] = set()  # states of all batches since anything changed
        self._spent = 0  # what turns have cost since then
        self._lacks_memory = False

    def run(self) -> None:
        """Run all CTAs to their ends. Raises Fault, NotEmulated or LaunchError."""
        total, forward = self.state.blocks, True
        while self.begun < total or self.waiting:
            while self.begun < total and (room := self._room()) > 0:
                self._begin(min(self.step, room, total - self.begun))
            if self.waiting and not self._turns(forward):
                self._judge()
            forward = not forward

    def _begin(self, blocks: int) -> None:
        if not self.waiting:
            self.state.copies.forget()
        scheduler = self.begin(self.begun, blocks)
        self.begun += blocks
        if self._ends(scheduler):
            return
        self.waiting.append(scheduler)

    def _take(self, spent: int) -> int | None:
        """Take the cluster that is next, which then does not begin. spent: what the batch that asks has executed

        A GPU may refuse a request. Here it does so in a drawn order, by chance, and where a batch has executed much, so
        that other batches share the work.
        """
        refused = self._refuses is not None and self._refuses.integers(GRANTED) > 0
        if refused or self.begun >= self.state.blocks or 2 * spent > self.budget:
            return None
        self.begun += self.state.cluster_size
        self.state.changes += 1
        return self.begun - self.state.cluster_size

    def _ends(self, scheduler: Scheduler) -> bool:
        """Give a batch a turn; whether it has ended."""
        changes = self.state.changes
        if scheduler.run():
            proxy = scheduler.batch.asynchronous
            if proxy:
                proxy.finish()
                if proxy.globals and self.waiting:
                    proxy.globals.end()
            return True
        self._spent = 0 if self.state.changes != changes else self._spent
        self._spent += scheduler.refund()
        return False

    def _turns(self, forward: bool) -> bool:
        """Give every suspended batch a turn; whether anything changed."""
        changes, left = self.state.changes, []
        for scheduler in self.waiting if forward else self.waiting[::-1]:
            scheduler.batch.resume()
            if not self._ends(scheduler):
                left.append(scheduler)
        self.waiting = left if forward else left[::-1]
        if self.state.changes == changes:
            return False
        self._seen.clear()
        return True

    def _room(self) -> int:
        """How many of the CTAs that are next a GPU has places for, whole clusters."""
        if not self.waiting:
            return self.limit.ctas
        if self._held_bytes() > MOST_BYTES:
            self._lacks_memory = True
            return 0
        there = self._clusters()
        if self._sorted:
            there = there[there < self._next()]
        return self.limit.ctas - len(there) * self.state.cluster_size

    def _held_bytes(self) -> int:
        """Bytes that suspended batches would hold with one more as large as the latest."""
        held = [scheduler.batch.held_bytes() for scheduler in self.waiting]
        return sum(held) + held[-1]

    def _clusters(self) -> np.ndarray:
        """The numbers of the clusters that have begun and not ended."""
        size, found = self.state.cluster_size, []
        for scheduler in self.waiting:
            batch = scheduler.batch
            live = np.flatnonzero(batch.live.any(axis=1)) + batch.first
            found.append(self._number(np.unique(live // size)))
        return np.concatenate(found)

    def _next(self) -> int:
        """The number of the cluster that begins next."""
        return int(self._number(np.array([self.begun // self.state.cluster_size]))[0])

    def _number(self, places: np.ndarray) -> np.ndarray:
        return self.state.schedule.clusters(places, self._count())

    def _count(self) -> int:
        """Clusters of the grid."""
        grid = self.state.grid
        return grid[0] * grid[1] * grid[2] // self.state.cluster_size

    def _judge(self) -> None:
        """All suspended batches had a turn and nothing changed: raise what is wrong if they would wait for ever."""
        every = tuple(scheduler.state() for scheduler in self.waiting)
        if every not in self._seen and self._spent <= 2 * self.budget:
            self._seen.add(every)
            return
        if self.begun < self.state.blocks and not self._sorted and not self._lacks_memory:
            self._sort()
        else:
            self._fault()

    def _sort(self) -> None:
        """Let the CTAs that have not begun do so in ascending order, as on a GPU."""
        state, size = self.state, self.state.cluster_size
        number = self._number(np.arange(state.blocks // size))
        begun = self.begun // size
        order = (*number[:begun].tolist(), *sorted(number[begun:].tolist()))
        state.schedule = replace(state.schedule, only=order)
        self._sorted = True
        self._seen.clear()

    def _fault(self) -> NoReturn:
        state, lowest = self.state, min(self.waiting, key=lambda each: each.batch.lowest_live())
        waiting = sum(int(np.count_nonzero(each.batch.live.any(axis=1))) for each in self.waiting)
        of = f"{state.blocks:,} CTAs of {state.threads:,} threads"
        if self.begun < state.blocks and self._lacks_memory:
            held = self._held_bytes() / (1 << 30)
            sentence = f"{waiting:,} of {of} wait for others, and with these they would take {held:.1f} GiB"
            raise NotEmulated(f"not emulated: {sentence}; {MOST_BYTES >> 30} are allowed")
        if self.begun < state.blocks:
            sentence = f"{of} wait for each other, and {self.limit.words}"
            lowest.fault_waits(f"no end: {sentence}, so that those never begin for which this one waits")
        whole = state.grid[0] * state.grid[1] * state.grid[2]
        if state.blocks < whole:
            raise NotEmulated(f"not emulated: {waiting:,} CTAs wait for others, and {state.blocks} of {whole} run here")
        others = f", as {waiting - 1:,} other CTA{'s do' if waiting > 2 else ' does'}" if waiting > 1 else ""
        lowest.fault_waits(f"no end: waits for a change that no thread is left to make{others}")
