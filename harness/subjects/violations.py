"""The rules that subjects break, by name, each with its verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from harness.verdict import Verdict


class Violation(StrEnum):
    """A rule that a subject broke; the value is used in records and at the head of the reason."""

    SKIPS_WORK = "skips_work"
    ASLEEP_AT_FIRST = "asleep_at_first"
    NOT_EVERY_CALL = "not_every_call"
    WRITES_LATE = "writes_late"
    OTHER_STREAM = "other_stream"
    CACHES_BY_POINTER = "caches_by_pointer"
    FIRST_ROTATION = "first_rotation"
    NOT_CAPTURED = "not_captured"
    READS_ORACLE = "reads_oracle"
    WRITES_OUTSIDE = "writes_outside"
    MODIFIES_INPUTS = "modifies_inputs"
    DEPENDS_ON_POISON = "depends_on_poison"
    NOT_IN_TIMING = "not_in_timing"
    RAISES = "raises"
    DECLINES_LATE = "declines_late"
    LEAVES = "leaves"
    HANGS = "hangs"
    FORGES = "forges_answers"
    BELOW_WALL_CLOCK = "below_wall_clock"

    @property
    def verdict(self) -> Verdict:
        found = (verdict for verdict, violations in _VERDICTS.items() if self in violations)
        return next(found, Verdict.NONDETERMINISTIC)


_VERDICTS = {
    Verdict.UNWRITTEN: {
        Violation.SKIPS_WORK, Violation.ASLEEP_AT_FIRST, Violation.FIRST_ROTATION, Violation.NOT_CAPTURED,
    },
    Verdict.LAUNCH_ERROR: {
        Violation.READS_ORACLE, Violation.RAISES, Violation.DECLINES_LATE, Violation.LEAVES, Violation.HANGS,
        Violation.FORGES, Violation.BELOW_WALL_CLOCK,
    },
    Verdict.OUT_OF_BOUNDS: {Violation.WRITES_OUTSIDE, Violation.MODIFIES_INPUTS},
}  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """A violation, with a sentence about it."""

    violation: Violation
    sentence: str

    @property
    def reason(self) -> str:
        """Text such as `writes_late: 64 bytes of output 'rowwise_data' changed after its stream was done`."""
        return f"{self.violation}: {self.sentence}"


class ViolationError(Exception):
    """A violation after which nothing more can be learned of the case."""

    def __init__(self, violation: Violation, sentence: str):
        super().__init__(f"{violation}: {sentence}")
        self.finding = Finding(violation, sentence)
