"""What a subject refuses, it refuses before it has seen data."""

from __future__ import annotations

import pytest
from in_process import in_process

from evidence.cheating.tools import work
from harness.device.emulator import EmulatorDevice
from harness.subjects.audit.verify import audit
from harness.subjects.device import Refusals, SubjectDevice, with_subject
from harness.subjects.subject import Subject
from harness.subjects.violations import ViolationError
from harness.suite.suite import find_case
from harness.verdict import Verdict

TAKEN, REFUSED = (find_case(f"swizzle/default/{shape}/normal/eager") for shape in ("16x16", "16x128"))


def only_square(case) -> str:
    return "" if case.rows == case.cols else "only square ones"


def subject(refuses=only_square, **changes) -> Subject:
    def quantize(case, inputs, outputs) -> None:
        work(inputs["scale_inv"], outputs["swizzled_scale_inv"])

    return Subject("mine:quantize", "source 0", quantize, refuses=refuses, **changes)


def device() -> SubjectDevice:
    return with_subject(EmulatorDevice(), in_process(subject()))


def test_what_was_refused_at_the_start_is_excluded_after_others_ran():
    against = device()
    against.refusals.freeze([TAKEN, REFUSED])
    assert audit(TAKEN, against).verdict is Verdict.PASS
    result = audit(REFUSED, against)
    assert (result.verdict, result.reason) == (Verdict.EXCLUDED, "only square ones")


def test_what_nobody_asked_about_at_the_start_is_an_offence():
    against = device()
    assert audit(TAKEN, against).verdict is Verdict.PASS
    result = audit(REFUSED, against)
    assert (result.verdict, result.offence) == (Verdict.LAUNCH_ERROR, "declines_late")
    assert result.reason.startswith(
        f"declines_late: mine:quantize refused {REFUSED.id} for the first time after it had"
    )


def test_a_violation_at_the_start_is_that_of_its_case():
    def refuses(case) -> str:
        if case == REFUSED and not seen:
            seen.append(case)
            raise ValueError("once")
        return ""

    seen: list = []
    refusals = Refusals(in_process(subject(refuses)))
    refusals.freeze([TAKEN, REFUSED])
    assert refusals.of(TAKEN) == ""
    with pytest.raises(ViolationError, match="raised ValueError at test_subject_refusals.py"):
        refusals.of(REFUSED)


def test_what_is_not_installed_is_not_asked():
    asked: list = []
    refusals = Refusals(subject(asked.append, needs={"nosuchpackage": "pip install nosuchpackage"}))
    assert "is not installed" in refusals.of(TAKEN)
    assert asked == []
