"""Run the basic blocks of a kernel: which lanes run which block next.

Lanes are ready at the entry of a basic block. The lowest block runs first, with all lanes that are ready there, so that
divergent paths converge. Lanes at a barrier, or at a warp-wide instruction that other lanes have yet to reach, are
parked (see `barriers`). In a drawn order, some are held back while others run ahead (see `schedule`).

A batch whose lanes only look at memory that nobody changes is suspended, so that other batches can run (see
`residents`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import NoReturn

import numpy as np

from ptx_emulator.errors import Fault, LaunchError
from ptx_emulator.machine.barriers import Barriers, Waiting
from ptx_emulator.machine.basic_blocks import (
    CHANGES,
    POLLS,
    STORES,
    Barrier,
    Block,
    Branch,
    Code,
    Exit,
    IndexedBranch,
    Jump,
    Segment,
    Trap,
    is_poll,
)
from ptx_emulator.machine.batch import Batch
from ptx_emulator.machine.fast_path import FastPath, NumpyPath
from ptx_emulator.ptx.syntax import UNKNOWN
from ptx_emulator.registers import U32
from ptx_emulator.schedule import RunAhead

# What lanes may cost before others get a turn: after a barrier, and while others are held back.
PATIENCE, AHEAD = 1 << 16, 1 << 14
# How many polls in vain until others of the batch get a turn; until it is first looked at whether polls are all that
# goes on; and until other batches get a turn though lanes of this one are left that do not poll. Behind the last number
# of polls, in vain or not, others get a turn in any case.
TURN, FIRST_LOOK, SPINS, MOST_POLLS = 8, 4, 32, 1 << 9
COMPARED = 4  # how many of the next polls at one place are compared with a look


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
        self.roles = self.code.roles
        self._polls, self._looks = 0, 0  # polls in this turn, and since anything changed
        self._look: tuple[int, bytes] | None = None  # where a lane polled, and `state`
        self._compared = 0
        self._memory = b""  # a digest of shared and local memory, until a store
        self._changes, self._budget_then = -1, self.budget  # of the launch when a lane last polled, and the budget
        self._refunded = 0
        batch.spent = lambda: self._refunded + tally.budget - self.budget
        self._counted: tuple[np.ndarray | None, int, int] = (None, 0, 0)
        self._count_live()
        self._enter_together(0, None)

    def _count_live(self) -> None:
        live = self.batch.live
        self.live_lanes = int(np.count_nonzero(live))
        self.live_warps = int(np.count_nonzero(live.reshape(-1, 32).any(axis=1)))

    def run(self) -> bool:
        """Run until every lane has exited, or until those left only wait for other batches: then False.

        Raises Fault, NotEmulated or LaunchError.
        """
        batch, launch = self.batch, self.batch.launch
        self.turn, self._polls, self._looks, self._look = PATIENCE, 0, 0, None
        while self.ready or self._release():
            number = min(self.ready) if self.turn > 0 else next(iter(self.ready))
            role = self.roles[number]
            if role:
                if role & POLLS and self._polls_enough(number):
                    return False
                if role & CHANGES:
                    launch.changes += 1
                if role & STORES:
                    self._memory = b""
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
        return True

    def _polls_enough(self, number: int) -> bool:
        """Note a poll in a block; whether it is time for other batches."""
        launch = self.batch.launch
        if launch.changes != self._changes:
            self._changes, self._looks, self._budget_then, self._look = launch.changes, 0, self.budget, None
        self._looks += 1
        if self._looks % TURN == 0:
            self.turn = min(self.turn, 0)
        self._polls += 1
        if self._polls < MOST_POLLS and not self._spins(number):
            return False
        for held, lanes in self.held.items():
            self._enter(held, lanes)
        self.held = {}
        return True

    def _spins(self, number: int) -> bool:
        """Whether lanes that poll are where they have been before, all the same, and no others can run."""
        if self._looks >= FIRST_LOOK and self._looks & (self._looks - 1) == 0:
            self._look, self._compared = (number, self.state()), 0
        elif self._look and self._look[0] == number and self._compared < COMPARED:
            self._compared += 1
            if self._look[1] == self.state():
                if len(self.ready) == 1 and not self.held or self._looks >= SPINS:
                    return True
                self.turn, self._look = min(self.turn, 0), None
        return False

    def refund(self) -> int:
        """Return what polls cost since anything changed, and take it from the account of this batch."""
        spent, self.budget = self._budget_then - self.budget, self._budget_then
        self._refunded += spent
        return spent

    def state(self) -> bytes:
        """A digest of all that decides what the lanes do next, apart from global memory."""
        batch, digest = self.batch, hashlib.blake2b(digest_size=16)
        for lanes in (self.ready, self.barriers.parked, self.waiting.parked):
            for number in sorted(lanes):
                digest.update(number.to_bytes(4, "little") + np.packbits(batch.under(lanes[number])).tobytes())
        for array in (batch.live, batch.registers.narrow, batch.registers.wide):
            digest.update(np.ascontiguousarray(array))
        if not self._memory:
            memory = hashlib.blake2b(batch.addressing.shared.data, digest_size=16)
            memory.update(batch.addressing.local.data)
            self._memory = memory.digest()
        digest.update(self._memory)
        return digest.digest()

    def fault_waits(self, why: str) -> NoReturn:
        """Raise Fault at a poll that would go on for ever."""
        number = next((each for each in self.ready if self.roles[each] & POLLS), min(self.ready))
        block = self.blocks[number]
        every = (self.code.instruction(block.first + i) for i in range(block.count))
        instruction = next((each for each in every if is_poll(each.mnemonic)), self.code.instruction(block.first))
        self.batch.fault("deadlock", instruction, int(np.argmax(self.batch.under(self.ready[number]))), why)

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

    def _exit(self, mask: np.ndarray | None) -> None:
        batch = self.batch
        batch.launch.changes += 1
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
        launch, why = self.batch.launch, ""
        if "%envreg1" in launch.resources.specials and not launch.workspace:
            why = ": it synchronises its grid, as by grid.sync(), and its launch is not cooperative"
        raise LaunchError(f"{instruction.location}: the kernel trapped{why}; {self.batch.whole_name(lane)}")

    def _barrier(self, number: int, terminator: Barrier, mask: np.ndarray | None) -> None:
        whole = mask is None and terminator.count is None and terminator.number < 0
        if terminator.waits and whole and not self.barriers.meetings.arrivals:
            self.barriers.complete(number, terminator, self.batch.live, None)
            self.turn = PATIENCE
            self._enter_together(terminator.target, None)
        elif terminator.waits:
            self.barriers.park(number, self.batch.under(mask))
        else:
            lanes = self.barriers.arrive(number, self.batch.under(mask))
            if lanes is not None:
                self._enter(terminator.target, lanes)

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
        if not found and self.waiting.parked:
            self.waiting.fault()
        if not found:
            self.barriers.fault_stuck()
        return found

    _terminators: dict[type, Callable] = {
        Jump: lambda self, _, jump, mask: self._enter(jump.target, mask),
        Exit: lambda self, _, end, mask: self._exit(mask),
        **{Branch: _branch, IndexedBranch: _indexed, Trap: _trap, Barrier: _barrier},
    }

    def _fault_budget(self, block: Block, mask: np.ndarray | None) -> None:
        reason = "an endless loop, a wait for a block that cannot run, or more work than the emulator takes on"
        sentence = f"no end after {self.tally.budget} instructions: {reason}"
        if not block.count:
            raise Fault("deadlock", str(UNKNOWN), sentence)
        lane = int(np.argmax(self.batch.under(mask)))
        self.batch.fault("deadlock", self.code.instruction(block.first), lane, sentence)
