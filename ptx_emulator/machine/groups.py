"""The `cp.async`s and the `wgmma`s of a batch in flight, by group.

The source of a `cp.async` is read when it starts; the destination is written when the thread waits for the group that
the copy was committed to. The destination may not be read in between, and both ends count as a store for the race
checks, because hardware may write at any time between.

The product of a `wgmma` is computed and stored when it starts. Until `wgmma.wait_group`, a warpgroup must not read or
write the accumulators, nor write the fragments of A. (PTX forbids reading those, too, but hardware allows it, and
compilers give equal values one register.) Registers written by other instructions need a `wgmma.fence` before a `wgmma`
uses them, and so does the first `wgmma`. A compiler may sink arithmetic below a fence that follows it in the source;
`asm volatile("" : "+f"(d))` before the fence prevents that. A `mov` counts as the instruction whose result it copies,
and of a constant not at all, because compilers always sink those.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ptx_emulator.compiled.layout import ACCUMULATOR, FRAGMENT
from ptx_emulator.machine.lanes import Lanes
from ptx_emulator.memory import Access
from ptx_emulator.ptx.syntax import Instruction
from ptx_emulator.races.wgmma_reads import AsyncWgmmaShadow, OperandRead, WgmmaShadow
from ptx_emulator.registers import I64, WARPGROUP, Bits


@dataclass
class _Copy:
    """lanes: (blocks, threads) bool, whose copy is in flight; group: (blocks, threads) int"""

    access: Access
    address: Bits
    values: list[Bits]
    lanes: np.ndarray
    group: np.ndarray


class CopyGroups:
    """The copies of a batch, oldest first.

    committed: (blocks, threads) int, the number of each lane's committed groups, and so of its open group
    """

    def __init__(self, shape: tuple[int, int]):
        self.in_flight: list[_Copy] = []
        self.committed = np.zeros(shape, I64)

    def start(self, access: Access, address: Bits, values: list[Bits], lanes: np.ndarray) -> None:
        """Start a copy of `values` to `address`."""
        self.in_flight.append(_Copy(access, address, values, lanes.copy(), self.committed.copy()))

    def commit(self, lanes: np.ndarray) -> None:
        """`commit_group` of these lanes."""
        self.committed += lanes

    def wait(self, keep: int, lanes: np.ndarray) -> Iterator[tuple[_Copy, np.ndarray]]:
        """The copies to store, and for which lanes, when these lanes wait for all but the `keep` latest groups."""
        for copy in self.in_flight:
            due = copy.lanes & lanes & (copy.group < self.committed - keep)
            if due.any():
                yield copy, due
                copy.lanes &= ~due
        self.in_flight = [copy for copy in self.in_flight if copy.lanes.any()]


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
    """All arrays are (blocks, warpgroups), but for two that the compiled interpreter shares.

    open: number of each warpgroup's open group; done: groups below this number were waited for
    fenced: bool, whether it executed a `wgmma.fence`
    writers: (blocks, warpgroups, registers) int32, 1 + the hazard that wrote it since the last fence, or 0
    held: the same shape, uint8, whether a `wgmma` in flight holds it as ACCUMULATOR or FRAGMENT, or both
    """

    def __init__(self, lanes: Lanes, shadow: WgmmaShadow | AsyncWgmmaShadow):
        self.lanes, self.shadow = lanes, shadow
        shape = (lanes.blocks, lanes.threads // WARPGROUP)
        self.open, self.done = np.zeros(shape, int), np.zeros(shape, int)
        self.fenced, self.all = np.zeros(shape, bool), np.ones(shape, bool)
        self.in_flight: list[_Wgmma] = []
        self.hazards, slots = lanes.launch.resources.hazards, lanes.launch.resources.fragments
        self.number = {slot: i for i, slot in enumerate(slots)}
        self.numbers: dict[frozenset[int], np.ndarray] = {}
        self.writers, self.held = np.zeros((*shape, len(slots)), np.int32), np.zeros((*shape, len(slots)), np.uint8)

    def start(
        self, instruction: Instruction, accumulators: frozenset[int], fragments: frozenset[int],
        reads: list[OperandRead], groups: np.ndarray,
    ) -> None:  # fmt: skip
        """Start a `wgmma`. Raises Fault if its registers are in use, or not fenced."""
        self._require(self.fenced | ~groups, instruction, "comes before any wgmma.fence of its warpgroup")
        used = self._numbers(accumulators | fragments)
        if self.writers[..., used].any():
            self._require_fenced(instruction, accumulators, used, groups)
        for wgmma in self.in_flight:
            if not wgmma.accumulators.isdisjoint(fragments):
                self._require_complete(wgmma, instruction, "reads an accumulator", groups)
            if not wgmma.fragments.isdisjoint(accumulators):
                self._require_complete(wgmma, instruction, "overwrites a fragment of A", groups)
        self.in_flight.append(_Wgmma(instruction, accumulators, fragments, reads, self.open.copy(), groups.copy()))
        self._hold(self.in_flight[-1])

    def _numbers(self, slots: frozenset[int]) -> np.ndarray:
        """The columns of these registers in `writers` and `held`."""
        if slots not in self.numbers:
            self.numbers[slots] = np.array(sorted(self.number[slot] for slot in slots if slot in self.number), int)
        return self.numbers[slots]

    def _hold(self, wgmma: _Wgmma) -> None:
        for slots, how in ((wgmma.accumulators, ACCUMULATOR), (wgmma.fragments, FRAGMENT)):
            if slots:
                self.held[..., self._numbers(slots)] |= (wgmma.pending * np.uint8(how))[..., None]

    def _require_fenced(
        self, instruction: Instruction, accumulators: frozenset[int], used: np.ndarray, groups: np.ndarray
    ) -> None:
        slots = self.lanes.launch.resources.fragments
        for number in used.tolist():
            wrote = self.writers[..., number] * groups
            if wrote.any():
                what = "an accumulator" if slots[number] in accumulators else "a fragment of A"
                location = self.hazards[int(wrote[wrote > 0][0]) - 1].location
                problem = f"uses {what} written at {location} with no wgmma.fence between"
                self._require(wrote == 0, instruction, problem)

    def use(self, instruction: Instruction, hazard: int, mask: np.ndarray | None) -> None:
        """Check another instruction. Raises Fault if a `wgmma` in flight uses its registers."""
        _, copies, reads, writes = self.hazards[hazard]
        groups = self._groups(mask)
        for wgmma in self.in_flight:
            if not wgmma.accumulators.isdisjoint(reads):
                self._require_complete(wgmma, instruction, "reads an accumulator", groups)
            if not wgmma.accumulators.isdisjoint(writes):
                self._require_complete(wgmma, instruction, "overwrites an accumulator", groups)
            if not wgmma.fragments.isdisjoint(writes):
                self._require_complete(wgmma, instruction, "overwrites a fragment of A", groups)
        writer = np.int32(hazard + 1)
        if copies:
            writer = self.writers[..., self.number[reads[0]]] if reads else np.int32(0)
        for slot in writes:
            np.copyto(self.writers[..., self.number[slot]], writer, where=groups)

    def fence(self, groups: np.ndarray) -> None:
        """`wgmma.fence`."""
        self.fenced |= groups
        self.writers[groups] = 0

    def commit(self, groups: np.ndarray) -> None:
        """`wgmma.commit_group`."""
        self.open += groups

    def wait(self, keep: int, groups: np.ndarray) -> None:
        """`wgmma.wait_group`, for all but the `keep` latest groups."""
        self.done = np.where(groups, np.maximum(self.done, self.open - keep), self.done)
        changed = False
        for wgmma in self.in_flight:
            completed = wgmma.pending & (wgmma.group < self.done)
            if completed.any():
                wgmma.pending &= ~completed
                changed = True
                for read in wgmma.reads:
                    self.shadow.complete_read(read, completed.reshape(-1))
        self.in_flight = [wgmma for wgmma in self.in_flight if wgmma.pending.any()]
        if changed:
            self.held[:] = 0
            for wgmma in self.in_flight:
                self._hold(wgmma)

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
