"""Races in global memory between launches that may overlap (programmatic dependent launch).

A kernel that begins early may touch what earlier ones write, or write what they touch, only behind a
`griddepcontrol.wait`, of its own thread or of one that a barrier orders before. That waits for the launch before, with
all its memory; for those before that, too, but only if that launch itself waited. `launch_dependents` orders nothing:
it is when the next kernel may begin at the earliest. What a kernel reads as constant (`ld.global.nc`) nothing may
write while it runs, which is also before its wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ptx_emulator.errors import Fault
from ptx_emulator.memory import Access, Buffer
from ptx_emulator.ptx.syntax import Location
from ptx_emulator.races.async_agents import Fault as Report
from ptx_emulator.races.buffer_shadow import READS, UPDATES, WRITES
from ptx_emulator.races.global_memory import GlobalShadow

_PAST = {WRITES: "wrote", UPDATES: "updated", READS: "read"}


@dataclass
class PastLaunch:
    """A launch's accesses to global memory. number: in its stream; waited: whether a thread waited for previous ones

    begins_next: where it let the next begin, if it did
    """

    number: int
    kernel: str
    shadow: GlobalShadow
    accesses: dict[int, Access]
    buffers: dict[int, int]  # window of a buffer → its id
    waited: bool = False
    begins_next: Location | None = None

    def touched(self, buffer: Buffer, offsets: np.ndarray, size: int, writes: bool) -> tuple[int, str] | None:
        """The first of some accesses that conflicts with this launch: its index, and what the launch did where."""
        if buffer.window not in self.buffers:
            return None
        shadow = self.shadow.shadows.of(self.buffers[buffer.window])
        if shadow is None:
            return None
        cell = self.shadow.cell
        last = (offsets + size - 1) // cell
        cells = offsets[:, None] // cell + np.arange(max(1, -(-size // cell)))
        cells = np.minimum(cells, last[:, None])
        for kind in (WRITES, UPDATES, READS) if writes else (WRITES, UPDATES):
            found = shadow.tags[kind][cells] != 0
            if found.any():
                which, column = (int(each) for each in np.argwhere(found)[0])
                access = self.accesses[int(shadow.numbers[kind][cells[which, column]])]
                return which, f"{_PAST[kind]} at {access.instruction.location.in_full()}"
        if writes and shadow.constant is not None and (found := shadow.constant[cells]).any():
            which, column = (int(each) for each in np.argwhere(found)[0])
            access = self.accesses[int(found[which, column]) - 1]
            return which, f"{_PAST[READS]} at {access.instruction.location.in_full()}"
        return None

    def require_constant(self, ahead: PastLaunch) -> None:
        """Raise Fault for bytes that this launch read as constant and one ahead, which let it begin early, wrote."""
        for window, identity in self.buffers.items():
            shadow = self.shadow.shadows.of(identity)
            written = ahead.shadow.shadows.of(ahead.buffers[window]) if window in ahead.buffers else None
            if shadow is None or shadow.constant is None or written is None:
                continue
            cells = np.flatnonzero(shadow.constant)
            first = cells * self.shadow.cell // ahead.shadow.cell
            theirs = first[:, None] + np.arange(-(-self.shadow.cell // ahead.shadow.cell))
            for kind in (WRITES, UPDATES):
                found = np.argwhere(written.tags[kind][theirs] != 0)
                if found.size:
                    access = self.accesses[int(shadow.constant[cells[found[0, 0]]]) - 1]
                    other = ahead.accesses[int(written.numbers[kind][theirs[tuple(found[0])]])]
                    at, there = access.instruction.location, other.instruction.location.in_full()
                    sentence = f"reads as constant (ld.global.nc) {access.bytes} global bytes that launch "
                    sentence += f"{ahead.number} ({ahead.kernel}) {_PAST[kind]} at {there}, and that launch let "
                    sentence += f"this one begin before it ends, at {ahead.begins_next.in_full()}: a "
                    sentence += "griddepcontrol.wait does not make them constant"
                    raise Fault("race", str(at), f"{sentence}; {self.kernel}{at.chain()}")

    def written(self) -> tuple[str, str, str] | None:
        """The verb of an access that wrote to some buffer, its line, and the calls around it; None if there is none."""
        for buffer in self.buffers.values():
            shadow = self.shadow.shadows.of(buffer)
            for kind in (WRITES, UPDATES) if shadow else ():
                cells = np.flatnonzero(shadow.tags[kind])
                if cells.size:
                    access = self.accesses[int(shadow.numbers[kind].flat[cells[0]])]
                    return access.kind, str(access.instruction.location), access.instruction.location.chain()
        return None


@dataclass(frozen=True)
class OutsideLaunch:
    """A launch of other code than PTX, which began when all before it had ended. reads, writes: windows of buffers"""

    number: int
    kernel: str
    reads: frozenset[int]
    writes: frozenset[int]
    waited: bool = True
    begins_next: None = None

    def touched(self, buffer: Buffer, offsets: np.ndarray, size: int, writes: bool) -> tuple[int, str] | None:
        if buffer.window in self.writes:
            return 0, "wrote"
        return (0, "read") if writes and buffer.window in self.reads else None

    def written(self) -> tuple[str, str, str] | None:
        return ("writes", self.kernel, "") if self.writes else None


@dataclass
class Dependence:
    """A launch in a stream. before: launches that may not have ended when it begins; early: whether it may begin early

    left: launches that may not have ended even after its wait; past: its accesses, once it has run
    """

    number: int
    early: bool
    before: list[PastLaunch | OutsideLaunch] = field(default_factory=list)
    left: list[PastLaunch | OutsideLaunch] = field(default_factory=list)
    waited: bool = False
    begins_next: Location | None = None
    past: PastLaunch | None = None

    def check(
        self, access: Access, buffer: Buffer, offsets: np.ndarray, size: int, lanes: np.ndarray, waited: np.ndarray,
        fault: Report,
    ) -> None:  # fmt: skip
        """Check accesses of `size` bytes at offsets of a buffer, by lanes of the batch; waited: (n,) bool"""
        for chosen, past in ((~waited, self.before), (waited, self.left)):
            at = np.flatnonzero(chosen)
            for launch in past if at.size else ():
                found = launch.touched(buffer, offsets[at], size, access.kind != "reads")
                if found:
                    which, did = found
                    sentence = f"{access.kind} {size} global bytes that launch {launch.number} ({launch.kernel}) {did} "
                    sentence += "and may not have ended: "
                    sentence += self._why(launch, bool(waited[at[which]]))
                    fault("race", access.instruction, int(lanes[at[which]]), sentence)

    def _why(self, launch: PastLaunch | OutsideLaunch, waited: bool) -> str:
        if waited:
            return f"launch {self.number - 1}, which griddepcontrol.wait waits for, did not wait for it"
        begins = f"; it let others begin at {launch.begins_next.in_full()}" if launch.begins_next else ""
        return f"no griddepcontrol.wait comes before{begins}"

    def unended(self) -> list[PastLaunch | OutsideLaunch]:
        """Launches that may not have ended when this one has."""
        return self.left if self.waited else self.before

    def end(self, kernel: str, shadow: GlobalShadow, accesses: dict[int, Access], buffers: dict[int, int]) -> None:
        """Record that the launch has run. Raises Fault for what it read as constant while others may have written."""
        self.past = PastLaunch(self.number, kernel, shadow, accesses, buffers, self.waited, self.begins_next)
        for ahead in self.before:  # the launch before that let none begin early has ended, with all that it waited for
            overlaps = ahead is self.before[-1] or self.before[-1].begins_next or ahead in self.left
            if overlaps and ahead.begins_next:
                self.past.require_constant(ahead)
