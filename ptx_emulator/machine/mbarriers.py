"""The mbarriers of a batch, by block and byte of shared memory.

A phase is complete when as many threads as were expected have arrived, and as many bytes as were expected have been
copied. A thread that waits for a phase knows what the arriving threads did before, and that the phase's copies are
complete.
An expected byte that never comes, and one that nobody expected, hang a GPU or let a wait pass early; both are faults.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

import numpy as np

from ptx_emulator.machine.lanes import Lanes
from ptx_emulator.ptx.syntax import Instruction
from ptx_emulator.races.async_order import AsyncOrder, larger
from ptx_emulator.races.borne import INIT_FENCE, NO_INVAL, REINIT
from ptx_emulator.registers import WARP, Bits

MOST_ARRIVALS, MOST_BYTES = (1 << 20) - 1, (1 << 20) - 1
WIDTH = 8  # bytes


class Event(NamedTuple):
    """An event that counts in a phase. amount: threads or bytes"""

    instruction: Instruction
    amount: int


@dataclass
class Mbarrier:
    """expected: arrivals of a phase; pending: arrivals still missing; owed: expected bytes that have not come

    phase: how many are complete; counter: column of its phases in the clock; made: by whom and when (cluster, row,
    epoch)
    fenced: whether its maker fenced its init; told: column of the clock of who knows of that, 0 for none
    gathered, released: clocks that arrivals of this phase, and of all earlier ones, pass on; warps: the same for warps
    brought: whether copies counted in the phase before
    last: what completed the phase before; remote: by row of another block, when, where and by which lane it arrived
    """

    init: Instruction
    block: int
    byte: int
    expected: int
    pending: int
    counter: int = 0
    made: tuple[int, int, int] = (0, 0, 0)
    fenced: bool = False
    told: int = 0
    owed: int = 0
    phase: int = 0
    gathered: Bits | None = None
    released: Bits | None = None
    arrivals: list[Event] = field(default_factory=list)
    expects: list[Event] = field(default_factory=list)
    copies: list[Event] = field(default_factory=list)
    waited: Instruction | None = None
    warps: Bits | None = None
    last: str = ""
    brought: bool = False
    remote: dict[int, tuple[int, Instruction, int]] = field(default_factory=dict)

    @property
    def untouched(self) -> bool:
        """Whether nobody has used it since its init."""
        return not (self.phase or self.waited or self.arrivals or self.expects or self.copies)


class Mbarriers:
    """order: None without the sanitizer; progress: changes whenever a phase or an arrival does"""

    def __init__(self, lanes: Lanes, order: AsyncOrder | None):
        self.lanes, self.order = lanes, order
        self.all: dict[tuple[int, int], Mbarrier] = {}
        self.progress = 0

    def _fault(self, instruction: Instruction, lane: int, sentence: str, kind: str = "mbarrier") -> NoReturn:
        self.lanes.fault(kind, instruction, lane, sentence)

    def _thread(self, cluster: int, row: int) -> str:
        block, thread = self.order.place(cluster, row)
        launch = self.lanes.launch
        name = f"thread {launch.thread_name(thread)}"
        return name if self.order.cluster == 1 else f"{name} of block {launch.block_name(self.lanes.first + block)}"

    def init(self, instruction: Instruction, lane: int, block: int, byte: int, count: int) -> None:
        """`mbarrier.init`."""
        if not 1 <= count <= MOST_ARRIVALS:
            self._fault(instruction, lane, f"expects {count} arrivals, where 1 to {MOST_ARRIVALS} are allowed")
        old = self.all.get((block, byte))
        if old and old.untouched and REINIT not in self.lanes.launch.strict:
            old = None if self.order is None else self._require_born(old, instruction, lane, False)
        if old:
            sentence = f"initialises the mbarrier at byte {byte} of shared memory, which was initialised at "
            self._fault(instruction, lane, f"{sentence}{old.init.location.in_full()}, with no mbarrier.inval between")
        made = self.all[block, byte] = Mbarrier(instruction, block, byte, count, count)
        if self.order:
            cluster, row = self.order.row(*divmod(lane, self.lanes.threads))
            made.made, made.counter = (cluster, row, int(self.order.now[cluster])), self.order.counter()
        self.progress += 1

    def inval(self, instruction: Instruction, lane: int, block: int, byte: int) -> None:
        """`mbarrier.inval`."""
        found = self.find(instruction, lane, block, byte)
        if found.owed:
            self._fault(instruction, lane, f"ends {self._name(found)}: {self._sums(found)}")
        del self.all[block, byte]

    def find(self, instruction: Instruction, lane: int, block: int, byte: int, copies: bool = False) -> Mbarrier:
        """The mbarrier that a thread uses. copies: whether a copy uses it, which needs a fence after its init"""
        found = self.all.get((block, byte))
        if found is None:
            self._fault(
                instruction, lane, f"uses an mbarrier at byte {byte} of shared memory, where none is initialised"
            )
        if self.order:
            self._require_born(found, instruction, lane, copies)
        return found

    def _require_born(self, found: Mbarrier, instruction: Instruction, lane: int, copies: bool) -> None:
        _, maker, epoch = found.made
        cluster, row = self.order.row(*divmod(lane, self.lanes.threads))
        clock = self.order.clock[cluster, row]
        who, at = self._thread(cluster, maker), found.init.location.in_full()
        if row != maker and clock[maker] <= epoch and not (found.told and clock[found.told]):
            sentence = f"uses the mbarrier that {who} initialised at {at} with no barrier between"
            self._fault(instruction, lane, sentence, "race")
        own = lane // self.lanes.threads == found.block
        fenced = found.fenced or (own and INIT_FENCE not in self.lanes.launch.strict)
        if copies and not fenced and clock[self.order.rows + maker] <= epoch:
            sentence = f"copies with the mbarrier that {who} initialised at {at} with no fence.proxy.async"
            self._fault(instruction, lane, f"{sentence} or fence.mbarrier_init between", "race")

    def require_known(self, found: Mbarrier, instruction: Instruction, lanes: np.ndarray) -> None:
        """Raise Fault if one of these lanes, flat, of one block, does not know that the mbarrier was initialised."""
        if not self.order:
            return
        cluster, maker, epoch = found.made
        _, rows = self.order.row(*np.divmod(lanes, self.lanes.threads))
        unknown = (rows != maker) & (self.order.clock[cluster, rows, maker] <= epoch)
        if found.told:
            unknown &= self.order.clock[cluster, rows, found.told] == 0
        if unknown.any():
            self._require_born(found, instruction, int(lanes[np.argmax(unknown)]), False)

    def fence_init(self, lanes: np.ndarray) -> None:
        """`fence.mbarrier_init` of these lanes, (blocks, threads) bool."""
        for found in self.all.values() if self.order else ():
            cluster, row, _ = found.made
            if not found.fenced and lanes[self.order.place(cluster, row)]:
                found.fenced, found.told = True, self.order.counter()
                self.order.fence_column(cluster, row, found.told)

    def expect(self, instruction: Instruction, lane: int, found: Mbarrier, amount: int) -> None:
        """`expect_tx`."""
        if not 0 <= found.owed + amount <= MOST_BYTES or amount < 0:
            self._fault(instruction, lane, f"expects {amount} bytes more; {self._sums(found)}")
        found.owed += amount
        found.expects.append(Event(instruction, amount))
        self.progress += 1

    def arrive(
        self, instruction: Instruction, lane: int, found: Mbarrier, count: int, clock: Bits | None, drops: bool = False,
        by_thread: bool = True,
    ) -> int:  # fmt: skip
        """Record arrivals of one thread; returns the phase that they count in.

        clock: released by them, None for nothing; by_thread: whether the thread itself arrives now
        """
        if not 1 <= count <= found.pending:
            sentence = f"arrives {count} times at {self._name(found)}, where {found.pending} arrivals lack"
            earlier = f": {_list(found.arrivals)}" if found.arrivals else ""
            self._fault(instruction, lane, sentence + earlier)
        if by_thread and found.brought and self.order:
            self._require_waited(found, instruction, lane)
        phase = found.phase
        found.arrivals.append(Event(instruction, count))
        if self.order and lane // self.lanes.threads != found.block:
            cluster, row = self.order.row(*divmod(lane, self.lanes.threads))
            found.remote[row] = int(self.order.now[cluster]) - (clock is not None), instruction, lane
        if clock is not None:
            found.gathered = larger(found.gathered, clock)
        found.pending -= count
        found.expected -= count if drops else 0
        self._advance(instruction, lane, found)
        return phase

    def _require_waited(self, found: Mbarrier, instruction: Instruction, lane: int) -> None:
        """Raise Fault if a thread does not know that the previous phase is over.

        That phase's copies may still be in flight, and then the arrival counts in it, as one too many.
        """
        cluster, row = self.order.row(*divmod(lane, self.lanes.threads))
        if self.order.clock[cluster, row, found.counter] < found.phase:
            sentence = (
                f"arrives at {self._name(found)}, whose phase {found.phase - 1} has copies that may not be complete:"
            )
            sentence += " no wait for that phase lets this thread know"
            self._fault(instruction, lane, sentence)

    def copied(self, instruction: Instruction, lane: int, found: Mbarrier, amount: int) -> None:
        """Count a complete copy of this many bytes in the current phase."""
        found.copies.append(Event(instruction, amount))
        found.owed -= amount
        self._advance(instruction, lane, found)

    def _advance(self, instruction: Instruction, lane: int, found: Mbarrier) -> None:
        self.progress += 1
        if found.pending:
            return
        if found.owed < 0:
            self._fault(instruction, lane, f"{self._name(found)}: {self._sums(found)}")
        if found.owed:
            return
        if found.gathered is not None:
            found.released = larger(found.released, found.gathered)
        found.phase, found.pending, found.gathered = found.phase + 1, found.expected, None
        # A thread that counts bytes itself, by complete_tx, has no copy in flight.
        found.brought = any(not each.instruction.mnemonic.startswith("mbarrier") for each in found.copies)
        found.last = f"phase {found.phase - 1} was completed at {instruction.location.in_full()}"
        found.arrivals, found.expects, found.copies = [], [], []

    def release(self, found: Mbarrier, lane: int) -> Bits:
        """The clock that a thread releases when it arrives."""
        block, thread = divmod(lane, self.lanes.threads)
        if block == found.block:
            warps = self.order.release_warp(block, thread // WARP)
            found.warps = warps if found.warps is None else np.maximum(found.warps, warps)
        cluster, row = self.order.row(block, thread)
        return self.order.publish(cluster, np.array([row]))

    def fenced(self, lane: int) -> Bits | None:
        """The clock that a thread releases by a relaxed arrival: what its last fence covers."""
        cluster, row = self.order.row(*divmod(lane, self.lanes.threads))
        return self.order.fenced(cluster, np.array([row]))

    def may_be_late(self, found: Mbarrier, lanes: np.ndarray) -> np.ndarray:
        """Choose the lanes, flat, that a GPU may tell that the previous phase is not complete yet.

        If that phase had no copies, lanes that know of every arrival in it are left out.
        """
        if not self.order or found.brought:
            return np.ones(len(lanes), bool)
        if found.released is None:
            return np.zeros(len(lanes), bool)
        cluster, rows = self.order.row(*np.divmod(lanes, self.lanes.threads))
        count = self.order.rows
        late = self.order.clock[cluster, rows, :count] < found.released[:count]
        late[np.arange(len(rows)), rows] = False
        return late.any(axis=1)

    def learn(self, found: Mbarrier, cluster: int, rows: np.ndarray) -> None:
        """Record that these rows waited for a complete phase."""
        if self.order:
            self.order.reach(cluster, rows, found.counter, found.phase)
            if found.released is not None:
                self.order.learn(cluster, rows, found.released)
            block, thread = self.order.place(cluster, rows)
            if found.warps is not None and block[0] == found.block:
                self.order.acquire_warps(found.block, np.unique(thread // WARP), found.warps)

    def used_by_others(self, block: int) -> tuple[Instruction, int] | None:
        """An arrival by another block at an mbarrier of this block that none of its threads knows of, and its lane."""
        cluster, first = self.order.row(block, 0)
        clock = self.order.clock[cluster, first : first + self.lanes.threads].max(axis=0)
        for found in self.all.values():
            for row, (epoch, instruction, lane) in found.remote.items() if found.block == block else ():
                if clock[row] <= epoch:
                    return instruction, lane
        return None

    def _name(self, found: Mbarrier) -> str:
        return f"the mbarrier at byte {found.byte} of shared memory (initialised at {found.init.location.in_full()})"

    def _sums(self, found: Mbarrier) -> str:
        expected, came = sum(each.amount for each in found.expects), sum(each.amount for each in found.copies)
        expects = f"{expected} bytes are expected in its phase {found.phase}" + (
            f" ({_list(found.expects)})" if found.expects else ""
        )
        return f"{expects}, and copies bring {came}" + (f" ({_list(found.copies)})" if found.copies else "")

    def lacks(self, found: Mbarrier) -> str:
        """Why the current phase is not complete."""
        why = []
        if found.pending:
            here = f" ({_list(found.arrivals)})" if found.arrivals else ""
            why.append(f"{found.expected - found.pending} of {found.expected} arrivals came{here}")
        if found.owed:
            why.append(self._sums(found))
        why += [found.last] if found.last else []
        return f"{self._name(found)} is in phase {found.phase}: {'; '.join(why)}"

    def finish(self) -> None:
        """Check all mbarriers at the end of the batch. Raises Fault for bytes that do not add up."""
        for found in self.all.values():
            if found.owed:
                last = (found.expects or found.copies)[-1].instruction
                self._fault(last, found.block * self.lanes.threads, f"{self._name(found)}: {self._sums(found)}")
        for found in self.all.values() if NO_INVAL in self.lanes.launch.strict else ():
            sentence = f"{self._name(found)} is valid when its block exits: no mbarrier.inval ends it (strict)"
            self._fault(found.init, found.block * self.lanes.threads, sentence)


def _list(events: list[Event]) -> str:
    """Spell events as `4096 at a.cu:7, 1 at a.cu:9`; events on one line appear once."""
    amounts: dict[str, int] = {}
    for event in events:
        where = event.instruction.location.in_full()
        amounts[where] = amounts.get(where, 0) + event.amount
    return ", ".join(f"{amount} at {where}" for where, amount in list(amounts.items())[:4])
