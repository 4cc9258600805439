"""A subject on the memory of one case, here on the CPU, called once for each run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.device.device import Outcome
from harness.device.memory import Memory, flat
from harness.errors import CompileError, LaunchError
from harness.jit.compile import Compiled
from harness.jit.geometry import Grid
from harness.subjects.audit.oracle_guard import watch
from harness.subjects.audit.violations import Violation, ViolationError
from harness.subjects.refusals import declines, describe
from harness.subjects.subject import Subject

GRACE = 0.02  # seconds after which nothing may arrive any more


@dataclass(frozen=True)
class Layout:
    """How a subject sees an array of a case. dtype: NumPy name; shape"""

    dtype: str
    shape: tuple[int, ...]


class SubjectProgram:
    """A subject on one case's memory, here on the CPU.

    inputs, outputs: what it is given, views of `memory` in shape and dtype
    """

    kernels: tuple[Compiled, ...] = ()
    grids: tuple[Grid, ...] = ()
    bf16 = "bfloat16"  # the dtype of a bf16 array
    has_streams = False

    def __init__(self, subject: Subject, target: str, case: Case, memory: Memory, layouts: Mapping[str, Layout]):
        self.subject, self.target, self.case = subject, target, case
        self.memory, self.layouts = memory, layouts
        self.libraries = (self.subject.label,)
        self.inputs = {name: self._view(array, layouts[name]) for name, array in memory.inputs.items()}
        self.outputs = {
            name: self._view(guarded.payload, Layout(guarded.field.dtype, guarded.field.shape))
            for name, guarded in memory.outputs.items()
        }

    @classmethod
    def upload(
        cls, subject: Subject, target: str, case: Case, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]
    ) -> SubjectProgram:
        layouts = {name: Layout(array.dtype.name, array.shape) for name, array in inputs.items()}
        return cls(subject, target, case, cls.memory_of(inputs, fields), layouts)

    @staticmethod
    def memory_of(inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> Memory:
        return Memory({name: flat(array).copy() for name, array in inputs.items()}, fields, np)

    @staticmethod
    def uploaded(array: np.ndarray) -> Any:
        return flat(array)

    def poison(self, byte: int) -> None:
        for guarded in self.memory.outputs.values():
            guarded.poison(byte)

    def twin(self) -> SubjectProgram:
        return type(self)(self.subject, self.target, self.case, self.memory.twin(), self.layouts)

    def put(self, inputs: Mapping[str, np.ndarray]) -> None:
        self.memory.put({name: self.uploaded(array) for name, array in inputs.items()})

    def call(self) -> None:
        """Call the subject once. Raises ViolationError with the line for whatever it raises."""
        try:
            self.subject.quantize(self.case, self.inputs, self.outputs)
        except (KeyboardInterrupt, CompileError, LaunchError, ViolationError):
            raise
        except BaseException as error:  # of whatever kind its author chose; a skip of pytest is no Exception
            violation = Violation.DECLINES_LATE if declines(error) else Violation.RAISES
            raise ViolationError(violation, f"{self.subject.name} {describe(error)}") from None

    def run(self, poison: int, repeat: int) -> Outcome:
        return self._run(poison, self.call)

    def run_behind_work(self, poison: int) -> Outcome | None:
        """Run behind work that keeps the stream busy; None where there are no streams."""
        return None

    def synchronize(self) -> None:
        """Wait for the current stream."""

    def outcome(self, poison: int) -> Outcome:
        return Outcome(self._copies(), self.memory.trespass(poison))

    def later(self, seconds: float = GRACE) -> dict[str, Any]:
        """Copies of the outputs some time after all work is done."""
        time.sleep(seconds)
        return self._copies()

    def _run(self, poison: int, call: Callable[[], None]) -> Outcome:
        self.poison(poison)
        with watch(self.subject):
            call()
        return self.outcome(poison)

    def _copies(self) -> dict[str, Any]:
        return {name: guarded.payload.copy() for name, guarded in self.memory.outputs.items()}

    def _view(self, array: Any, layout: Layout) -> Any:
        dtype = self.bf16 if layout.dtype == "bfloat16" else layout.dtype
        return array.view(np.dtype(dtype)).reshape(layout.shape)
