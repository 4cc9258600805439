"""Barriers of a block, warp-wide instructions that some of their lanes have yet to reach, and waits for a phase.

Lanes that wait are parked until nothing else can run, and released when all participants are there. If none can be
released, the kernel would hang or be undefined on a GPU, which is a fault.

Lanes that wait for a phase of an mbarrier are held at the entry of their basic block until it is complete. Once nothing
else can run, they go on with a phase that is not complete, as `try_wait` may, because what they do next may complete
it. If they come back with nothing changed, the kernel hangs, which is a fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import NoReturn

import numpy as np

from ptx_emulator.arithmetic import warp
from ptx_emulator.machine.basic_blocks import WHOLE_WARP, Barrier, Code
from ptx_emulator.machine.batch import Batch
from ptx_emulator.machine.launch_state import Wait
from ptx_emulator.machine.meetings import At, Meetings
from ptx_emulator.registers import U32, WARP, WARPGROUP


class Barriers:
    """The parked lanes of one batch, by basic block: one begins with a warp-wide instruction, or ends with a barrier.

    apart: whether lanes run ahead of others, so that these may exit while those wait
    awaited: at a warp-wide instruction, the lanes that each parked lane waits for, as bits
    """

    def __init__(self, batch: Batch, code: Code, apart: bool):
        self.batch, self.code, self.blocks, self.apart = batch, code, code.blocks, apart
        self.parked: dict[int, np.ndarray] = {}
        self.awaited: dict[int, np.ndarray] = {}
        self.meetings = Meetings(batch, code)

    def converge(self, number: int, membermask: int, mask: np.ndarray) -> np.ndarray | None:
        """The lanes whose participants have all arrived, None if there are none; the others are parked.

        Participants are the lanes of the membermask that were live when the first arrived. One that exits later without
        arriving is a fault, unless lanes run ahead.
        """
        live = warp.ballot(self.batch.live)
        awaited = self.batch.registers[membermask] & live
        parked = self.parked.pop(number, None)
        if parked is not None:
            awaited = np.where(parked, self.awaited.pop(number), awaited)
            mask = mask | parked
            if self.apart:
                awaited = awaited & live
        ready = mask & (awaited & ~warp.ballot(mask) == 0)
        if self.blocks[number].takes_warpgroup:
            ready = ready & ~self._warpgroups_of(self.batch.live & ~ready)
        rest = mask & ~ready
        if rest.any():
            self.parked[number], self.awaited[number] = rest, awaited
        return ready if ready.any() else None

    def unpark_after_exits(self) -> Iterator[tuple[int, np.ndarray]]:
        """The lanes parked with one whose missing participants have all exited."""
        for number in [each for each in self.parked if self._is_warp_wide(each)]:
            mask = self.parked[number]
            missing = self.awaited[number] & ~warp.ballot(mask)
            if (mask & (missing != 0) & (missing & warp.ballot(self.batch.live) == 0)).any():
                del self.parked[number], self.awaited[number]
                yield number, mask

    def _warpgroups_of(self, lanes: np.ndarray) -> np.ndarray:
        """All lanes of the warpgroups of these lanes; the last of a block may be smaller."""
        starts = np.arange(0, self.batch.threads, WARPGROUP)
        return np.repeat(np.logical_or.reduceat(lanes, starts, axis=1), WARPGROUP, axis=1)[:, : self.batch.threads]

    def _is_warp_wide(self, number: int) -> bool:
        return self.blocks[number].membermask is not None

    def park(self, number: int, lanes: np.ndarray) -> None:
        """Park lanes at the barrier that ends a block."""
        if self.blocks[number].terminator.count is not None or self.blocks[number].terminator.number >= 0:
            self.meetings.require_valid(number, lanes)
        others = self.parked.get(number)
        self.parked[number] = lanes if others is None else others | lanes

    def arrive(self, number: int, lanes: np.ndarray) -> np.ndarray | None:
        """An arrival that ends a block: the lanes that go on, None for none; others wait for the rest of their warp."""
        self.meetings.require_valid(number, lanes)
        if number in self.parked:
            lanes = lanes | self.parked.pop(number)
        on = np.zeros_like(lanes)
        for which, at in self.meetings.by_name({number: lanes}).items():
            whole = np.repeat(self.meetings.whole(which, at), WARP, axis=1) & at[number]
            if whole.any():
                self.meetings.arrive(which, number, whole)
                on |= whole
        if (lanes & ~on).any():
            self.parked[number] = lanes & ~on
        return on if on.any() else None

    def complete(self, number: int, barrier: Barrier, lanes: np.ndarray, blocks: np.ndarray | None) -> None:
        """Complete a barrier of the whole block, whose threads all wait at one. blocks: (blocks,) bool, None for all"""
        if self.meetings.passed:
            self.meetings.require_one_place(0, {number: lanes})
        self.batch.barrier(blocks)
        self._finish({number: lanes}, blocks)

    def _finish(self, at: At, blocks: np.ndarray | None) -> None:
        """Count a complete barrier, and give its result, if it reduces. at: the lanes that pass, by basic block"""
        batch = self.batch
        batch.launch.traffic.barriers += batch.blocks if blocks is None else int(np.count_nonzero(blocks))
        reductions = {number: self.blocks[number].terminator.reduction for number in at}
        if not any(reductions.values()):
            return
        holds = np.zeros(batch.shape, bool)
        for number, (_, _, predicate) in reductions.items():
            holds |= batch.full(batch.registers[predicate]) & at[number]
        counts = np.count_nonzero(holds, axis=1)[:, None]
        total = np.count_nonzero(reduce(np.logical_or, at.values()), axis=1)[:, None]
        values = {"popc": counts.astype(U32), "and": counts == total, "or": counts > 0}
        for number, (name, target, _) in reductions.items():
            batch.registers.put(target, values[name], at[number])

    def release(self) -> Iterator[tuple[int, np.ndarray]]:
        """Release the lanes whose barrier is complete: the basic block they enter, and the lanes."""
        at = {number: lanes for number, lanes in sorted(self.parked.items()) if not self._is_warp_wide(number)}
        if len(at) == 1 and not self.meetings.arrivals:
            ((number, lanes),) = at.items()
            barrier = self.blocks[number].terminator
            if barrier.count is None and barrier.number < 0 and barrier.waits:
                yield from self._release_whole(number, barrier, lanes)
                return
        for which, each in self.meetings.by_name(at).items():
            yield from self._release_named(which, each)

    def _release_whole(self, number: int, barrier: Barrier, mask: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """A barrier of the whole block, at one instruction."""
        arrived = np.count_nonzero(mask, axis=1)
        blocks = (arrived > 0) & (arrived == np.count_nonzero(self.batch.live, axis=1))
        if blocks.any():
            lanes = mask & blocks[:, None]
            self.complete(number, barrier, lanes, blocks)
            yield self._unpark(number, lanes)

    def _release_named(self, which: int, at: At) -> Iterator[tuple[int, np.ndarray]]:
        """A barrier at any of several instructions."""
        waits = {number: lanes for number, lanes in at.items() if self.blocks[number].terminator.waits}
        for number in [number for number in at if number not in waits]:
            yield from self._release_arrivals(which, number, at)
        found = self.meetings.complete(which, waits) if waits else None
        if found is None:
            return
        lanes, blocks = found
        passing = {number: each & lanes for number, each in waits.items() if (each & lanes).any()}
        whole = all(self.blocks[number].terminator.count is None for number in passing)
        if whole and (lanes == (self.batch.live & blocks[:, None])).all():
            self.batch.barrier(blocks)
        else:
            self.batch.barrier_of_some(which, lanes)
        self._finish(passing, blocks)
        for number, each in passing.items():
            yield self._unpark(number, each)

    def _release_arrivals(self, which: int, number: int, at: At) -> Iterator[tuple[int, np.ndarray]]:
        """Lanes at an arrival whose warp is there by now, some of it perhaps at other instructions."""
        lanes = at[number] & np.repeat(self.meetings.whole(which, at), WARP, axis=1)
        if not lanes.any():
            return
        by_warp = {other: each.reshape(self.batch.blocks, -1, WARP).any(axis=2) for other, each in at.items()}
        # A warp that arrives at several places counts once: at one where it waits, or else at the last.
        later = [by_warp[other] for other in at if other > number or self.blocks[other].terminator.waits]
        self.meetings.arrive(which, number, lanes, reduce(np.logical_or, later) if later else None)
        at[number] = at[number] & ~lanes
        yield self._unpark(number, lanes)

    def _unpark(self, number: int, lanes: np.ndarray) -> tuple[int, np.ndarray]:
        rest = self.parked.pop(number) & ~lanes
        if rest.any():
            self.parked[number] = rest
        return self.blocks[number].terminator.target, lanes

    def fault_stuck(self) -> NoReturn:
        """Raise Fault: lanes are parked and none can be released."""
        warp_wide = [number for number in self.parked if self._is_warp_wide(number)]
        if warp_wide:
            self._fault_warp_wide(warp_wide[0])
        number = min(self.parked)
        lane = int(np.argmax(self.parked[number]))
        block = lane // self.batch.threads
        others = [
            f"thread {self._thread_at(int(np.argmax(mask[block])))} waits at {self.meetings.where(other)}"
            for other, mask in self.parked.items()
            if other != number and mask[block].any()
        ]
        reason = f"while {' and '.join(others)}" if others else "for threads that never come"
        sentence = f"waits at {self.meetings.where(number)} {reason}"
        self.batch.fault("divergent_barrier", self.meetings.instruction(number), lane, sentence)

    def _fault_warp_wide(self, number: int) -> NoReturn:
        lane = int(np.argmax(self.parked[number]))
        block, thread = divmod(lane, self.batch.threads)
        if self.blocks[number].takes_warpgroup:
            missing = thread // WARPGROUP * WARPGROUP
            missing += int(np.argmin(self.parked[number][block, missing : missing + WARPGROUP]))
            name = f"thread {self._thread_at(missing)}"
        else:
            absent = int(self.awaited[number].flat[lane] & ~warp.ballot(self.parked[number]).flat[lane])
            bit = (absent & -absent).bit_length() - 1
            missing, name = thread // 32 * 32 + bit, f"lane {bit}"
        waits = [self.meetings.where(at) for at, mask in self.parked.items() if mask[block, missing]]
        where = f"waits at {waits[0]}" if waits else "exited"
        instruction = self.meetings.instruction(number)
        verb = "takes" if instruction.mnemonic.startswith(WHOLE_WARP) else "names"
        sentence = f"{instruction.mnemonic} {verb} {name}, which {where} without executing it"
        self.batch.fault("inactive_shuffle", instruction, lane, sentence)

    def _thread_at(self, place: int) -> int:
        return self.batch.launch.thread_at[place]


PATIENCE = 3  # how often lanes may go on in vain, because they may poll several mbarriers in turn
DEADLINES = 64  # how often those may that look at a clock, because they may give up at some time


class Waiting:
    """The held lanes of one batch, by basic block.

    passes: lanes that go on although their phase is not complete; fruitless: how often that happened with nothing
    changed
    """

    def __init__(self, batch: Batch, code: Code):
        self.batch, self.code = batch, code
        self.parked: dict[int, np.ndarray] = {}
        self.passes = np.zeros(batch.shape, bool)
        self.fruitless, self._progress = 0, -1
        self._reads = 0  # of clocks, when lanes last went on in vain

    def admit(self, number: int, mask: np.ndarray | None) -> np.ndarray | None:
        """The lanes of a mask that may enter a block, None if there are none; the others are held."""
        batch, proxy = self.batch, self.batch.asynchronous
        block = self.code.blocks[number]
        mask = batch.under(mask)
        ready = mask & self.passes
        self.passes = self.passes & ~ready
        rest = mask & ~ready
        if rest.any():
            flat = ready.reshape(-1)
            instruction = self.code.instruction(block.first)
            for lanes, _, complete in proxy.waits(instruction, block.wait, rest):
                flat[lanes] = complete
            rest = mask & ~ready
            if rest.any():
                self.parked[number] = self.parked.get(number, False) | rest
        return ready if ready.any() else None

    def release(self) -> list[tuple[int, np.ndarray]]:
        """The lanes whose phase is complete by now, by the block that they enter."""
        out = []
        for number, mask in list(self.parked.items()):
            block = self.code.blocks[number]
            ready = np.zeros(self.batch.shape, bool)
            for lanes, _, complete in self.batch.asynchronous.waits(
                self.code.instruction(block.first), block.wait, mask
            ):
                ready.reshape(-1)[lanes] = complete
            if ready.any():
                rest = mask & ~ready
                del self.parked[number]
                if rest.any():
                    self.parked[number] = rest
                out.append((number, ready))
        return out

    def give_up(self) -> dict[int, np.ndarray]:
        """The lanes held at an mbarrier, to go on in vain; at a cluster's barrier none may. Raises Fault if they have
        done so too often."""
        released = {
            number: mask for number, mask in self.parked.items() if not self.code.blocks[number].wait.of_cluster
        }
        if not released:
            return {}
        progress = self.batch.asynchronous.mbarriers.progress
        self.fruitless = self.fruitless + 1 if progress == self._progress else 0
        self._progress = progress
        clock, patience = self.batch.launch.clock, PATIENCE
        if clock.reads != self._reads:
            patience, self._reads = DEADLINES, clock.reads
            clock.skip(self.fruitless)
        if self.fruitless >= patience:
            self.fault()
        for number, mask in released.items():
            del self.parked[number]
            self.passes = self.passes | mask
        return released

    def fault(self) -> NoReturn:
        """Raise Fault for what the held lanes wait for."""
        proxy = self.batch.asynchronous
        told: dict[int, tuple[int, str]] = {}  # per mbarrier or barrier that is waited for: a lane, and a sentence
        for number in sorted(self.parked):
            block = self.code.blocks[number]
            instruction = self.code.instruction(block.first)
            for lanes, found, _ in proxy.waits(instruction, block.wait, self.parked[number]):
                sentence = f"waits for {self._what(block.wait, int(lanes[0]))} for ever: {proxy.lacks(found)}"
                told.setdefault(id(found), (int(lanes[0]), f"at {instruction.location.in_full()} {sentence}"))
                if len(told) == 1:
                    kind, first = "mbarrier" if found.owed else "deadlock", (instruction, int(lanes[0]), sentence)
        others = [f"; {self.batch.name(lane)} {sentence}" for lane, sentence in list(told.values())[1:4]]
        self.batch.fault(kind, first[0], first[1], first[2] + "".join(others))

    def _what(self, wait: Wait, lane: int) -> str:
        if wait.of_cluster:
            return "its cluster"
        state = int(self.batch.full(self.batch.registers[wait.state]).reshape(-1)[lane])
        return f"parity {state & 1}" if wait.by_parity else f"phase {state}"
