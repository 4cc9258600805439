"""One mbarrier: what it expects, what came, and who used it last."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ptx_emulator.ptx.syntax import Instruction
from ptx_emulator.registers import U32, Bits


class Semantics(NamedTuple):
    """The semantics of an arrival or a wait. scope: `cta` or `cluster`; empty for none, which PTX takes as `cta`"""

    relaxed: bool
    scope: str


class Uses:
    """The last use of an mbarrier by each thread of its cluster, of one kind.

    epoch: (rows,), 0 for none; phase: (rows,), in which it counts, so that who knows the phase complete knows of it
    """

    def __init__(self, rows: int):
        self.epoch, self.phase, self._by = np.zeros(rows, U32), np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        self._instructions: dict[int, Instruction] = {}

    def add(self, instruction: Instruction, rows: np.ndarray | int, epoch: int, phase: int) -> None:
        """Record a use by these rows."""
        self._instructions[id(instruction)] = instruction
        self.epoch[rows], self.phase[rows], self._by[rows] = epoch, phase, id(instruction)

    def unknown(self, clock: Bits, counter: int) -> np.ndarray:
        """The rows whose uses a thread with this clock does not know. counter: of the phases, -1 for no such"""
        late = (self.epoch > 0) & (clock[: len(self.epoch)] <= self.epoch)
        return np.flatnonzero(late & (self.phase >= int(clock[counter])) if counter >= 0 else late)

    def instruction(self, row: int) -> Instruction:
        """The instruction of the last use by a row."""
        return self._instructions[int(self._by[row])]


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
    gathered, released: clocks that arrivals of this phase, and of all earlier ones, pass on, by whether they are by
    other blocks; warps: the same for warps of its own
    brought: whether copies counted in the phase before
    last: what completed the phase before; arrived, looked: arrivals and other uses by threads; None without an order
    brings: copies and asynchronous arrivals of the latest phase that has some; whose clock is reached has come
    tells: whether arrivals order global memory as an atomic does, because they are relaxed or another block's
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
    gathered: list[Bits | None] = field(default_factory=lambda: [None, None])
    released: list[Bits | None] = field(default_factory=lambda: [None, None])
    arrivals: list[Event] = field(default_factory=list)
    expects: list[Event] = field(default_factory=list)
    copies: list[Event] = field(default_factory=list)
    waited: Instruction | None = None
    warps: Bits | None = None
    last: str = ""
    brought: bool = False
    arrived: Uses | None = None
    looked: Uses | None = None
    brings: list[tuple[Instruction, int, Bits | None]] = field(default_factory=list)
    tells: bool = False

    @property
    def untouched(self) -> bool:
        """Whether nobody has used it since its init."""
        return not (self.phase or self.waited or self.arrivals or self.expects or self.copies)
