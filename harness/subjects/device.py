"""A device that calls a subject in place of launching our kernels, on the same kind of memory."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.device.capability import DECLARED, OF_THE_DEVICE
from harness.device.device import Device, InPlaceOfOurs
from harness.device.emulator import EmulatorDevice
from harness.errors import NotCapable
from harness.subjects.cuda_program import CudaSubjectProgram
from harness.subjects.program import SubjectProgram
from harness.subjects.subject import Subject
from harness.subjects.violations import Violation, ViolationError
from harness.verdict import Result, Verdict


class Refusals:
    """The answers of one subject. Its first answer on a case is final.

    A changed answer is a violation, and so is a first refusal after the subject has seen any data, even another case's.
    """

    def __init__(self, subject: Subject):
        self.subject = subject
        self.saw_data = False
        self._absent = subject.absent()
        self._answers: dict[Case, str] = {}
        self._violations: dict[Case, ViolationError] = {}

    def freeze(self, cases: Iterable[Case]) -> None:
        """Ask about all cases before any runs; a violation then counts only for its own case."""
        for case in cases:
            try:
                self.of(case)
            except ViolationError as error:
                self._violations[case] = error

    def of(self, case: Case) -> str:
        """Why the subject does not take a case, empty if it does. Raises ViolationError."""
        if self._absent:
            return self._absent
        if outside := self.subject.outside(case):
            return outside
        if case in self._violations:
            raise self._violations[case]
        answer = self._ask(case)
        known = self._answers.get(case)
        if known is None and answer and self.saw_data:
            raise self._late(f"refused {case.id} for the first time after it had seen data: {answer}")
        if known not in (None, answer):
            raise self._late(f"first said {known or 'that it takes the case'!r}, and then {answer!r}")
        self._answers[case] = answer
        return answer

    def _ask(self, case: Case) -> str:
        try:
            answer = self.subject.refuses(case)
        except ViolationError as error:
            finding = error.finding
            raise ViolationError(finding.violation, f"refuses() of {finding.sentence}") from None
        if type(answer) is not str:
            sentence = f"refuses() of {self.subject.name} returned {type(answer).__name__}; it must return a str"
            raise ViolationError(Violation.RAISES, sentence)
        # What a device says, or the declared flags, is not counted as a refusal, so no subject may say it.
        return f"it says: {answer}" if answer.startswith((OF_THE_DEVICE, DECLARED)) else answer

    def _late(self, sentence: str) -> ViolationError:
        return ViolationError(Violation.DECLINES_LATE, f"{self.subject.name} {sentence}")


LARGEST = 1 << 26  # elements; beyond it, a case's oracles take minutes


class HostDevice(EmulatorDevice):
    """Compares arrays as the emulator does."""

    name = "host"
    targets = ("host",)

    def identity(self) -> dict[str, str]:
        return {"device": "host", "processor": platform.machine()}

    def admit(self, case: Case) -> None:
        if case.mode not in self.modes:
            raise NotCapable(f"capability: there are no CUDA graphs on a CPU; mode {case.mode!r} needs a GPU")
        if case.elements > LARGEST:
            raise NotCapable(f"capability: more than {LARGEST} elements need a GPU")


def with_subject(device: Device, subject: Subject) -> SubjectDevice:
    """The GPU, or the CPU in place of the emulator, with a subject in a process of its own."""
    if device.name != "cuda":
        return SubjectDevice(HostDevice(), subject, SubjectProgram)
    device.contexts = 2  # its own and the subject's
    subject.child.use_gpu(index=device.index, target=device.targets[0], l2_bytes=int(device.properties["l2CacheSize"]))
    return SubjectDevice(device, subject, CudaSubjectProgram)


class SubjectDevice(InPlaceOfOurs):
    """One device with one subject. inner: where it runs, with our own kernels if it is a GPU"""

    def __init__(self, inner: Any, subject: Subject, program: type[SubjectProgram]):
        super().__init__(inner, subject.label)
        self.subject, self._program, self.child = subject, program, subject.child
        self.refusals = Refusals(subject)
        self._last: SubjectProgram | None = None
        self._held: tuple[SubjectProgram, Mapping[str, Any]] | None = None  # of a case that was right, and its outputs

    def admit(self, case: Case) -> None:
        """Raise NotCapable if the subject is not installed or refuses the case, or the device refuses it.

        Raises ViolationError for a refusal that comes late or changes.
        """
        reason = self.refusals.of(case)
        if reason:
            raise NotCapable(reason)
        self.inner.admit(case)

    def prepare(
        self, case: Case, target: str, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field], copies: int = 1
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
