"""The `wgmma`s of a batch that are on their way: their groups, and the registers that they hold.

The product is computed, and its result stored, when the instruction starts; no thread may see it before it is waited
for. Until then a warpgroup must not read or write the accumulators, nor write the fragments of A: reading those is
undefined in PTX too, but the hardware does so as well, and compilers give equal values one register. Registers that
other instructions wrote need a `wgmma.fence` before a `wgmma` uses them, and so does the first one at all. That is said
of PTX, into which a compiler may sink arithmetic behind a fence that stands after it in the source; `asm volatile("" :
"+f"(d))` before the fence forbids it. A `mov` counts as what it copies, and a constant as nothing: those sink always.
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
    """One `wgmma`. number: (blocks, warpgroups) int, its group; going: bool, the warpgroups that have not waited"""

    instruction: Instruction
    accumulators: frozenset[int]
    fragments: frozenset[int]
    readings: list[OperandRead]
    number: np.ndarray
    going: np.ndarray


class WgmmaGroups:
    """All arrays are (blocks, warpgroups).

    open: the number of each warpgroup's open group; done: groups below it were waited for
    fenced: whether it ever did a `wgmma.fence`
    written: register → the instruction that wrote it since the last fence, and the warpgroups that executed it
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
        readings: list[OperandRead],
        groups: np.ndarray,
    ) -> None:
        """A `wgmma` of these warpgroups. Raises Fault if its registers are not free, or not fenced."""
        self._require(self.fenced | ~groups, instruction, "comes before any wgmma.fence of its warpgroup")
        for slot in self.written.keys() & (accumulators | fragments):
            earlier, wrote = self.written[slot]
            what = "an accumulator" if slot in accumulators else "a fragment of A"
            problem = f"uses {what} written at {earlier.location} with no wgmma.fence between"
            self._require(~(wrote & groups), instruction, problem)
        for flight in self.in_flight:
            if not flight.accumulators.isdisjoint(fragments):
                self._require_landed(flight, instruction, "reads an accumulator", groups)
            if not flight.fragments.isdisjoint(accumulators):
                self._require_landed(flight, instruction, "overwrites a fragment of A", groups)
        self.in_flight.append(_Wgmma(instruction, accumulators, fragments, readings, self.open.copy(), groups.copy()))

    def use(
        self, instruction: Instruction, reads: frozenset[int], writes: frozenset[int], mask: np.ndarray | None
    ) -> None:
        """Another instruction uses these registers. Raises Fault if a `wgmma` holds them."""
        if not writes and not self.in_flight:
            return
        groups = self._groups(mask)
        for flight in self.in_flight:
            if not flight.accumulators.isdisjoint(reads):
                self._require_landed(flight, instruction, "reads an accumulator", groups)
            if not flight.accumulators.isdisjoint(writes):
                self._require_landed(flight, instruction, "overwrites an accumulator", groups)
            if not flight.fragments.isdisjoint(writes):
                self._require_landed(flight, instruction, "overwrites a fragment of A", groups)
        inherited = self._inherited(instruction, reads)
        for slot in writes:
            _, before = self.written.get(slot, (None, False))
            who, wrote = inherited or (instruction, True)
            self.written[slot] = who, before & ~groups | wrote & groups

    def _inherited(self, instruction: Instruction, reads: frozenset[int]) -> tuple[Instruction, np.ndarray] | None:
        """What a move says of its result: who wrote what it copies, if that lies in a register that is watched."""
        if not instruction.mnemonic.startswith("mov.") or any(isinstance(x, Vector) for x in instruction.operands):
            return None
        return next(
            (self.written[slot] for slot in reads & self.written.keys()), (instruction, np.zeros_like(self.fenced))
        )

    def fence(self, groups: np.ndarray) -> None:
        """`wgmma.fence` of these warpgroups."""
        self.fenced |= groups
        self.written = {
            slot: (who, left) for slot, (who, wrote) in self.written.items() if (left := wrote & ~groups).any()
        }

    def commit(self, groups: np.ndarray) -> None:
        """`wgmma.commit_group` of these warpgroups."""
        self.open += groups

    def wait(self, keep: int, groups: np.ndarray) -> None:
        """`wgmma.wait_group` of these warpgroups, for all but the `keep` youngest groups."""
        self.done = np.where(groups, np.maximum(self.done, self.open - keep), self.done)
        for flight in self.in_flight:
            landed = flight.going & (flight.number < self.done)
            if landed.any():
                flight.going &= ~landed
                for reading in flight.readings:
                    self.shadow.land(reading, landed.reshape(-1))
        self.in_flight = [flight for flight in self.in_flight if flight.going.any()]

    def _groups(self, mask: np.ndarray | None) -> np.ndarray:
        """The warpgroups with a lane that acts."""
        if self.lanes.active(mask) is None:
            return self.all
        lanes = self.lanes.live if mask is None else mask
        whole = self.open.shape[1] * WARPGROUP
        return lanes[:, :whole].reshape(*self.open.shape, WARPGROUP).any(axis=2)

    def _require_landed(self, flight: _Wgmma, instruction: Instruction, does: str, groups: np.ndarray) -> None:
        at = flight.instruction.location
        problem = f"{does} of the wgmma at {at} before a wgmma.wait_group covers it"
        self._require(~(flight.going & groups), instruction, problem)

    def _require(self, good: np.ndarray, instruction: Instruction, problem: str) -> None:
        if not good.all():
            block, group = (int(at) for at in np.argwhere(~good)[0])
            lane = block * self.lanes.threads + group * WARPGROUP
            self.lanes.fault("race", instruction, lane, f"{instruction.mnemonic} {problem}")
