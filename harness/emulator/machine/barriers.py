"""Barriers of a block, and warp-wide instructions that some of their lanes have yet to reach.

Lanes that wait are parked until nothing else can run, and released when all participants are there. If none can be
released, the kernel would hang or be undefined on a GPU, which is a fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import NoReturn

import numpy as np

from harness.emulator.arithmetic import warp
from harness.emulator.machine.basic_blocks import WHOLE_WARP, Barrier, Code
from harness.emulator.machine.batch import Batch
from harness.emulator.ptx.syntax import Instruction
from harness.emulator.registers import U32, WARP, WARPGROUP

BARRIERS = 16  # barriers of a block (PTX ISA, `barrier`)


class Barriers:
    """The parked lanes of one batch, by basic block: one begins with a warp-wide instruction, or ends with a barrier.

    apart: whether lanes run ahead of others, so that these may exit while those wait
    awaited: at a warp-wide instruction, the lanes that each parked lane waits for, as bits
    arrived: barrier number → (blocks,) threads of `bar.arrive`
    """

    def __init__(self, batch: Batch, code: Code, apart: bool):
        self.batch, self.code, self.blocks, self.apart = batch, code, code.blocks, apart
        self.parked: dict[int, np.ndarray] = {}
        self.awaited: dict[int, np.ndarray] = {}
        self.arrived: dict[int, np.ndarray] = {}

    # ---- warp-wide instructions -------------------------------------------------------------------------------------

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

    # ---- barriers ---------------------------------------------------------------------------------------------------

    def park(self, number: int, lanes: np.ndarray) -> None:
        """Park lanes at the barrier that ends a block."""
        self._require_valid(number, lanes)
        others = self.parked.get(number)
        self.parked[number] = lanes if others is None else others | lanes

    def arrive(self, number: int, lanes: np.ndarray) -> None:
        """`bar.arrive`, which ends a block: count lanes at a barrier without parking them."""
        self._require_valid(number, lanes)
        barrier = self.blocks[number].terminator
        numbers = self.batch.full(self.batch.registers[barrier.number])
        for which in np.unique(numbers[lanes]).tolist():
            arriving = lanes & (numbers == which)
            warps = arriving.reshape(self.batch.blocks, -1, 32).any(axis=2)
            self.arrived[which] = self.arrived.get(which, 0) + 32 * warps.sum(axis=1)
            self.batch.arrive(which, arriving)

    def _require_valid(self, number: int, lanes: np.ndarray) -> None:
        """Raise Fault for a barrier, or a count of threads, that no GPU has."""
        barrier = self.blocks[number].terminator
        if barrier.count is None:
            return
        names, counts = (self.batch.full(self.batch.registers[slot]) for slot in (barrier.number, barrier.count))
        wrong = lanes & ((names >= BARRIERS) | (counts % WARP != 0))
        if wrong.any():
            lane = int(np.argmax(wrong))
            name, count = int(names.flat[lane]), int(counts.flat[lane])
            sentence = f"meets at barrier {name} with {count} threads: a block has barriers 0 to {BARRIERS - 1}, "
            sentence += f"for a multiple of {WARP} threads"
            self.batch.fault("divergent_barrier", self._instruction(number), lane, sentence)

    def _require_no_more(self, meeting: np.ndarray, wanted: np.ndarray, here: np.ndarray, which: int) -> None:
        """Raise Fault where more threads than its count meet at a barrier at once: any of them might pass first.

        meeting, wanted: (blocks,) threads; here: lanes that wait
        """
        more = (meeting > wanted) & here.any(axis=1)
        if more.any():
            lane = int(np.argmax(here & more[:, None]))
            block = lane // self.batch.threads
            sentence = f"meets at barrier {which} with {int(meeting[block])} threads at once, and it is for "
            sentence += f"{int(wanted[block])}: which of them pass first is left to chance; give each group a barrier"
            number = next(number for number, lanes in self.parked.items() if lanes.flat[lane])
            self.batch.fault("divergent_barrier", self._instruction(number), lane, sentence)

    def complete(self, barrier: Barrier, lanes: np.ndarray, blocks: np.ndarray | None) -> None:
        """Complete a barrier of the whole block, whose threads all arrived. blocks: (blocks,) bool, None for all"""
        self.batch.barrier(blocks)
        self._finish(barrier, lanes, blocks)

    def _finish(self, barrier: Barrier, lanes: np.ndarray, blocks: np.ndarray | None) -> None:
        batch = self.batch
        batch.launch.traffic.barriers += batch.blocks if blocks is None else int(np.count_nonzero(blocks))
        if barrier.reduction:
            name, target, predicate = barrier.reduction
            holds = batch.full(batch.registers[predicate])
            counts = np.count_nonzero(holds & lanes, axis=1)[:, None]
            total = np.count_nonzero(lanes, axis=1)[:, None]
            values = {"popc": counts.astype(U32), "and": counts == total, "or": counts > 0}[name]
            batch.registers.put(target, values, lanes)

    def release(self) -> Iterator[tuple[int, np.ndarray]]:
        """Release the lanes whose barrier is complete: the basic block they enter, and the lanes."""
        for number in sorted(self.parked):
            if number not in self.parked or self._is_warp_wide(number):
                continue
            barrier = self.blocks[number].terminator
            if barrier.count is None:
                yield from self._release_whole(number, barrier)
                continue
            for which in np.unique(self.batch.full(self.batch.registers[barrier.number])[self.parked[number]]).tolist():
                yield from self._release_counted(barrier, which)

    def _release_whole(self, number: int, barrier: Barrier) -> Iterator[tuple[int, np.ndarray]]:
        """A barrier of the whole block: all live threads wait at this instruction."""
        mask = self.parked[number]
        arrived = np.count_nonzero(mask, axis=1)
        blocks = (arrived > 0) & (arrived == np.count_nonzero(self.batch.live, axis=1))
        if blocks.any():
            lanes = mask & blocks[:, None]
            self.complete(barrier, lanes, blocks)
            yield self._unpark(number, lanes)

    def _release_counted(self, barrier: Barrier, which: int) -> Iterator[tuple[int, np.ndarray]]:
        """A barrier with a thread count: a warp counts once all its live lanes wait, at any instruction."""
        batch = self.batch
        waiting_at = {number: self._waiting(number, which) for number in self.parked if not self._is_warp_wide(number)}
        here = reduce(np.logical_or, waiting_at.values())
        waiting, live = (np.packbits(lanes, axis=1).view(U32) for lanes in (here, batch.live))
        whole = (waiting == live) & (waiting != 0)
        arrived = self.arrived.get(which, 0)
        wanted = (batch.registers[barrier.count] * here).max(axis=1)
        meeting = 32 * np.count_nonzero(whole, axis=1) + arrived
        self._require_no_more(meeting, wanted, here, which)
        blocks = (wanted > 0) & (meeting >= wanted)
        blocks &= whole.any(axis=1)
        if not blocks.any():
            return
        lanes = here & np.repeat(whole, 32, axis=1) & blocks[:, None]
        self.arrived[which] = np.where(blocks, 0, arrived)
        batch.barrier_of_some(which, lanes)
        self._finish(barrier, lanes, blocks)
        for number, waiting in waiting_at.items():
            chosen = lanes & waiting
            if chosen.any():
                yield self._unpark(number, chosen)

    def _waiting(self, number: int, which: int) -> np.ndarray:
        """Lanes parked at the end of a block for barrier number `which`."""
        numbers = self.batch.registers[self.blocks[number].terminator.number]
        return self.parked[number] & (numbers == which)

    def _unpark(self, number: int, lanes: np.ndarray) -> tuple[int, np.ndarray]:
        rest = self.parked.pop(number) & ~lanes
        if rest.any():
            self.parked[number] = rest
        return self.blocks[number].terminator.target, lanes

    # ---- faults -----------------------------------------------------------------------------------------------------

    def fault_stuck(self) -> NoReturn:
        """Raise Fault: lanes are parked and none can be released."""
        warp_wide = [number for number in self.parked if self._is_warp_wide(number)]
        if warp_wide:
            self._fault_warp_wide(warp_wide[0])
        number = min(self.parked)
        lane = int(np.argmax(self.parked[number]))
        block = lane // self.batch.threads
        others = [
            f"thread {self._thread_at(int(np.argmax(mask[block])))} waits at {self._where(other)}"
            for other, mask in self.parked.items()
            if other != number and mask[block].any()
        ]
        reason = f"while {' and '.join(others)}" if others else "for threads that never come"
        sentence = f"waits at {self._where(number)} {reason}"
        self.batch.fault("divergent_barrier", self._instruction(number), lane, sentence)

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
        waits = [self._where(at) for at, mask in self.parked.items() if mask[block, missing]]
        where = f"waits at {waits[0]}" if waits else "exited"
        instruction = self._instruction(number)
        verb = "takes" if instruction.mnemonic.startswith(WHOLE_WARP) else "names"
        sentence = f"{instruction.mnemonic} {verb} {name}, which {where} without executing it"
        self.batch.fault("inactive_shuffle", instruction, lane, sentence)

    def _instruction(self, number: int) -> Instruction:
        """The instruction at which lanes parked at a block wait."""
        block = self.blocks[number]
        return self.code.instruction(block.first + (0 if self._is_warp_wide(number) else block.count - 1))

    def _thread_at(self, place: int) -> int:
        return self.batch.launch.thread_at[place]

    def _where(self, number: int) -> str:
        instruction = self._instruction(number)
        return f"{instruction.mnemonic} at {instruction.location}"
