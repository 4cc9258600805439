"""The names of what a subject can be caught at, each with the verdict it gets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from harness.verdict import Verdict


class Offence(StrEnum):
    """What a subject did; its value stands in records and at the head of the reason."""

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

    @property
    def verdict(self) -> Verdict:
        """What a case gets in which it was seen."""
        return _VERDICTS.get(self, Verdict.NONDETERMINISTIC)


_VERDICTS = {
    Offence.SKIPS_WORK: Verdict.UNWRITTEN,
    Offence.ASLEEP_AT_FIRST: Verdict.UNWRITTEN,
    Offence.FIRST_ROTATION: Verdict.UNWRITTEN,
    Offence.NOT_CAPTURED: Verdict.UNWRITTEN,
    Offence.READS_ORACLE: Verdict.LAUNCH_ERROR,
    Offence.RAISES: Verdict.LAUNCH_ERROR,
    Offence.WRITES_OUTSIDE: Verdict.OUT_OF_BOUNDS,
    Offence.MODIFIES_INPUTS: Verdict.OUT_OF_BOUNDS,
}


@dataclass(frozen=True)
class Caught:
    """One offence, told in a sentence."""

    offence: Offence
    sentence: str

    @property
    def reason(self) -> str:
        """`writes_late: 64 bytes of output 'rowwise_data' changed after its stream was done`"""
        return f"{self.offence}: {self.sentence}"


class OffenceError(Exception):
    """Raised where going on makes no sense."""

    def __init__(self, offence: Offence, sentence: str):
        super().__init__(f"{offence}: {sentence}")
        self.caught = Caught(offence, sentence)
