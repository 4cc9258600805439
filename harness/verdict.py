"""The closed sets of outcomes, the comparison of two times, and the record of one case."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from harness.errors import Exit


class Verdict(StrEnum):
    """What verification found. Only PASS may carry a time, and CONVENTION, which is a subject's alone.

    CONVENTION: bytes differ from ours, and conventions that the subject declares explain every one of them
    """

    PASS = "PASS"
    CONVENTION = "CONVENTION"
    MISMATCH = "MISMATCH"
    WRONG_SHAPE = "WRONG_SHAPE"
    UNWRITTEN = "UNWRITTEN"
    OUT_OF_BOUNDS = "OUT_OF_BOUNDS"
    NONDETERMINISTIC = "NONDETERMINISTIC"
    COMPILE_ERROR = "COMPILE_ERROR"
    LAUNCH_ERROR = "LAUNCH_ERROR"
    EXCLUDED = "EXCLUDED"

    @property
    def right(self) -> bool:
        """Whether the case was run and nothing was found wrong, so that it may be timed."""
        return self in (Verdict.PASS, Verdict.CONVENTION)

    @property
    def exit_code(self) -> Exit:
        """What a run that holds this verdict exits with, as far as bytes go."""
        return Exit.CLEAN if self.right or self is Verdict.EXCLUDED else Exit.BYTES_DIFFER


class Performance(StrEnum):
    """What a comparison of times found."""

    FASTER = "FASTER"
    SAME = "SAME"
    SLOWER = "SLOWER"
    AMBIGUOUS = "AMBIGUOUS"
    NO_BASELINE = "NO_BASELINE"
    INVALID = "INVALID"
    NOT_MEASURED = "NOT_MEASURED"

    @property
    def exit_code(self) -> Exit:
        """What a run that holds this verdict exits with, as far as time goes."""
        return {
            Performance.SLOWER: Exit.SLOWER,
            Performance.AMBIGUOUS: Exit.NOISY,
            Performance.INVALID: Exit.NOISY,
            Performance.NOT_MEASURED: Exit.NOISY,
            Performance.NO_BASELINE: Exit.NO_BASELINE,
        }.get(self, Exit.CLEAN)


@dataclass(frozen=True)
class Change:
    """Times of now over times of the base. ratio: of the medians; low, high: its confidence interval."""

    ratio: float
    low: float
    high: float

    def scaled(self, factor: float) -> Change:
        """The same change in another unit of time."""
        return Change(self.ratio * factor, self.low * factor, self.high * factor)

    def verdict(self, effect: float, noise: float = 0.0) -> Performance:
        """SLOWER or FASTER only if the interval leaves out 1 and the ratio is at least `effect` and `noise` off.

        SAME only if the whole interval is within `effect`, and AMBIGUOUS between the two.
        """
        least = 1 + max(effect, noise)
        if self.low > 1 and self.ratio >= least:
            return Performance.SLOWER
        if self.high < 1 and self.ratio <= 1 / least:
            return Performance.FASTER
        if self.low > 1 / (1 + effect) and self.high < 1 + effect:
            return Performance.SAME
        return Performance.AMBIGUOUS

    def __str__(self) -> str:
        """`+3.1% (+2.9% to +3.3%)`"""
        return f"{self.ratio - 1:+.1%} ({self.low - 1:+.1%} to {self.high - 1:+.1%})"


@dataclass(frozen=True)
class Judgement:
    """The verdict on the times of one case. now_us, base_us: medians, if timed; change: now over base."""

    case_id: str
    verdict: Performance
    reason: str
    now_us: float | None = None
    base_us: float | None = None
    change: Change | None = None


@dataclass(frozen=True)
class Result:
    """The outcome of one case, with its evidence.

    reason: one line; why a case is EXCLUDED, or what is wrong
    story: the one-screen text of a mismatch, empty for a pass
    bytes_compared: output bytes held against an oracle, summed over oracles, targets and runs
    instantiations: kernels that ran, `sm_90a per_tensor_amax<bf16>`
    oracles: the witnesses that were asked, `numpy`, `torch`
    died: the process ended under the case, and nobody knows why; a resumed run does it again
    digests: of the bytes that were written, by target, as `harness.verify.digest` makes them, only for a PASS
    times: filled by the bench, only for a PASS or a CONVENTION
    subject: name and version of the subject that ran in place of our kernels
    offence: what the subject was caught at, by name
    """

    case_id: str
    recipe: str
    verdict: Verdict
    reason: str = ""
    story: str = ""
    input: str = ""
    device: str = ""
    targets: tuple[str, ...] = ()
    instantiations: tuple[str, ...] = ()
    oracles: tuple[str, ...] = ()
    bytes_compared: int = 0
    seconds: float = 0.0
    died: bool = False
    digests: dict = field(default_factory=dict)
    times: dict = field(default_factory=dict)
    subject: str = ""
    offence: str = ""

    def __post_init__(self) -> None:
        if self.times and not self.verdict.right:
            raise ValueError(f"{self.case_id}: a {self.verdict} may carry no time")

    @property
    def conventions(self) -> str:
        """The names of the conventions that explain a CONVENTION, without their counts."""
        return "; ".join(part.partition(":")[0] for part in self.reason.split("; "))

    def to_record(self) -> dict:
        """The result in JSON's own types, as a line of a journal has it and pytest-xdist can carry it."""
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def from_record(cls, record: dict) -> Result:
        """The result a journal line holds."""
        lists = {name: tuple(record[name]) for name in ("targets", "instantiations", "oracles")}
        return cls(**{**record, **lists, "verdict": Verdict(record["verdict"])})


def failures_of(records: Iterable[dict]) -> list[dict]:
    """The records of wrong kernels."""
    return [record for record in records if Verdict(record["verdict"]).exit_code is not Exit.CLEAN]
