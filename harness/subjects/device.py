"""A device that calls a subject in place of launching our kernels, on the same kind of memory."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.interval import Demand
from harness.device.device import Device
from harness.errors import NotCapable
from harness.subjects.audit.violations import Violation, ViolationError
from harness.subjects.cpu_device import HostDevice
from harness.subjects.cuda_program import CudaSubjectProgram
from harness.subjects.program import SubjectProgram
from harness.subjects.refusals import Refusals
from harness.subjects.subject import Subject
from harness.verdict import Result, Verdict


def with_subject(device: Device, subject: Subject) -> SubjectDevice:
    """The GPU, or the CPU in place of the emulator, with a subject in a process of its own."""
    if device.name != "cuda":
        return SubjectDevice(HostDevice(), subject, SubjectProgram)
    device.contexts = 2  # its own and the subject's
    subject.child.use_gpu(index=device.index, target=device.targets[0], l2_bytes=int(device.properties["l2CacheSize"]))
    return SubjectDevice(device, subject, CudaSubjectProgram)


class SubjectDevice:
    """One device with one subject. inner: where it runs, with our own kernels if it is a GPU"""

    def __init__(self, inner: Any, subject: Subject, program: type[SubjectProgram]):
        self.inner, self.subject, self._program, self.child = inner, subject, program, subject.child
        self.subject_label = subject.label
        self.refusals = Refusals(subject)
        self.name, self.targets, self.modes = inner.name, inner.targets, inner.modes
        self._last: SubjectProgram | None = None
        self._held: tuple[SubjectProgram, Mapping[str, Any]] | None = None  # of a case that was right, and its outputs

    def identity(self) -> dict[str, str]:
        return self.inner.identity() | {"subject": self.subject.label}

    def condition(self) -> dict[str, Any]:
        return self.inner.condition()

    def admit(self, case: Case) -> None:
        """Raise NotCapable if the subject is not installed or refuses the case, or the device refuses it.

        Raises ViolationError for a refusal that comes late or changes.
        """
        reason = self.refusals.of(case)
        if reason:
            raise NotCapable(reason)
        self.inner.admit(case)

    def reserve(self, case: Case, needs: int = 0, alone: bool = False) -> AbstractContextManager[None]:
        return self.inner.reserve(case, needs, alone)

    def lost(self) -> str:
        return self.inner.lost()

    def prepare(
        self,
        case: Case,
        target: str,
        inputs: Mapping[str, np.ndarray],
        fields: Mapping[str, Field],
        copies: int = 1,
    ) -> SubjectProgram:
        """Allocate a case's memory and map it in the subject's process, which unmaps the previous case's.

        Raises ViolationError if the outputs of a case that was right have changed since it was judged.
        """
        self.refusals.saw_data = True
        self.child.release()
        if late := self.late():
            raise ViolationError(Violation.WRITES_LATE, late)
        self._last = self._program(self.child, self.subject.label, case, inputs, fields, copies)
        return self._last

    def done(self, result: Result) -> None:
        """Free the memory of a case. A process that did anything wrong is ended; the next case gets a new one."""
        program, self._last = self._last, None
        if result.verdict.right or result.verdict is Verdict.EXCLUDED:
            if program is not None and program.may_be_held:
                self._held = program, program.outcome(0).outputs
            self.child.release()
        else:
            self.child.end()

    def late(self) -> str:
        """Read the held outputs again: a sentence if a case wrote after it was judged, else an empty string."""
        held, self._held = self._held, None
        if held is None:
            return ""
        program, before = held
        now = program.outcome(0).outputs
        field = next((name for name, array in before.items() if (array != now[name]).any()), "")
        return field and f"output {field!r} of {program.case.id} changed after that case was judged"

    def end(self) -> str:
        """End the subject's process, and read the held outputs a last time; the sentence is that of `late`."""
        self.child.end()
        late = self.late()
        return late and f"{Violation.WRITES_LATE}: {late}"

    def accepts(self, actual: Any, expected: Demand) -> bool:
        return self.inner.accepts(actual, expected)

    def to_host(self, array: Any, field: Field) -> np.ndarray:
        return self.inner.to_host(array, field)
