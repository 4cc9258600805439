"""A device that calls a subject where others launch our kernels, on the same memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.case import Case
from harness.compile import Compiled
from harness.device.device import Device, Outcome
from harness.device.host import HostDevice
from harness.device.memory import Memory, flat
from harness.errors import HarnessError, LaunchError, NotCapable
from harness.interval import Demand
from harness.subjects import Subject
from harness.tensor import Field
from harness.trial.offence import Offence, OffenceError
from harness.trial.watch import watch

if TYPE_CHECKING:
    from harness.clock import Clock
    from harness.trial.timing import TimedSubject

GRACE = 0.02  # seconds after which nothing may arrive any more


def with_subject(device: Device, subject: Subject) -> SubjectDevice:
    """The GPU, or in place of the emulator the CPU, with a subject on it."""
    if device.name == "cuda":
        from harness.device.subject_cuda import CudaSubjectProgram

        return SubjectDevice(device, subject, CudaSubjectProgram)
    return SubjectDevice(HostDevice(), subject, SubjectProgram)


class SubjectDevice:
    """One device with one subject. inner: where it runs, with our own kernels if it is a GPU"""

    def __init__(self, inner: Any, subject: Subject, program: type[SubjectProgram]):
        self.inner, self.subject, self._program = inner, subject, program
        self.subject_label = subject.label
        self.name, self.targets, self.modes = inner.name, inner.targets, inner.modes

    def identity(self) -> dict[str, str]:
        """The device's, and the subject with its version."""
        return self.inner.identity() | {"subject": self.subject.label}

    def admit(self, case: Case) -> None:
        """Raise NotCapable for a subject that is not installed, for what it refuses, and for what the device does."""
        reason = self.subject.absent() or self.subject.refuses(case)
        if reason:
            raise NotCapable(reason)
        self.inner.admit(case)

    def turn(self, case: Case) -> AbstractContextManager[None]:
        """The device's."""
        return self.inner.turn(case)

    def lost(self) -> str:
        """The device's."""
        return self.inner.lost()

    def prepare(
        self, case: Case, target: str, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]
    ) -> SubjectProgram:
        """Upload; a subject compiles when it likes."""
        return self._program.upload(self, case, inputs, fields)

    def timed(
        self, case: Case, data: Sequence[Mapping[str, np.ndarray]], fields: Mapping[str, Field], clock: Clock
    ) -> TimedSubject:
        """Ready for a bench on one set of data and then another; a graph on as many copies as our kernels' are."""
        from harness.trial.timing import TimedSubject

        first = self.prepare(case, self.targets[0], data[0], fields)
        copies = first.copies if case.mode == "graph" else 1
        return TimedSubject([first, *(first.twin() for _ in range(copies - 1))], data, clock)

    def accepts(self, ours: Any, demanded: Demand) -> bool:
        """As the device judges its own kernels."""
        return self.inner.accepts(ours, demanded)

    def to_host(self, array: Any, field: Field) -> np.ndarray:
        """A NumPy array of the field's dtype and shape."""
        return self.inner.to_host(array, field)


@dataclass(frozen=True)
class Layout:
    """How an array of a case looks to a subject. dtype: NumPy name; shape"""

    dtype: str
    shape: tuple[int, ...]


class SubjectProgram:
    """A subject on one case's memory, here on the CPU.

    inputs, outputs: what it is given, views of `memory` in shape and dtype
    """

    kernels: tuple[Compiled, ...] = ()
    grids: tuple[tuple[int, int, int], ...] = ()
    bf16 = "bfloat16"  # the dtype of a bf16 array
    has_streams = False
    copies = 1  # of its memory, that the graph of a bench goes round

    def __init__(self, device: SubjectDevice, case: Case, memory: Memory, layouts: Mapping[str, Layout]):
        self.device, self.subject, self.case = device, device.subject, case
        self.memory, self.layouts = memory, layouts
        self.libraries = (self.subject.label,)
        self.inputs = {name: self._view(array, layouts[name]) for name, array in memory.inputs.items()}
        self.outputs = {
            name: self._view(guarded.payload, Layout(guarded.field.dtype, guarded.field.shape))
            for name, guarded in memory.outputs.items()
        }

    @classmethod
    def upload(
        cls, device: SubjectDevice, case: Case, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]
    ) -> SubjectProgram:
        """With memory of its own."""
        layouts = {name: Layout(array.dtype.name, array.shape) for name, array in inputs.items()}
        return cls(device, case, cls.memory_of(inputs, fields), layouts)

    @staticmethod
    def memory_of(inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> Memory:
        """Guard-banded memory with these inputs."""
        return Memory({name: flat(array).copy() for name, array in inputs.items()}, fields, np)

    @staticmethod
    def uploaded(array: np.ndarray) -> Any:
        """The bytes of an array where `put` takes them from."""
        return flat(array)

    def poison(self, byte: int) -> None:
        """Fill the outputs and their guards."""
        for guarded in self.memory.outputs.values():
            guarded.poison(byte)

    def twin(self) -> SubjectProgram:
        """The same on other memory."""
        return type(self)(self.device, self.case, self.memory.twin(), self.layouts)

    def put(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Other data at the same addresses."""
        self.memory.put({name: self.uploaded(array) for name, array in inputs.items()})

    def call(self) -> None:
        """The subject, once. Raises OffenceError with the line for whatever it raises."""
        try:
            self.subject.quantize(self.case, self.inputs, self.outputs)
        except (HarnessError, OffenceError):
            raise
        except (Exception, SystemExit) as error:  # of whatever kind its author chose
            raise OffenceError(Offence.RAISES, f"{self.subject.name} {told(error)}") from None

    def run(self, poison: int, turn: int) -> Outcome:
        """Poison, call, and take what is there when it returns."""
        return self._run(poison, self.call)

    def run_behind_work(self, poison: int) -> Outcome | None:
        """The same behind work that keeps the stream busy; None where there are no streams."""
        return None

    def current(self, stream: Any) -> AbstractContextManager[Any]:
        """Has work queued on the clock's stream."""
        return stream

    def synchronize(self) -> None:
        """Wait for the current stream."""

    def passes(self, calls: Sequence[Callable[[], None]], clock: Clock) -> Any:
        """A graph of these calls, replayed until it takes long enough to be timed; there are no graphs here."""
        raise LaunchError(f"{self.case.id}: a graph needs a GPU")

    def outcome(self, poison: int) -> Outcome:
        """What the outputs hold, given what they were filled with before."""
        return Outcome(self._copies(), self.memory.trespass(poison))

    def capture(self) -> None:
        """Have `replay` replay what one call queues; there are no graphs here."""
        raise LaunchError(f"{self.case.id}: a graph needs a GPU")

    def replay(self, poison: int) -> Outcome:
        """Poison and launch the graph."""
        raise LaunchError(f"{self.case.id}: a graph needs a GPU")

    def later(self, seconds: float = GRACE) -> dict[str, Any]:
        """What the outputs hold some time after everything was waited for."""
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


def told(error: BaseException) -> str:
    """`raised ValueError at mine.py:12: the sentence`"""
    frames = extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"raised {type(error).__name__}{where}: {' '.join(str(error).split())}"
