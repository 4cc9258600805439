"""A case in memory of a GPU that is shared with a subject's process, which calls the subject or replays its graph."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from harness.device.device import Outcome
from harness.device.memory import upload
from harness.subjects import streams
from harness.subjects.process import shown
from harness.subjects.program import GRACE, SubjectProgram
from harness.subjects.shared import CudaBlock, HostBlock
from harness.subjects.violations import Violation, ViolationError

LONGEST = 3600.0  # seconds; a longer reported round is not believed


class CudaSubjectProgram(SubjectProgram):
    """A subject on one case's memory of the GPU.

    An outcome has the outputs in the order of the subject's stream: its process copies them to the snapshot, queued
    behind the call. This process fills and compares memory, and waits for its own work before and after each request.
    """

    bf16 = "uint16"  # CuPy's dtype for 16 bits without arithmetic
    has_streams = True
    block_type: ClassVar[type[HostBlock]] = CudaBlock

    @staticmethod
    def uploaded(array: np.ndarray) -> Any:
        return upload(array)

    def poison(self, byte: int) -> None:
        super().poison(byte)
        for array in self._snapshot.values():
            array.fill(byte)

    def synchronize(self) -> None:
        import cupy

        with streams.errors(self.case.id):
            cupy.cuda.runtime.deviceSynchronize()

    def run(self, poison: int, repeat: int) -> Outcome:
        """Run on the default stream on even repeats, on a non-blocking one on odd repeats."""
        return self._snapped(poison, "call", own_stream=repeat % 2 == 1)

    def run_behind_work(self, poison: int) -> Outcome:
        """Poison is queued behind the work as well: it overwrites what did not wait for the stream."""
        return self._snapped(poison, "call", behind=poison)

    def capture(self) -> None:
        self._ask("capture")

    def replay(self, poison: int) -> Outcome:
        return self._snapped(poison, "replay")

    def later(self, seconds: float = GRACE) -> dict[str, Any]:
        found = super().later(seconds)
        self.synchronize()
        return found

    # For a bench. copy: None stands for the graph of all copies

    def capture_timed(self) -> None:
        self._ask("capture", copies=len(self.memories), timed=True)

    def time(self, copy: int | None) -> tuple[float, bool]:
        """The seconds that the subject's process reports, and whether the GPU waited for the host."""
        found = self._ask("time", copy=copy)
        seconds = found.get("seconds")
        if not isinstance(seconds, float) or not 0 < seconds < LONGEST:
            raise ViolationError(Violation.FORGES, f"the process of the subject reported {shown(seconds)} seconds")
        return seconds, found.get("exposed") is True

    def launch(self, copy: int | None) -> None:
        self._ask("launch", copy=copy)

    def ping(self) -> None:
        self._ask("ping")

    def free_bytes(self) -> int:
        import cupy

        return cupy.cuda.runtime.memGetInfo()[0]

    @cached_property
    def of(self) -> ModuleType:
        """The module of the memory's arrays, CuPy."""
        return import_module("cupy")

    def _snapped(self, poison: int, operation: str, **given: Any) -> Outcome:
        self.poison(poison)
        self._ask(operation, **given)
        outputs = {name: array.copy() for name, array in self._snapshot.items()}
        found = Outcome(outputs, self.memory.trespass(poison))
        self.synchronize()
        return found

    def _ask(self, operation: str, files: tuple[int, ...] = (), **given: Any) -> dict[str, Any]:
        self.synchronize()  # otherwise work queued here would run beside the request
        return super()._ask(operation, files, **given)
