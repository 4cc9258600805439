"""Lanes that wait for a phase of an mbarrier, held at the entry of their basic block until it is complete.

Once nothing else can run, they go on with a phase that is not complete, as `try_wait` may, because what they do next
may complete it. If they come back with nothing changed, the kernel hangs, which is a fault.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from ptx_emulator.machine.basic_blocks import Code
from ptx_emulator.machine.batch import Batch
from ptx_emulator.machine.launch_state import Wait

PATIENCE = 3  # how often lanes may go on in vain, because they may poll several mbarriers in turn


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
        """All held lanes, to go on in vain. Raises Fault if they have done so too often."""
        if not self.parked:
            return {}
        progress = self.batch.asynchronous.mbarriers.progress
        self.fruitless = self.fruitless + 1 if progress == self._progress else 0
        self._progress = progress
        if self.fruitless >= PATIENCE:
            self._fault()
        released, self.parked = self.parked, {}
        for mask in released.values():
            self.passes = self.passes | mask
        return released

    def _fault(self) -> NoReturn:
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
