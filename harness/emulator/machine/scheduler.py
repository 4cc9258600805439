"""Run the basic blocks of a kernel: which lanes run which block next.

Lanes are ready at the entry of a basic block. The lowest block runs first, with all lanes that are ready there, so that
divergent paths converge. Lanes at a barrier, or at a warp-wide instruction that other lanes have yet to reach, are
parked (see `barriers`). In a drawn order, some are held back while others run ahead (see `run_ahead`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from harness.emulator.errors import Fault, LaunchError
from harness.emulator.machine.barriers import Barriers
from harness.emulator.machine.basic_blocks import (
    Barrier,
    Block,
    Branch,
    Code,
    Exit,
    IndexedBranch,
    Jump,
    Segment,
    Trap,
)
from harness.emulator.machine.batch import Batch
from harness.emulator.machine.fast_path import FastPath, NumpyPath
from harness.emulator.machine.run_ahead import RunAhead
from harness.emulator.machine.waiting import Waiting
from harness.emulator.ptx.syntax import UNKNOWN
from harness.emulator.registers import U32

# What lanes may cost before others get a turn: after a barrier, and while others are held back.
PATIENCE, AHEAD = 1 << 16, 1 << 14


class Tally:
    """Executions of each basic block by warps and lanes.

    budget: what a batch may cost
    """

    def __init__(self, code: Code, budget: int):
        self.code, self.budget = code, budget
        self.warps = [0] * len(code.blocks)
        self.lanes = [0] * len(code.blocks)

    def opcodes(self) -> Counter[str]:
        """Warp instructions by mnemonic."""
        names, counts = self.code.mnemonics
        total = np.array(self.warps, np.int64) @ counts
        return Counter({name: count for name, count in zip(names, total.tolist(), strict=True) if count})

    def lane_instructions(self) -> int:
        return sum(block.count * lanes for block, lanes in zip(self.code.blocks, self.lanes, strict=True) if lanes)


class Scheduler:
    """Runs one batch to its end.

    ready, held: basic block → the lanes that may enter it now, None for all live ones, and the lanes that enter it
    later
    """

    def __init__(self, batch: Batch, tally: Tally, fast: FastPath | NumpyPath, ahead: RunAhead):
        self.batch, self.tally, self.fast, self.ahead = batch, tally, fast, ahead
        self.code, self.blocks = fast.code, fast.code.blocks
        self.costs, self.exits = tally.code.costs, tally.code.bare_exits
        self.ready: dict[int, np.ndarray | None] = {}
        self.held: dict[int, np.ndarray] = {}
        self.turn = PATIENCE
        self.barriers, self.waiting = Barriers(batch, self.code, ahead.draws), Waiting(batch, self.code)
        self.budget = tally.budget
        self._counted: tuple[np.ndarray | None, int, int] = (None, 0, 0)
        self._count_live()
        self._enter_together(0, None)

    def _count_live(self) -> None:
        live = self.batch.live
        self.live_lanes = int(np.count_nonzero(live))
        self.live_warps = int(np.count_nonzero(live.reshape(-1, 32).any(axis=1)))

    def run(self) -> None:
        """Run until every lane has exited. Raises Fault, NotEmulated or LaunchError."""
        batch = self.batch
        while self.ready or self._release():
            number = min(self.ready) if self.turn > 0 else next(iter(self.ready))
            mask = self.ready.pop(number)
            block = self.blocks[number]
            if not self.ready and not self.held and not self.barriers.parked and not self.waiting.parked:
                mask = None  # all live lanes are here
            elif block.membermask is not None:
                mask = self.barriers.converge(number, block.membermask, mask)
                if mask is None:
                    continue
            if block.wait is not None:
                mask = self.waiting.admit(number, mask)
                if mask is None:
                    continue
            self._count(number, mask)
            self.budget -= self.costs[number]
            if self.budget < 0:
                self._fault_budget(block, mask)
            for step in block.steps:
                if isinstance(step, Segment):
                    self.fast.run(step, mask)
                else:
                    self.code.step(step)(batch, mask)
            self._terminators[type(block.terminator)](self, number, block.terminator, mask)
            self.turn -= self.costs[number]
            if self.turn <= 0:
                self._take_turns()

    def _count(self, number: int, mask: np.ndarray | None) -> None:
        if mask is None:
            lanes, warps = self.live_lanes, self.live_warps
        else:
            if mask is not self._counted[0]:  # a mask often goes from block to block
                self._counted = mask, *self.fast.count(mask)
            _, lanes, warps = self._counted
        self.tally.lanes[number] += lanes
        self.tally.warps[number] += warps

    def _enter(self, number: int, mask: np.ndarray | None) -> None:
        if number in self.exits:
            # Lanes that jump to a bare `ret` exit at once; otherwise a shuffle earlier in the code would wait for them.
            self._count(number, mask)
            self._exit(mask)
            return
        others = self.ready.get(number)
        self.ready[number] = mask if others is None else others | mask

    def _enter_together(self, number: int, mask: np.ndarray | None) -> None:
        """Enter a basic block after a barrier, or at the start: here some lanes may run ahead."""
        held = None if self.held or number in self.exits else self.ahead.held(number, self.batch.under(mask))
        if held is None:
            self._enter(number, mask)
            return
        self._enter(number, self.batch.under(mask) & ~held)
        self.held, self.turn = {number: held}, AHEAD

    def _take_turns(self) -> None:
        """Make held and released lanes ready. `run` then prefers what is ready longest: others may wait for it."""
        for number, lanes in [*self.held.items(), *self.barriers.release(), *self.waiting.release()]:
            self._enter(number, lanes)
        self.held = {}
        if self.turn < -AHEAD:
            self.turn = PATIENCE

    # ---- terminators ------------------------------------------------------------------------------------------------

    def _jump(self, number: int, terminator: Jump, mask: np.ndarray | None) -> None:
        self._enter(terminator.target, mask)

    def _branch(self, number: int, terminator: Branch, mask: np.ndarray | None) -> None:
        if terminator.predicate < 0:
            holds = bool(self.batch.registers[terminator.predicate].item())
            taken = holds != terminator.negated
            return self._enter_or_exit(terminator.target if taken else terminator.otherwise, mask)
        taken, rest = self.fast.parted(terminator, mask)
        if taken is None:
            return self._enter(terminator.otherwise, mask)
        if rest is None:
            return self._enter_or_exit(terminator.target, mask)
        self._enter(terminator.otherwise, rest)
        return self._enter_or_exit(terminator.target, taken)

    def _enter_or_exit(self, target: int | None, mask: np.ndarray | None) -> None:
        if target is None:
            self._exit(mask)
        else:
            self._enter(target, mask)

    def _indexed(self, number: int, terminator: IndexedBranch, mask: np.ndarray | None) -> None:
        index = self.batch.full(self.batch.registers[terminator.register])
        lanes = self.batch.under(mask)
        for value in np.unique(index[lanes]).tolist():
            # An index beyond the list is undefined in PTX.
            self._enter(terminator.targets[min(value, len(terminator.targets) - 1)], lanes & (index == U32(value)))

    def _leave(self, number: int, terminator: Exit, mask: np.ndarray | None) -> None:
        self._exit(mask)

    def _exit(self, mask: np.ndarray | None) -> None:
        batch = self.batch
        if batch.asynchronous:
            batch.asynchronous.exit(batch.under(mask).reshape(-1))
        if batch.has_tensor_memory:
            batch.tensor_memory.exit(batch.under(mask).reshape(-1))
        batch.live = batch.live & ~mask if mask is not None else np.zeros_like(batch.live)
        batch.all_live = False
        for barrier in batch.asynchronous.cluster_barriers.values() if batch.asynchronous else ():
            barrier.advance()
        self._count_live()

    def _trap(self, number: int, terminator: Trap, mask: np.ndarray | None) -> None:
        block = self.blocks[number]
        instruction = self.code.instruction(block.first + block.count - 1)
        lane = int(np.argmax(self.batch.under(mask)))
        kernel = self.batch.launch.resources.kernel.name
        raise LaunchError(f"{instruction.location}: the kernel trapped; {kernel}, {self.batch.name(lane)}")

    def _barrier(self, number: int, terminator: Barrier, mask: np.ndarray | None) -> None:
        if terminator.waits and mask is None and terminator.count is None:
            self.barriers.complete(terminator, self.batch.live, None)
            self.turn = PATIENCE
            self._enter_together(terminator.target, None)
        elif terminator.waits:
            self.barriers.park(number, self.batch.under(mask))
        else:
            self.barriers.arrive(number, self.batch.under(mask))
            self._enter(terminator.target, mask)

    def _release(self) -> bool:
        """Once nothing else can run, release complete barriers and waits, or held lanes. False if no lane is left."""
        while not self.ready:
            if not self.held and not self.barriers.parked and not self.waiting.parked:
                return False
            waits = self.held and not self.ahead.past_barriers
            released = [] if waits else list(self.barriers.release())
            for target, lanes in released:
                self._enter_together(target, lanes)
            woken = [] if waits else self.waiting.release()
            for target, lanes in woken:
                self._enter(target, lanes)
            if not released and not woken:
                self.ready, self.held = self.held or self.waiting.give_up() or self._after_exits(), {}
            self.turn = AHEAD if self.held else PATIENCE
        return True

    def _after_exits(self) -> dict[int, np.ndarray]:
        """Lanes at a warp-wide instruction whose missing lanes have exited. Raises Fault if there are none."""
        found = dict(self.barriers.unpark_after_exits()) if self.barriers.apart else {}
        if not found:
            self.barriers.fault_stuck()
        return found

    _terminators: dict[type, Callable] = {
        Jump: _jump,
        Branch: _branch,
        IndexedBranch: _indexed,
        Exit: _leave,
        Trap: _trap,
        Barrier: _barrier,
    }

    def _fault_budget(self, block: Block, mask: np.ndarray | None) -> None:
        reason = "an endless loop, a wait for a block that cannot run, or more work than the emulator takes on"
        sentence = f"no end after {self.tally.budget} instructions: {reason}"
        if not block.count:
            raise Fault("deadlock", str(UNKNOWN), sentence)
        self.batch.fault(
            "deadlock", self.code.instruction(block.first), int(np.argmax(self.batch.under(mask))), sentence
        )
