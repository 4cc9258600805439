"""The mbarriers of a batch, by block and byte of shared memory.

A phase is complete when as many threads as were expected have arrived, and as many bytes as were expected have been
copied. A thread that waits for a phase knows what the arriving threads did before, and that the phase's copies are
complete. Threads of other blocks of the cluster count only if they arrive, and the thread waits, with `.cluster`.
An expected byte that never comes, and one that nobody expected, hang a GPU or let a wait pass early; both are faults.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from ptx_emulator.machine.lanes import Lanes
from ptx_emulator.machine.mbarrier_state import Event, Mbarrier, Semantics, Uses
from ptx_emulator.ptx.syntax import Instruction
from ptx_emulator.races.async_order import AsyncOrder, larger
from ptx_emulator.races.borne import DEFAULT_SCOPE, INIT_FENCE, LATE_COMMIT, NO_INVAL, REINIT
from ptx_emulator.registers import U32, WARP, Bits

MOST_ARRIVALS, MOST_BYTES = (1 << 20) - 1, (1 << 20) - 1
WIDTH = 8  # bytes


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
            made.arrived, made.looked = Uses(self.order.rows), Uses(self.order.rows)
        self.progress += 1

    def inval(self, instruction: Instruction, lane: int, block: int, byte: int) -> None:
        """`mbarrier.inval`."""
        found = self.find(instruction, lane, block, byte)
        if found.owed:
            self._fault(instruction, lane, f"ends {self._name(found)}: {self._sums(found)}")
        if self.order:
            self._require_unused(found, instruction, lane)
        del self.all[block, byte]

    def _require_unused(self, found: Mbarrier, instruction: Instruction, lane: int) -> None:
        """Raise Fault for an mbarrier that ends while another thread, or a copy, may still use it."""
        cluster, row = self.order.row(*divmod(lane, self.lanes.threads))
        clock, sentence = self.order.behind_gates(int(cluster), int(row)), f"ends {self._name(found)}, which "
        for uses, counter in ((found.arrived, found.counter), (found.looked, -1)):
            rows = uses.unknown(clock, counter)
            rows = rows[rows != row]
            if rows.size:
                who, at = self._thread(cluster, int(rows[0])), uses.instruction(int(rows[0])).location.in_full()
                self._fault(instruction, lane, f"{sentence}{who} uses at {at} with no barrier between", "race")
        for other, phase, reached in found.brings:
            if reached is not None and LATE_COMMIT not in self.lanes.launch.strict:
                continue
            if clock[found.counter] <= phase and (reached is None or (clock[: len(reached)] < reached).any()):
                sentence += f"{other.mnemonic} at {other.location.in_full()} uses: no thread that waited for phase "
                self._fault(instruction, lane, f"{sentence}{phase} let this one know", "race")

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
        self._used(found, instruction, lane, found.arrived)
        self.progress += 1

    def _brings(self, found: Mbarrier, instruction: Instruction, clock: Bits | None) -> None:
        if found.brings and (found.brings[-1][1] < found.phase or clock is None):
            found.brings.clear()
        found.brings.append((instruction, found.phase, clock))

    def _used(self, found: Mbarrier, instruction: Instruction, lane: int, uses: Uses | None) -> None:
        if uses:
            cluster, row = self.order.row(*divmod(lane, self.lanes.threads))
            uses.add(instruction, row, int(self.order.now[cluster]), found.phase)

    def arrive(
        self, instruction: Instruction, lane: int, found: Mbarrier, count: int,
        semantics: Semantics | Bits | None, drops: bool = False, by_thread: bool = True,
    ) -> int:  # fmt: skip
        """Record arrivals of one thread; returns the phase that they count in.

        semantics: or a clock that is released, or None for nothing; by_thread: whether the thread itself arrives now
        """
        if not 1 <= count <= found.pending:
            sentence = f"arrives {count} times at {self._name(found)}, where {found.pending} arrivals lack"
            earlier = f": {_list(found.arrivals)}" if found.arrivals else ""
            self._fault(instruction, lane, sentence + earlier)
        if by_thread and found.brought and self.order:
            self._require_waited(found, instruction, lane)
        phase = found.phase
        found.arrivals.append(Event(instruction, count))
        if by_thread:
            self._used(found, instruction, lane, found.arrived)
        else:
            self._brings(found, instruction, None if isinstance(semantics, Semantics) else semantics)
        if isinstance(semantics, Semantics) and self.order:
            self.release(instruction, found, lane, semantics)
        elif self.order and semantics is not None:
            found.gathered[0] = larger(found.gathered[0], semantics)
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
        if instruction.mnemonic.startswith("mbarrier"):
            self._used(found, instruction, lane, found.arrived)
        else:
            self._brings(found, instruction, None)
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
        for far, gathered in enumerate(found.gathered):
            if gathered is not None:
                found.released[far] = larger(found.released[far], gathered)
        found.phase, found.pending, found.gathered = found.phase + 1, found.expected, [None, None]
        # A thread that counts bytes itself, by complete_tx, has no copy in flight.
        found.brought = any(not each.instruction.mnemonic.startswith("mbarrier") for each in found.copies)
        found.last = f"phase {found.phase - 1} was completed at {instruction.location.in_full()}"
        found.arrivals, found.expects, found.copies = [], [], []

    def release(self, instruction: Instruction, found: Mbarrier, lane: int, semantics: Semantics) -> None:
        """Let a phase pass on what a thread releases when it arrives, or, if it is relaxed, what its last fence covers.

        Threads of the mbarrier's block alone wait for it, so the scope counts for those of others.
        """
        block, thread = divmod(lane, self.lanes.threads)
        cluster, row = self.order.row(block, thread)
        far, rows = block != found.block, np.array([row])
        if far and not self.takes_in_cluster(semantics):
            self._note(instruction, cluster, semantics)
            clock = self.order.only_begun(self.order.clock[cluster, row])
        elif semantics.relaxed:
            clock = self.order.fenced(cluster, rows, wide=far)
        else:
            clock = self.order.publish(cluster, rows)
            if not far:
                warps = self.order.release_warp(block, thread // WARP)
                found.warps = warps if found.warps is None else np.maximum(found.warps, warps)
        found.gathered[far] = larger(found.gathered[far], clock)
        shadow = self.lanes.launch.shadow
        if shadow and (self.takes_in_cluster(semantics) if far else semantics.relaxed):
            found.tells = True
            shadow.happens_before.tell(self._address(found), block, thread, not semantics.relaxed, bool(far))

    def _address(self, found: Mbarrier) -> int:
        """An address that stands for an mbarrier where global memory is ordered."""
        return -(1 << 40) - ((self.lanes.first + found.block << 24) + found.byte)

    def _note(self, instruction: Instruction, cluster: int, semantics: Semantics) -> None:
        """Remember for the sentence of a race that a scope does not take in threads of other blocks."""
        scope = ".cta" if semantics.scope else "no scope, which PTX takes as .cta (strict)"
        sentence = f"{instruction.mnemonic} at {instruction.location.in_full()} has {scope}"
        self.order.narrow[cluster] = f"{sentence}, and orders no thread of another block"

    def takes_in_cluster(self, semantics: Semantics) -> bool:
        """Whether an arrival or a wait orders threads of other blocks of the cluster."""
        unsaid = not semantics.scope and DEFAULT_SCOPE not in self.lanes.launch.strict
        return semantics.scope == "cluster" or unsaid

    def may_be_late(self, found: Mbarrier, lanes: np.ndarray) -> np.ndarray:
        """Choose the lanes, flat, that a GPU may tell that the previous phase is not complete yet.

        If that phase had no copies, lanes that know of every arrival in it are left out.
        """
        if not self.order or found.brought:
            return np.ones(len(lanes), bool)
        cluster, rows = self.order.row(*np.divmod(lanes, self.lanes.threads))
        count = self.order.rows
        late = np.zeros((len(lanes), count), bool)
        for released in found.released:
            if released is not None:
                late |= self.order.clock[cluster, rows, :count] < released[:count]
        late[np.arange(len(rows)), rows] = False
        return late.any(axis=1)

    def look(self, found: Mbarrier, instruction: Instruction, lanes: np.ndarray) -> None:
        """Record that these lanes, flat and of one block, test the mbarrier or wait."""
        if self.order:
            cluster, rows = self.order.row(*np.divmod(lanes, self.lanes.threads))
            found.looked.add(instruction, rows, int(self.order.now[cluster[0]]), 0)

    def learn(
        self, instruction: Instruction, found: Mbarrier, cluster: int, rows: np.ndarray, semantics: Semantics
    ) -> None:
        """Record that these rows waited for a complete phase."""
        order, wide = self.order, self.takes_in_cluster(semantics)
        for far, released in enumerate(found.released):
            if released is None:
                continue
            if far and not wide:
                self._note(instruction, cluster, semantics)
            if (far and not wide) or semantics.relaxed:
                order.learn(cluster, rows, order.only_begun(released))
            if semantics.relaxed and (wide or not far):
                order.see(cluster, rows, released, wide=bool(far))
            elif wide or not far:
                order.learn(cluster, rows, released)
        if semantics.relaxed:
            phases = np.zeros(found.counter + 1, U32)
            phases[found.counter] = found.phase
            order.see(cluster, rows, phases, wide=False)
        else:
            order.reach(cluster, rows, found.counter, found.phase)
        if found.warps is not None:
            warps = np.unique(order.place(cluster, rows)[1] // WARP)
            (order.see_warps if semantics.relaxed else order.acquire_warps)(found.block, warps, found.warps)
        if found.tells:
            threads = None if not semantics.relaxed else order.place(cluster, rows)[1]
            self.lanes.launch.shadow.happens_before.hear(self._address(found), found.block, wide, threads)

    def used_by_others(self, block: int) -> tuple[Instruction, int] | None:
        """An arrival by another block at an mbarrier of this block that none of its threads knows of, and its lane."""
        cluster, first = self.order.row(block, 0)
        clock = self.order.clock[cluster, first : first + self.lanes.threads].max(axis=0)
        for found in self.all.values():
            rows = found.arrived.unknown(clock, found.counter) if found.block == block else np.zeros(0, int)
            rows = rows[(rows < first) | (rows >= first + self.lanes.threads)]
            if rows.size:
                where, thread = self.order.place(cluster, int(rows[0]))
                return found.arrived.instruction(int(rows[0])), where * self.lanes.threads + thread
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
