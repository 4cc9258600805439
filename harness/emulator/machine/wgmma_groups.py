"""The `wgmma`s of a batch in flight, by group, and the registers that they use.

The product is computed and stored when the instruction starts. Until `wgmma.wait_group`, a warpgroup must not read or
write the accumulators, nor write the fragments of A. (PTX forbids reading those, too, but hardware allows it, and
compilers give equal values one register.) Registers written by other instructions need a `wgmma.fence` before a `wgmma`
uses them, and so does the first `wgmma`. A compiler may sink arithmetic below a fence that follows it in the source;
`asm volatile("" : "+f"(d))` before the fence prevents that. A `mov` counts as the instruction whose result it copies,
and of a constant not at all, because compilers always sink those.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.emulator.machine.lanes import Lanes
from harness.emulator.ptx.syntax import Instruction, Vector
from harness.emulator.races.wgmma_reads import OperandRead, WgmmaShadow
from harness.emulator.registers import WARPGROUP


@dataclass
class _Wgmma:
    """One `wgmma`. group: (blocks, warpgroups) int; pending: bool, the warpgroups that have not waited"""

    instruction: Instruction
    accumulators: frozenset[int]
    fragments: frozenset[int]
    reads: list[OperandRead]
    group: np.ndarray
    pending: np.ndarray


class WgmmaGroups:
    """All arrays are (blocks, warpgroups).

    open: number of each warpgroup's open group; done: groups below were waited for
    fenced: bool, whether it executed a `wgmma.fence`
    written: register → the instruction that wrote it since the last fence, and which warpgroups executed that
    """

    def __init__(self, lanes: Lanes, shadow: WgmmaShadow):
        self.lanes, self.shadow = lanes, shadow
        shape = (lanes.blocks, lanes.threads // WARPGROUP)
        self.open, self.done = np.zeros(shape, int), np.zeros(shape, int)
        self.fenced, self.all = np.zeros(shape, bool), np.ones(shape, bool)
        self.in_flight: list[_Wgmma] = []
        self.written: dict[int, tuple[Instruction, np.ndarray]] = {}

    def start(
        self,
        instruction: Instruction,
        accumulators: frozenset[int],
        fragments: frozenset[int],
        reads: list[OperandRead],
        groups: np.ndarray,
    ) -> None:
        """Start a `wgmma`. Raises Fault if its registers are in use, or not fenced."""
        self._require(self.fenced | ~groups, instruction, "comes before any wgmma.fence of its warpgroup")
        for slot in self.written.keys() & (accumulators | fragments):
            earlier, wrote = self.written[slot]
            what = "an accumulator" if slot in accumulators else "a fragment of A"
            problem = f"uses {what} written at {earlier.location} with no wgmma.fence between"
            self._require(~(wrote & groups), instruction, problem)
        for wgmma in self.in_flight:
            if not wgmma.accumulators.isdisjoint(fragments):
                self._require_complete(wgmma, instruction, "reads an accumulator", groups)
            if not wgmma.fragments.isdisjoint(accumulators):
                self._require_complete(wgmma, instruction, "overwrites a fragment of A", groups)
        self.in_flight.append(_Wgmma(instruction, accumulators, fragments, reads, self.open.copy(), groups.copy()))

    def use(
        self, instruction: Instruction, reads: frozenset[int], writes: frozenset[int], mask: np.ndarray | None
    ) -> None:
        """Check another instruction. Raises Fault if a `wgmma` in flight uses its registers."""
        if not writes and not self.in_flight:
            return
        groups = self._groups(mask)
        for wgmma in self.in_flight:
            if not wgmma.accumulators.isdisjoint(reads):
                self._require_complete(wgmma, instruction, "reads an accumulator", groups)
            if not wgmma.accumulators.isdisjoint(writes):
                self._require_complete(wgmma, instruction, "overwrites an accumulator", groups)
            if not wgmma.fragments.isdisjoint(writes):
                self._require_complete(wgmma, instruction, "overwrites a fragment of A", groups)
        inherited = self._inherited(instruction, reads)
        for slot in writes:
            _, before = self.written.get(slot, (None, False))
            writer, wrote = inherited or (instruction, True)
            self.written[slot] = writer, before & ~groups | wrote & groups

    def _inherited(self, instruction: Instruction, reads: frozenset[int]) -> tuple[Instruction, np.ndarray] | None:
        """For a move, the instruction that wrote what it copies; its warpgroups are none if that is unknown."""
        if not instruction.mnemonic.startswith("mov.") or any(isinstance(x, Vector) for x in instruction.operands):
            return None
        return next(
            (self.written[slot] for slot in reads & self.written.keys()), (instruction, np.zeros_like(self.fenced))
        )

    def fence(self, groups: np.ndarray) -> None:
        """`wgmma.fence`."""
        self.fenced |= groups
        self.written = {
            slot: (writer, left) for slot, (writer, wrote) in self.written.items() if (left := wrote & ~groups).any()
        }

    def commit(self, groups: np.ndarray) -> None:
        """`wgmma.commit_group`."""
        self.open += groups

    def wait(self, keep: int, groups: np.ndarray) -> None:
        """`wgmma.wait_group`, for all but the `keep` latest groups."""
        self.done = np.where(groups, np.maximum(self.done, self.open - keep), self.done)
        for wgmma in self.in_flight:
            completed = wgmma.pending & (wgmma.group < self.done)
            if completed.any():
                wgmma.pending &= ~completed
                for read in wgmma.reads:
                    self.shadow.complete(read, completed.reshape(-1))
        self.in_flight = [wgmma for wgmma in self.in_flight if wgmma.pending.any()]

    def _groups(self, mask: np.ndarray | None) -> np.ndarray:
        """The warpgroups with an active lane."""
        if self.lanes.active(mask) is None:
            return self.all
        lanes = self.lanes.under(mask)
        whole = self.open.shape[1] * WARPGROUP
        return lanes[:, :whole].reshape(*self.open.shape, WARPGROUP).any(axis=2)

    def _require_complete(self, wgmma: _Wgmma, instruction: Instruction, does: str, groups: np.ndarray) -> None:
        at = wgmma.instruction.location
        problem = f"{does} of the wgmma at {at} before a wgmma.wait_group covers it"
        self._require(~(wgmma.pending & groups), instruction, problem)

    def _require(self, good: np.ndarray, instruction: Instruction, problem: str) -> None:
        if not good.all():
            block, group = (int(at) for at in np.argwhere(~good)[0])
            lane = block * self.lanes.threads + group * WARPGROUP
            self.lanes.fault("race", instruction, lane, f"{instruction.mnemonic} {problem}")
