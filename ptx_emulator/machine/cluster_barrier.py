"""`barrier.cluster`: all threads of a cluster arrive, and wait for one another."""

from __future__ import annotations

import numpy as np

from ptx_emulator.machine.lanes import Lanes
from ptx_emulator.ptx.syntax import Instruction
from ptx_emulator.races.async_order import AsyncOrder, larger
from ptx_emulator.registers import Bits


class ClusterBarrier:
    """The barrier of one cluster. first, stop: its lanes of the batch

    arrived: bool for each, in this phase; joined: the phase that each arrived in, -1 for none
    phase: how many are complete; released: the clock that completed phases pass on
    """

    owed = 0  # bytes, for the interface of an mbarrier; none are ever expected

    def __init__(self, lanes: Lanes, order: AsyncOrder | None, cluster: int, size: int):
        self.lanes, self.order, self.cluster = lanes, order, cluster
        self.first, self.stop = cluster * size * lanes.threads, (cluster + 1) * size * lanes.threads
        count = self.stop - self.first
        self.arrived, self.joined = np.zeros(count, bool), np.full(count, -1)
        self.phase = 0
        self.gathered: Bits | None = None
        self.released: Bits | None = None
        self.waited: Instruction | None = None

    def arrive(self, instruction: Instruction, lanes: np.ndarray, releases: bool) -> None:
        """Record that these lanes of the batch arrive. Raises Fault for one that arrived before and has not waited."""
        at = lanes - self.first
        twice = self.arrived[at]
        if twice.any():
            lane = int(lanes[np.argmax(twice)])
            sentence = f"{instruction.mnemonic} again, with no barrier.cluster.wait between"
            self.lanes.fault("divergent_barrier", instruction, lane, sentence)
        self.arrived[at], self.joined[at] = True, self.phase
        if self.order:
            order = self.order
            clock = order.publish(self.cluster, at) if releases else order.fenced(self.cluster, at, wide=True)
            self.gathered = larger(self.gathered, clock)
        self.advance()

    def advance(self) -> bool:
        """Complete the phase if all live threads have arrived; whether it was completed."""
        live = self.lanes.live.reshape(-1)[self.first : self.stop]
        if not self.arrived.any() or (live & ~self.arrived).any():
            return False
        if self.gathered is not None:
            self.released = larger(self.released, self.gathered)
        self.arrived[:], self.gathered, self.phase = False, None, self.phase + 1
        return True

    def wait(self, instruction: Instruction, lanes: np.ndarray) -> None:
        """Record that these lanes waited."""
        if (self.joined[lanes - self.first] < 0).any():
            lane = int(lanes[np.argmax(self.joined[lanes - self.first] < 0)])
            sentence = f"{instruction.mnemonic} with no barrier.cluster.arrive before"
            self.lanes.fault("divergent_barrier", instruction, lane, sentence)
        self.joined[lanes - self.first] = -1
        if self.order and self.released is not None:
            self.order.learn(self.cluster, lanes - self.first, self.released)

    def complete(self, lanes: np.ndarray) -> np.ndarray:
        """Whether the phase that each of these lanes arrived in is complete."""
        return self.phase > self.joined[lanes - self.first]

    def lacks(self) -> str:
        """Why the phase is not complete."""
        live = self.lanes.live.reshape(-1)[self.first : self.stop]
        missing = np.flatnonzero(live & ~self.arrived)
        return f"{len(missing)} threads of the cluster have not arrived, the first " + (
            self.lanes.name(self.first + int(missing[0])) if len(missing) else "none"
        )
