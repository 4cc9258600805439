"""A case launched time after time on memory that the L2 has let go of: its copies in turn, captured into one graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from harness.case import Case
from harness.device.cuda import CudaDevice, CudaProgram
from harness.device.memory import Memory

COLD = 3  # times the L2, that the copies fill at least
MOST_COPIES = 256


def copies(memory: Memory, l2_bytes: int) -> list[Memory]:
    """So many copies of a case's memory that none of it is left in the L2 when its turn comes again.

    At least two, and MOST_COPIES at most, which is not enough for the smallest cases.
    """
    wanted = math.ceil(COLD * l2_bytes / max(1, memory.nbytes)) + 1
    return [memory, *(memory.twin() for _ in range(min(max(wanted, 2), MOST_COPIES) - 1))]


class Rotation:
    """The launches of one side of a case, on each of some memories."""

    def __init__(self, device: CudaDevice, case: Case, memories: Sequence[Memory]):
        self.programs = [CudaProgram(device, case, device.targets[0], memory) for memory in memories]

    def poison(self, byte: int) -> None:
        """Fill every output of every copy on the current stream."""
        for program in self.programs:
            program.poison(byte)

    def capture(self, stream: Any, calls: int) -> Any:
        """A graph of so many calls, one copy after the other and again from the first."""
        with stream:
            self.programs[0].load_libraries()
            stream.begin_capture()
            for number in range(calls):
                self.programs[number % len(self.programs)].launch()
            return stream.end_capture()
