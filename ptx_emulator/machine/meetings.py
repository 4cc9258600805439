"""Warps that meet at one of the sixteen barriers of a block, and whether all of them are there.

PTX names a barrier by its number: `barrier.sync 1` at two places is one barrier. A warp is there once all its live
lanes are, at any instruction; at one and the same if it is `.aligned`, as `bar` always is. (PTX ISA, "bar, barrier")
"""

from __future__ import annotations

from functools import reduce
from itertools import combinations
from typing import NamedTuple, NoReturn

import numpy as np

from ptx_emulator.machine.basic_blocks import Barrier, Code
from ptx_emulator.machine.batch import Batch
from ptx_emulator.ptx.syntax import Instruction
from ptx_emulator.races.borne import TWO_PLACES
from ptx_emulator.registers import U32, WARP

BARRIERS = 16  # barriers of a block (PTX ISA, `barrier`)

At = dict[int, np.ndarray]  # basic block that ends with a barrier → lanes there


class Arrivals(NamedTuple):
    """The arrivals without a wait at a barrier, in its present phase.

    warps: (blocks, warps), how often each arrived; counts: (blocks,), threads that their barrier is for, 0 for none
    joined: lanes that went on while others of their warp wait; number: the basic block of the first
    """

    warps: np.ndarray
    counts: np.ndarray
    joined: np.ndarray
    number: int

    def clear(self, blocks: np.ndarray) -> None:
        self.warps[blocks], self.counts[blocks], self.joined[blocks] = 0, 0, False


class Side(NamedTuple):
    """Threads at one place. present: (blocks,) bool; least, most: (blocks,), the counts that they give"""

    number: int
    present: np.ndarray
    least: np.ndarray
    most: np.ndarray


class Passed(NamedTuple):
    """Lanes that passed a barrier at one place while others passed it at another; both (blocks, threads) bool."""

    here: np.ndarray
    elsewhere: np.ndarray


class Meetings:
    """The meetings of one batch. arrivals: by barrier; passed: by basic block, and the one where others were"""

    def __init__(self, batch: Batch, code: Code):
        self.batch, self.code = batch, code
        self.arrivals: dict[int, Arrivals] = {}
        self.passed: dict[tuple[int, int], Passed] = {}

    def barrier(self, number: int) -> Barrier:
        """The barrier that ends a basic block."""
        return self.code.blocks[number].terminator

    def by_name(self, at: At) -> dict[int, At]:
        """The lanes at the ends of basic blocks, by the barrier that they name."""
        out: dict[int, At] = {}
        for number, lanes in at.items():
            named = self.batch.registers[self.barrier(number).number]
            if named.size == 1:
                out.setdefault(int(named[0, 0]), {})[number] = lanes
            else:
                for which in np.unique(self.batch.full(named)[lanes]).tolist():
                    out.setdefault(which, {})[number] = lanes & (named == which)
        return out

    def whole(self, which: int, at: At) -> np.ndarray:
        """(blocks, warps) bool: the warps of which all live lanes are there."""
        live = _bits(self.batch.live)
        here = [_bits(lanes) for number, lanes in at.items() if self.barrier(number).aligned]
        loose = [lanes for number, lanes in at.items() if not self.barrier(number).aligned]
        if loose:
            some = reduce(np.logical_or, loose)
            joined = self.arrivals[which].joined if which in self.arrivals else some
            here.append(np.where(_bits(some) != 0, _bits(some | joined) & live, U32(0)))
        return reduce(np.logical_or, [bits == live for bits in here]) & (live != 0)

    def arrive(self, which: int, number: int, lanes: np.ndarray, waits: np.ndarray | None = None) -> None:
        """Count whole warps that arrive at a barrier and go on. waits: (blocks, warps), those with lanes that wait"""
        batch = self.batch
        side = self._side(number, lanes)
        if which not in self.arrivals:
            shape = batch.blocks, batch.threads // WARP
            empty = np.zeros(shape, int), np.zeros(batch.blocks, int), np.zeros(batch.shape, bool)
            self.arrivals[which] = Arrivals(*empty, number)
        found = self.arrivals[which]
        self._require_agreement(which, [side, *self._arrived(which)], {number: lanes})
        warps = _bits(lanes) != 0
        if waits is not None:
            found.joined[...] |= lanes & np.repeat(waits, WARP, axis=1)
            warps &= ~waits
        found.warps[...] += warps
        np.maximum(found.counts, side.most, out=found.counts)
        batch.arrive(which, lanes)

    def complete(self, which: int, at: At) -> tuple[np.ndarray, np.ndarray] | None:
        """The lanes that a barrier lets pass, and their blocks, (blocks,) bool; None if it lets none pass.

        at: where lanes wait for this barrier
        """
        batch = self.batch
        whole = self.whole(which, at)
        here = reduce(np.logical_or, at.values())
        arrived = self.arrivals[which].warps if which in self.arrivals else np.zeros_like(whole, int)
        sides = [*(self._side(*each) for each in at.items()), *self._arrived(which)]
        self._require_agreement(which, sides, at)
        # Without a count it is for all threads of the block that have not exited.
        counted = np.zeros(batch.blocks, int)
        for side in sides:
            if self.barrier(side.number).count is not None:
                np.maximum(counted, side.most, out=counted)
        meeting = WARP * (whole + arrived).sum(axis=1)
        self._require_no_more(which, meeting, counted, at, here)
        absent = batch.live.reshape(batch.blocks, -1, WARP).any(axis=2) & ~whole & (arrived == 0)
        blocks = np.where(counted > 0, meeting >= counted, ~absent.any(axis=1)) & whole.any(axis=1)
        if not blocks.any():
            return None
        lanes = here & np.repeat(whole, WARP, axis=1) & blocks[:, None]
        self.require_one_place(which, {number: each & lanes for number, each in at.items()})
        if which in self.arrivals:
            self.arrivals[which].clear(blocks)
            self._tidy(which)
        return lanes, blocks

    def _tidy(self, which: int) -> None:
        if not self.arrivals[which].counts.any():
            del self.arrivals[which]

    def _counts(self, barrier: Barrier) -> np.ndarray:
        """How many threads a barrier is for, by lane; all threads of the block if it does not say."""
        if barrier.count is None:
            return np.full((1, 1), self.batch.threads)
        return self.batch.registers[barrier.count].astype(int)

    def _side(self, number: int, lanes: np.ndarray) -> Side:
        counts, present = self._counts(self.barrier(number)), lanes.any(axis=1)
        if counts.size == 1:
            one = np.where(present, int(counts[0, 0]), 0)
            return Side(number, present, one, one)
        least = np.where(lanes, counts, np.iinfo(int).max).min(axis=1)
        return Side(number, present, np.where(present, least, 0), np.where(lanes, counts, 0).max(axis=1))

    def _arrived(self, which: int) -> list[Side]:
        if which not in self.arrivals:
            return []
        found = self.arrivals[which]
        return [Side(found.number, found.counts > 0, found.counts, found.counts)]

    def require_valid(self, number: int, lanes: np.ndarray) -> None:
        """Raise Fault for a barrier, or a count of threads, that no GPU has."""
        barrier = self.barrier(number)
        names = self.batch.full(self.batch.registers[barrier.number])
        counts = self.batch.full(self._counts(barrier))
        wrong = lanes & ((names >= BARRIERS) | (counts % WARP != 0) | (counts == 0))
        if wrong.any():
            lane = int(np.argmax(wrong))
            sentence = f"meets at barrier {int(names.flat[lane])} with {int(counts.flat[lane])} threads: a block has "
            sentence += f"barriers 0 to {BARRIERS - 1}, for a multiple of {WARP} threads"
            self._fault(number, lane, sentence)

    def _require_agreement(self, which: int, sides: list[Side], at: At) -> None:
        """Raise Fault where threads that meet give different counts, or only some reduce. at: lanes to blame"""
        for side in sides[: len(at)]:
            apart = side.present & (side.least != side.most)
            if apart.any():
                sentence = f"meets at barrier {which} for {int(side.least[apart][0])} threads, others of its warps for "
                self._disagree(side, side, apart, at, f"{sentence}{int(side.most[apart][0])}")
        for one, other in combinations(sides, 2):
            both = one.present & other.present
            apart = both & (one.most != other.most)
            if apart.any():
                counts = int(one.most[apart][0]), int(other.most[apart][0])
                sentence = f"meets at barrier {which} for {counts[0]} threads, and {self.where(other.number)} for "
                self._disagree(one, other, apart, at, f"{sentence}{counts[1]}: all of a barrier give one count")
            kinds = [self.barrier(each.number).reduction for each in (one, other)]
            if both.any() and (kinds[0] and kinds[0][0]) != (kinds[1] and kinds[1][0]):
                sentence = f"meets {self.where(other.number)} at barrier {which}: a bar.red that is mixed with others "
                self._disagree(one, other, both, at, f"{sentence}is unpredictable (PTX ISA, barrier)")

    def _disagree(self, one: Side, other: Side, blocks: np.ndarray, at: At, sentence: str) -> NoReturn:
        number = one.number if one.number in at else other.number
        self._fault(number, int(np.argmax(at[number] & blocks[:, None])), sentence)

    def _require_no_more(self, which: int, meeting: np.ndarray, counted: np.ndarray, at: At, here: np.ndarray) -> None:
        """Raise Fault where more threads than its count meet at a barrier at once: any of them might pass first."""
        more = (counted > 0) & (meeting > counted) & here.any(axis=1)
        if more.any():
            lane = int(np.argmax(here & more[:, None]))
            block = lane // self.batch.threads
            sentence = f"meets at barrier {which} with {int(meeting[block])} threads at once, and it is for "
            sentence += f"{int(counted[block])}: which of them pass first is left to chance; give each group a barrier"
            self._fault(next(number for number, lanes in at.items() if lanes.flat[lane]), lane, sentence)

    def require_one_place(self, which: int, at: At) -> None:
        """Raise Fault where a barrier in a branch has threads that pass it more often than others.

        Whole warps may meet at several places (`strict` refuses that, too). But where some then pass a place again, at
        which others had passed with them, and these have exited, a barrier stands in a branch that only some take.
        """
        at = {number: lanes for number, lanes in at.items() if lanes.any() and self._of_all(number)}
        if self.passed and not self.batch.all_live:
            for (number, other), passed in self.passed.items():
                if number in at:
                    self._require_not_again(number, other, passed, at[number])
        for number, other in combinations(at, 2):
            both = at[number].any(axis=1) & at[other].any(axis=1)
            if not both.any():
                continue
            if TWO_PLACES in self.batch.launch.strict:
                lane = int(np.argmax(at[number] & both[:, None]))
                sentence = f"meets {self.where(other)} at barrier {which}: an aligned barrier of all threads is to be "
                self._fault(number, lane, f"{sentence}one instruction for the whole block (strict)")
            for mine, theirs in ((number, other), (other, number)):
                now = Passed(at[mine] & both[:, None], at[theirs] & both[:, None])
                before = self.passed.get((mine, theirs), now)
                self.passed[mine, theirs] = Passed(before.here | now.here, before.elsewhere | now.elsewhere)

    def _require_not_again(self, number: int, other: int, passed: Passed, lanes: np.ndarray) -> None:
        left = passed.here & ~self.batch.live
        again = lanes & passed.elsewhere & left.any(axis=1)[:, None]
        if again.any():
            lane = int(np.argmax(again))
            gone = self.batch.launch.thread_name(int(np.argmax(left[lane // self.batch.threads])))
            sentence = f"waits at {self.where(number)}, which thread {gone} passed, before it exited, while this one "
            sentence += f"was at {self.where(other)}: some threads pass more barriers than others"
            self._fault(number, lane, sentence)

    def _of_all(self, number: int) -> bool:
        barrier = self.barrier(number)
        return barrier.aligned and barrier.count is None

    def instruction(self, number: int) -> Instruction:
        """Where lanes wait at a basic block: its first instruction, if that is warp-wide, or the barrier at its end."""
        block = self.code.blocks[number]
        return self.code.instruction(block.first + (block.count - 1 if block.membermask is None else 0))

    def where(self, number: int) -> str:
        instruction = self.instruction(number)
        return f"{instruction.mnemonic} at {instruction.location}"

    def _fault(self, number: int, lane: int, sentence: str) -> NoReturn:
        self.batch.fault("divergent_barrier", self.instruction(number), lane, sentence)


def _bits(lanes: np.ndarray) -> np.ndarray:
    """(blocks, threads) bool as (blocks, warps) uint32."""
    return np.packbits(lanes, axis=1).view(U32)
