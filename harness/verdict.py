"""The possible findings about a case's bytes and times, their exit codes, and the result of one case."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum

from harness.errors import Exit
from harness.text import one_line, printable

_LABEL = 10  # columns
# A record has these only where they say something.
_SELDOM = ("trace", "while_timed", "notes", "second_opinion", "launched")


class Verdict(StrEnum):
    """The finding of a verification.

    IMPOSSIBLE: bytes were right, but timed launches took less time than the bytes or operations need
    CONVENTION: a subject's bytes differ from ours, and conventions that it declares explain every one of them
    SETUP_ERROR: no kernel was judged, because a suite, recipe, oracle or card is at fault
    NOT_EMULATED: no kernel was judged, because it uses something that the emulator lacks
    NO_DEVICE: no kernel was judged, because this machine lacks the memory or the compiler that the case takes
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
    IMPOSSIBLE = "IMPOSSIBLE"
    SETUP_ERROR = "SETUP_ERROR"
    NOT_EMULATED = "NOT_EMULATED"
    NO_DEVICE = "NO_DEVICE"
    EXCLUDED = "EXCLUDED"

    @property
    def right(self) -> bool:
        """Whether the case ran and nothing was wrong, so that it may be timed."""
        return self in (Verdict.PASS, Verdict.CONVENTION)

    @property
    def judges(self) -> bool:
        """Whether it says something about a kernel. The others say why none was judged."""
        return self is not Verdict.EXCLUDED and self not in _NOT_JUDGED

    @property
    def exit_code(self) -> Exit:
        """The exit code of a run in which this is the worst verdict."""
        if self.right or self is Verdict.EXCLUDED:
            return Exit.CLEAN
        return _NOT_JUDGED.get(self, Exit.BYTES_DIFFER)


# The exit codes of the verdicts that say that no kernel was judged, although the case was asked for and not excluded.
_NOT_JUDGED = {
    Verdict.SETUP_ERROR: Exit.USAGE,
    Verdict.NOT_EMULATED: Exit.NO_DEVICE,
    Verdict.NO_DEVICE: Exit.NO_DEVICE,
}
NO_KERNEL_JUDGED = {
    Verdict.SETUP_ERROR: "no kernel was judged: the suite, recipe, oracle or card is at fault",
    Verdict.NOT_EMULATED: "no kernel was judged: the emulator lacks what it uses",
    Verdict.NO_DEVICE: "no kernel was judged: this machine lacks what the case takes",
}


def fault_of(verdict: Verdict) -> list[str]:
    """The line of a screen that says that no kernel was judged, and whose fault that is; none if one was."""
    return [f"  {NO_KERNEL_JUDGED[verdict]}"] if verdict in NO_KERNEL_JUDGED else []


@dataclass(frozen=True)
class Story:
    """The findings on wrong bytes.

    head: the first line; without one, verdict and reason stand alone. rows: label and text of each line below
    trace: options of `harness trace` that lead to the first wrong byte; none if that would show other bytes
    where: the first wrong field, or the kind and line of a wrong access; empty if there is neither
    """

    head: str = ""
    rows: tuple[tuple[str, str], ...] = ()
    trace: tuple[str, ...] = ()
    where: str = ""

    @property
    def cause(self) -> str:
        """The diagnosed cause with its explanation; empty if there is none."""
        return dict(self.rows).get("cause", "")

    def __str__(self) -> str:
        return "\n".join([self.head, *(labelled(*row) for row in self.rows)])


NO_STORY = Story()


def labelled(label: str, text: str) -> str:
    return f"{label:<{_LABEL}}{text}"


class Performance(StrEnum):
    """The finding of a comparison of times."""

    FASTER = "FASTER"
    SAME = "SAME"
    SLOWER = "SLOWER"
    AMBIGUOUS = "AMBIGUOUS"
    NO_BASELINE = "NO_BASELINE"
    INVALID = "INVALID"
    NOT_MEASURED = "NOT_MEASURED"

    @property
    def exit_code(self) -> Exit:
        """The exit code of a run in which this is the worst finding."""
        return {
            Performance.SLOWER: Exit.SLOWER,
            Performance.AMBIGUOUS: Exit.NOISY,
            Performance.INVALID: Exit.NOISY,
            Performance.NOT_MEASURED: Exit.NOISY,
            Performance.NO_BASELINE: Exit.NO_BASELINE,
        }.get(self, Exit.CLEAN)


@dataclass(frozen=True)
class TimeRatio:
    """New times over base times. ratio: of the medians; low, high: its confidence interval"""

    ratio: float
    low: float
    high: float

    def scaled(self, factor: float) -> TimeRatio:
        """The change in another unit of time."""
        return TimeRatio(self.ratio * factor, self.low * factor, self.high * factor)

    def verdict(self, effect: float, noise: float = 0.0) -> Performance:
        """SLOWER or FASTER only if the interval excludes 1 and the ratio is off by at least `effect` and `noise`.

        SAME only if the whole interval is within `effect`; AMBIGUOUS otherwise.
        """
        least = 1 + max(effect, noise)
        if self.low > 1 and self.ratio >= least:
            return Performance.SLOWER
        if self.high < 1 and self.ratio <= 1 / least:
            return Performance.FASTER
        if self.low > 1 / (1 + effect) and self.high < 1 + effect:
            return Performance.SAME
        return Performance.AMBIGUOUS

    def detectable(self, effect: float, noise: float = 0.0) -> float:
        """The least relative change that samples as far apart as these would have shown."""
        width = (self.high / self.low) ** 0.5 - 1 if self.low > 0 else float("inf")
        return max(effect, noise, width)

    def __str__(self) -> str:
        """Text such as `+3.1% (+2.9% to +3.3%)`."""
        return f"{self.ratio - 1:+.1%} ({self.low - 1:+.1%} to {self.high - 1:+.1%})"


@dataclass(frozen=True)
class Judgement:
    """The verdict on the times of one case, a candidate beside a reference, with its evidence.

    candidate_us, reference_us: medians, if timed; time, cycles: candidate over reference
    floor, dropped: of a gate against a revision, the candidate over itself, and rounds left out for a low clock
    ask_again: whether to ask a second process because this one could not decide
    """

    case_id: str
    verdict: Performance
    reason: str
    candidate_us: float | None = None
    reference_us: float | None = None
    time: TimeRatio | None = None
    cycles: TimeRatio | None = None
    floor: TimeRatio | None = None
    dropped: int = 0
    ask_again: bool = False


@dataclass(frozen=True)
class Result:
    """The verdict on one case, with its evidence.

    reason: why the case is EXCLUDED, or what is wrong, in one line
    story: the one-screen text of a mismatch, empty for a pass; it has no commands, see `harness.verify.screen`
    bytes_compared: output bytes compared with an oracle, summed over oracles, targets and runs
    instantiations: kernels that ran, `sm_90a per_tensor_amax<bf16>`
    launched: kernels of a subject that ran, like instantiations, as far as it is known: of a card, and what a function
        launches on the emulator; only for a PASS or a CONVENTION
    oracles: those that gave expected bytes, `numpy`, `torch`
    died: the process of the case ended for an unknown reason; a resumed run does the case again
    digests: of the output, by target, as `harness.verify.digest` makes them, only for a PASS
    times: of the bench, only for a PASS or a CONVENTION
    subject: name and version of the subject that ran in place of our kernels
    offence: the name of the rule that the subject broke
    second_opinion: what runs that differ because of approximate instructions write with the nearest values, as
        `harness.verify.nearest` makes it; else empty
    written: digests of what the subject wrote in its first call, by field, right or wrong
    trace: options of `harness trace` that lead to the first wrong byte; empty if that would show other bytes
    while_timed: whether it was found while the case was timed
    notes: what was not judged of the case, or read as nothing set it, as the last lines of a run say
    findings: what the story was made of, in the process that judged the case; no record has it
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
    written: dict = field(default_factory=dict)
    trace: tuple[str, ...] = ()
    while_timed: bool = False
    notes: tuple[str, ...] = ()
    second_opinion: dict = field(default_factory=dict)
    launched: tuple[str, ...] = ()
    findings: Story = field(default=NO_STORY, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("reason", "input", "device", "subject", "offence"):
            object.__setattr__(self, name, one_line(getattr(self, name)))
        object.__setattr__(self, "story", printable(self.story))
        if self.times and not self.verdict.right:
            raise ValueError(f"{self.case_id}: a {self.verdict} may carry no time")

    @property
    def conventions(self) -> str:
        """The names of the conventions that explain a CONVENTION, without their counts."""
        return "; ".join(dict.fromkeys(part.partition(":")[0] for part in self.reason.split("; ")))

    def to_record(self) -> dict:
        """The result in JSON's types, for a line of a journal and for pytest-xdist."""
        record = json.loads(json.dumps(asdict(replace(self, findings=NO_STORY))))
        del record["findings"]
        return {name: value for name, value in record.items() if value or name not in _SELDOM}

    @classmethod
    def from_record(cls, record: dict) -> Result:
        """The result in a journal line."""
        lists = {name: tuple(record[name]) for name in ("targets", "instantiations", "oracles")}
        lists |= {name: tuple(record.get(name, ())) for name in ("trace", "notes", "launched")}
        return cls(**{**record, **lists, "verdict": Verdict(record["verdict"])})


def exit_words(code: Exit, verdicts: Iterable[Verdict]) -> str:
    """The meaning of an exit code, and why no kernel was judged, by the verdicts of the cases; empty for CLEAN."""
    return "; ".join(exit_meanings(code, verdicts))


def exit_meanings(code: Exit, verdicts: Iterable[Verdict]) -> list[str]:
    """The parts of `exit_words`: what a code means comes first."""
    if not code:
        return []
    found = Counter(verdicts)
    others = any(each.judges for each in found)
    unjudged = [
        f"in {found[each]:,} case{'s' * (found[each] > 1)} {why}" if others else why
        for each, why in NO_KERNEL_JUDGED.items()
        if found[each]
    ]
    if any(_NOT_JUDGED.get(each) is code for each in found):
        return unjudged
    meaning = code.name.lower().replace("_", " ")
    failed = {each for each in found if each.exit_code is Exit.BYTES_DIFFER}
    if code is Exit.BYTES_DIFFER and failed and failed <= _BEFORE_COMPARED.keys():
        meaning = ", and ".join(why for each, why in _BEFORE_COMPARED.items() if each in failed)
    return [meaning, *unjudged]


_BEFORE_COMPARED = {
    Verdict.COMPILE_ERROR: "a kernel does not compile",
    Verdict.LAUNCH_ERROR: "a kernel does not run to its end",
}


def failures_of(records: Iterable[dict]) -> list[dict]:
    """The records whose verdict is not clean: of a wrong kernel, and of cases in which none could be judged."""
    return [record for record in records if Verdict(record["verdict"]).exit_code is not Exit.CLEAN]
