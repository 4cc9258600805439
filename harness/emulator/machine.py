"""The scheduler: which lanes run which basic block next, and what waits for what.

Lanes wait at the entry of basic blocks; the lowest block runs first with all the lanes that wait there, which is where
divergent paths meet again. Lanes at a barrier, or at a warp-wide exchange whose other lanes are elsewhere, are parked
until everything else has run as far as it can; then whoever is complete goes on. If nobody is, the kernel would hang or
be undefined on a GPU, and that is a fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from harness.emulator import warp
from harness.emulator.batch import Batch
from harness.emulator.code import Barrier, Block, Branch, Indexed, Jump, Leave, Trap
from harness.emulator.operation import U32
from harness.emulator.ptx import UNKNOWN, Instruction
from harness.errors import AccessError, LaunchError


class Tally:
    """Executions of each basic block, by warps and lanes, over a launch. budget: instructions a batch may execute"""

    def __init__(self, blocks: Sequence[Block], budget: int):
        self.blocks, self.budget = blocks, budget
        self.warps = [0] * len(blocks)
        self.lanes = [0] * len(blocks)

    def opcodes(self) -> Counter[str]:
        """Warp instructions by mnemonic."""
        total: Counter[str] = Counter()
        for block, warps in zip(self.blocks, self.warps, strict=True):
            if warps:
                for instruction in block.instructions:
                    total[instruction.mnemonic] += warps
        return total

    def lane_instructions(self) -> int:
        """Instructions times lanes."""
        return sum(len(block.instructions) * lanes for block, lanes in zip(self.blocks, self.lanes, strict=True))


class Scheduler:
    """Runs one batch to its end."""

    def __init__(self, batch: Batch, tally: Tally):
        self.batch, self.tally = batch, tally
        self.code = batch.launch.code
        self.waiting: dict[int, np.ndarray | None] = {0: None}
        self.parked: dict[int, np.ndarray] = {}
        self.awaited: dict[int, np.ndarray] = {}  # at a gate: the lanes that each parked lane waits for, as bits
        self.arrived: dict[int, np.ndarray] = {}  # barrier number → (blocks,) threads that arrived without waiting
        self.budget = tally.budget
        self.returns = {
            i
            for i, block in enumerate(self.code.blocks)
            if isinstance(block.ending, Leave) and len(block.instructions) < 2
        }
        self._count_live()

    def _count_live(self) -> None:
        live = self.batch.live
        self.live_lanes = int(np.count_nonzero(live))
        self.live_warps = int(np.count_nonzero(live.reshape(-1, 32).any(axis=1)))

    def run(self) -> None:
        """Run until every lane has exited. Raises AccessError, NotCapable or LaunchError."""
        blocks, batch = self.code.blocks, self.batch
        while self.waiting or self._release():
            number = min(self.waiting)
            mask = self.waiting.pop(number)
            block = blocks[number]
            if not self.waiting and not self.parked:
                mask = None  # all that live are here
            elif block.gate is not None:
                mask = self._admit(number, block.gate, mask)
                if mask is None:
                    continue
            self._count(number, mask)
            self.budget -= len(block.instructions) + 1
            if self.budget < 0:
                self._fault_budget(block, mask)
            for step in block.steps:
                step(batch, mask)
            self._end[type(block.ending)](self, number, block.ending, mask)

    def _count(self, number: int, mask: np.ndarray | None) -> None:
        if mask is None:
            self.tally.lanes[number] += self.live_lanes
            self.tally.warps[number] += self.live_warps
        else:
            self.tally.lanes[number] += int(np.count_nonzero(mask))
            self.tally.warps[number] += int(np.count_nonzero(mask.reshape(-1, 32).any(axis=1)))

    def _arrive(self, number: int, mask: np.ndarray | None) -> None:
        if number in self.returns:
            # Whoever goes to nothing but a `ret` has left, before a shuffle that stands earlier in the code.
            self._count(number, mask)
            self._exit(mask)
            return
        there = self.waiting.get(number)
        self.waiting[number] = mask if there is None else there | mask

    def _lanes(self, mask: np.ndarray | None) -> np.ndarray:
        return self.batch.live if mask is None else mask

    # ---- ends of blocks ---------------------------------------------------------------------------------------------

    def _jump(self, number: int, ending: Jump, mask: np.ndarray | None) -> None:
        self._arrive(ending.target, mask)

    def _branch(self, number: int, ending: Branch, mask: np.ndarray | None) -> None:
        holds = self.batch.registers[ending.predicate]
        if holds.size == 1:
            self._go(ending.target if bool(holds.item()) != ending.negated else ending.otherwise, mask)
            return None
        lanes = self._lanes(mask)
        taken = lanes & (~holds if ending.negated else holds)
        if not taken.any():
            return self._arrive(ending.otherwise, mask)
        rest = lanes & ~taken
        if not rest.any():
            return self._go(ending.target, mask)
        self._arrive(ending.otherwise, rest)
        return self._go(ending.target, taken)

    def _go(self, target: int | None, mask: np.ndarray | None) -> None:
        if target is None:
            self._exit(mask)
        else:
            self._arrive(target, mask)

    def _indexed(self, number: int, ending: Indexed, mask: np.ndarray | None) -> None:
        index = self.batch.full(self.batch.registers[ending.register])
        lanes = self._lanes(mask)
        for value in np.unique(index[lanes]).tolist():
            # PTX leaves an index beyond the list undefined; the compiler never makes one.
            self._arrive(ending.targets[min(value, len(ending.targets) - 1)], lanes & (index == U32(value)))

    def _leave(self, number: int, ending: Leave, mask: np.ndarray | None) -> None:
        self._exit(mask)

    def _exit(self, mask: np.ndarray | None) -> None:
        batch = self.batch
        batch.live = batch.live & ~mask if mask is not None else np.zeros_like(batch.live)
        batch.everyone = False
        self._count_live()

    def _trap(self, number: int, ending: Trap, mask: np.ndarray | None) -> None:
        instruction = self.code.blocks[number].instructions[-1]
        lane = int(np.argmax(self._lanes(mask)))
        kernel = self.code.kernel.name
        raise LaunchError(f"{instruction.location}: the kernel trapped; {kernel}, {self.batch.name(lane)}")

    def _barrier(self, number: int, ending: Barrier, mask: np.ndarray | None) -> None:
        if ending.waits and mask is None and ending.count is None:
            self._complete(ending, self.batch.live, None)
            self._arrive(ending.target, None)
        elif ending.waits:
            there = self.parked.get(number)
            lanes = self._lanes(mask)
            self.parked[number] = lanes if there is None else there | lanes
        else:
            threads = 32 * self._lanes(mask).reshape(self.batch.blocks, -1, 32).any(axis=2).sum(axis=1)
            self.arrived[ending.number] = self.arrived.get(ending.number, 0) + threads
            self._arrive(ending.target, mask)

    _end: dict[type, Callable] = {
        Jump: _jump,
        Branch: _branch,
        Indexed: _indexed,
        Leave: _leave,
        Trap: _trap,
        Barrier: _barrier,
    }

    # ---- barriers and gates -----------------------------------------------------------------------------------------

    def _complete(self, barrier: Barrier, lanes: np.ndarray, blocks: np.ndarray | None) -> None:
        """All threads of a barrier met. blocks: (blocks,) bool, None for all."""
        batch = self.batch
        batch.launch.traffic.barriers += batch.blocks if blocks is None else int(np.count_nonzero(blocks))
        if batch.shadow:
            batch.shadow.block_barrier(blocks)
        if barrier.reduction:
            name, target, predicate = barrier.reduction
            holds = batch.full(batch.registers[predicate])
            counts = np.count_nonzero(holds & lanes, axis=1)[:, None]
            total = np.count_nonzero(lanes, axis=1)[:, None]
            values = {"popc": counts.astype(U32), "and": counts == total, "or": counts > 0}[name]
            batch.registers[target] = np.where(lanes, values, batch.registers[target])

    def _admit(self, number: int, gate: int, mask: np.ndarray) -> np.ndarray | None:
        """Those of the lanes at a gate whose whole group is there; the others are parked.

        A group is the lanes that the mask operand names and that lived when the first of them came: one that exits
        later, without coming, is missed.
        """
        batch = self.batch
        awaited = batch.registers[gate] & warp.ballot(batch.live)
        there = self.parked.pop(number, None)
        if there is not None:
            awaited = np.where(there, self.awaited.pop(number), awaited)
            mask = mask | there
        ready = mask & (awaited & ~warp.ballot(mask) == 0)
        rest = mask & ~ready
        if rest.any():
            self.parked[number], self.awaited[number] = rest, awaited
        return ready if ready.any() else None

    def _release(self) -> bool:
        """Nothing runs: let parked lanes go whose barrier is complete.

        Returns False if no lane is left. Raises AccessError if lanes are left and none may go.
        """
        if not self.parked:
            return False
        for number in sorted(self.parked):
            if number not in self.parked:
                continue
            ending = self.code.blocks[number].ending
            if self._holds_gate(number):
                continue  # lanes that come complete their group as they come
            if ending.count is None:
                self._release_block(number, ending)
            else:
                self._release_counted(ending)
        if not self.waiting:
            self._fault_stuck()
        return True

    def _holds_gate(self, number: int) -> bool:
        """Whether lanes parked at a block wait for their warp to begin it, not at the barrier that ends it."""
        return self.code.blocks[number].gate is not None

    def _unpark(self, number: int, lanes: np.ndarray, target: int) -> None:
        if not lanes.any():
            return
        rest = self.parked.pop(number) & ~lanes
        if rest.any():
            self.parked[number] = rest
        self._arrive(target, lanes)

    def _release_block(self, number: int, barrier: Barrier) -> None:
        mask = self.parked[number]
        there = np.count_nonzero(mask, axis=1)
        complete = (there > 0) & (there == np.count_nonzero(self.batch.live, axis=1))
        if complete.any():
            lanes = mask & complete[:, None]
            self._complete(barrier, lanes, complete)
            self._unpark(number, lanes, barrier.target)

    def _release_counted(self, barrier: Barrier) -> None:
        """A barrier of so many threads: a warp counts once all its live lanes wait, wherever in the code they do."""
        batch = self.batch
        places = [
            number
            for number in self.parked
            if isinstance(ending := self.code.blocks[number].ending, Barrier)
            and ending.number == barrier.number
            and not self._holds_gate(number)
        ]
        here = np.zeros(batch.shape, bool)
        for number in places:
            here |= self.parked[number]
        by_warp = (batch.blocks, -1, 32)
        whole = (here == batch.live).reshape(by_warp).all(axis=2) & here.reshape(by_warp).any(axis=2)
        arrived = self.arrived.get(barrier.number, np.zeros(batch.blocks, np.int64))
        wanted = np.where(here, batch.full(batch.registers[barrier.count]), 0).max(axis=1)
        complete = (wanted > 0) & (32 * whole.sum(axis=1) + arrived >= wanted)
        if not complete.any():
            return
        lanes = here & np.repeat(whole, 32, axis=1) & complete[:, None]
        self.arrived[barrier.number] = np.where(complete, 0, arrived)
        self._complete(barrier, lanes, complete)
        for number in places:
            ending = self.code.blocks[number].ending
            self._unpark(number, lanes & self.parked[number], ending.target)

    # ---- faults -----------------------------------------------------------------------------------------------------

    def _instruction(self, number: int) -> Instruction:
        """What lanes parked at a block wait at."""
        instructions = self.code.blocks[number].instructions
        return instructions[0] if self._holds_gate(number) else instructions[-1]

    def _fault_stuck(self) -> None:
        gates = [number for number in self.parked if self._holds_gate(number)]
        if gates:
            self._fault_gate(gates[0])
        number = min(self.parked)
        lane = int(np.argmax(self.parked[number]))
        block = lane // self.batch.threads
        others = [
            f"thread {int(np.argmax(mask[block]))} waits at {self._place(other)}"
            for other, mask in self.parked.items()
            if other != number and mask[block].any()
        ]
        elsewhere = f"while {' and '.join(others)}" if others else "for threads that never come"
        self.batch.fault(
            "divergent_barrier", self._instruction(number), lane, f"waits at {self._place(number)} {elsewhere}"
        )

    def _place(self, number: int) -> str:
        instruction = self._instruction(number)
        return f"{instruction.mnemonic} at {instruction.location}"

    def _fault_gate(self, number: int) -> None:
        batch = self.batch
        lane = int(np.argmax(self.parked[number]))
        absent = int(self.awaited[number].flat[lane] & ~warp.ballot(self.parked[number]).flat[lane])
        missing = (absent & -absent).bit_length() - 1
        other = lane // 32 * 32 + missing
        places = [self._place(at) for at, mask in self.parked.items() if mask.flat[other]]
        where = f"waits at {places[0]}" if places else "exited"
        instruction = self._instruction(number)
        sentence = f"{instruction.mnemonic} names lane {missing}, which {where} without executing it"
        batch.fault("inactive_shuffle", instruction, lane, sentence)

    def _fault_budget(self, block: Block, mask: np.ndarray | None) -> None:
        sentence = (
            f"no end after {self.tally.budget} instructions: an endless loop, or a wait for a block that cannot run"
        )
        if not block.instructions:
            raise AccessError("deadlock", str(UNKNOWN), sentence)
        self.batch.fault("deadlock", block.instructions[0], int(np.argmax(self._lanes(mask))), sentence)
