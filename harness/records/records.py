"""The schema of the lines of a run's files."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from harness.records.claims import LARGEST_EFFECT, wrong_case, wrong_comparison, wrong_times
from harness.verdict import Performance, Verdict

Record = dict[str, Any]

FASTEST_MHZ = 10_000
LONGEST = 1 << 53  # beyond it, floats skip integers
_ID = r"^[a-z0-9][a-z0-9_]*/[^/\x00-\x20]+/[^/\x00-\x20]+/[^\x00-\x1f]+/(eager|graph)$"

CaseId = Annotated[str, Field(pattern=_ID)]
Count = Annotated[int, Field(ge=0, le=LONGEST)]
Positive = Annotated[float, Field(gt=0, le=LONGEST)]
NotNegative = Annotated[float, Field(ge=0, le=LONGEST)]
Seconds = Annotated[float, Field(ge=0, le=1e7)]
Celsius = Annotated[float, Field(ge=0, le=150)]
Watts = Annotated[float, Field(ge=0, le=10_000)]
Words = list[str]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
Date = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")]  # sorts by time
RatioWithBounds = Annotated[list[Positive], Field(min_length=3, max_length=3)]


def _right(line: Any, problem: str) -> Any:
    if problem:
        raise ValueError(problem)
    return line


def _from_word(kind: type[Verdict] | type[Performance]) -> BeforeValidator:
    # JSON has no enums, and a strict model does not convert a string to one.
    return BeforeValidator(lambda word: kind(word) if isinstance(word, str) else word)


def _a_clock(mhz: float) -> float:
    if mhz and not 1 <= mhz <= FASTEST_MHZ:
        raise ValueError(f"{mhz:g} MHz is no clock of a GPU; one has 1 to {FASTEST_MHZ:,} MHz, or 0 if it was not read")
    return mhz


Clock = Annotated[NotNegative, AfterValidator(_a_clock)]
VerdictWord = Annotated[Verdict, _from_word(Verdict)]
PerformanceWord = Annotated[Performance, _from_word(Performance)]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)


class Rate(_Line):
    """A measurement of the copy roofline."""

    point: Literal["start", "end"]
    date: Date | Literal[""]
    gbps: Positive


class Times(_Line):
    """The measurements of a bench. Earlier runs had fewer of these fields."""

    median_us: Positive
    q1_us: Positive
    q3_us: Positive
    min_us: Positive
    rounds: Count
    relative_error: NotNegative
    exposed: Count
    samples_us: list[Positive] = Field(min_length=1)
    samples_mhz: list[Clock] = []
    mhz: Clock | None = None
    power_w: Watts | None = None
    throttle: str | None = None
    energy_uj: NotNegative | None = None
    energy_error_uj: NotNegative | None = None
    celsius: Celsius | None = None
    no_energy: str = ""
    dropped: Count | None = None
    launches: Count | None = None
    bytes: Count
    gbps: NotNegative
    roofline_gbps: Positive
    roofline_percent: NotNegative
    baseline: str
    baseline_us: Positive | None
    baseline_percent: NotNegative | None = None
    baseline_ratio: Positive | None
    second: str = ""
    second_us: Positive | None = None
    second_ratio: Positive | None = None
    code: str
    measured: str
    commit: str = ""
    date: Date | Literal[""] = ""
    tflops: NotNegative | None = None

    @model_validator(mode="after")
    def _of_its_samples(self) -> Times:
        return _right(self, wrong_times(self))


class _CaseLine(_Line):
    case_id: CaseId
    recipe: str

    @model_validator(mode="after")
    def _recipe_of_its_id(self) -> _CaseLine:
        if self.recipe != (named := self.case_id.partition("/")[0]):
            raise ValueError(f"recipe is '{self.recipe}', and the case id names '{named}'")
        return self


class NearestRuns(_Line):
    """`harness.verify.nearest.NearestRuns` as JSON."""

    orders: list[Literal["ascending", "descending", "drawn"]] = Field(min_length=1)
    differing: Count
    bytes: Count
    alike: bool


class Finished(_CaseLine):
    """A finished case, `harness.verdict.Result` as JSON.

    Earlier runs lack some of the fields that have a default here.
    """

    verdict: VerdictWord
    reason: str
    story: str
    input: str
    device: str
    targets: Words
    instantiations: Words
    oracles: Words
    bytes_compared: Count
    seconds: Seconds
    died: bool = False
    digests: dict[str, dict[Literal["exact", "ordered", "bounded"], Digest]] = {}
    times: Times | dict[str, None] = {}
    subject: str = ""
    offence: str = ""
    written: dict[str, Digest] = {}
    trace: Words = []
    while_timed: bool = False
    notes: Words = []
    second_opinion: NearestRuns | dict[str, None] = {}
    launched: Words = []

    @model_validator(mode="after")
    def _as_a_run_writes_it(self) -> Finished:
        return _right(self, wrong_case(self))


class GateCase(_CaseLine):
    """A case that `harness gate --base` timed; `verified` is null if the machine code was the same."""

    verified: VerdictWord | None
    verdict: PerformanceWord
    reason: str
    head_us: Positive | None
    base_us: Positive | None
    time: RatioWithBounds | None
    cycles: RatioWithBounds | None
    floor: RatioWithBounds | None
    recurs: bool | None = None
    dropped: Count
    copies: Count
    calls: Count
    bytes: Count
    memory: str
    samples_us: dict[Literal["head", "again", "base"], list[Positive]]
    mhz: list[Clock]

    @model_validator(mode="after")
    def _of_its_samples(self) -> GateCase:
        return _right(self, wrong_comparison(self))


class GateEnd(_Line):
    """The last line of a gate against a revision."""

    end: Rate


class Part(_Line):
    """One of several runs that measured a baseline.

    floors_us: missing in parts from before 2026-11-27, and never null
    """

    commit: str
    edited: bool
    sources: str
    date: Date
    command: str
    roofline: list[Rate]
    floors_us: dict[str, NotNegative] = {}


class TimesHeader(_Line):
    """How times were measured. parts: the runs that measured them, of a baseline; seconds: what they took"""

    command: str
    commit: str
    edited: bool
    sources: str
    date: Date
    machine: dict[str, str]
    compile_flags: str
    method: str
    clock: str
    roofline: list[Rate]
    floors_us: dict[str, NotNegative]
    seconds: dict[str, NotNegative] = {}
    parts: list[Part] = []
    note: str = ""


class GateHeader(TimesHeader):
    """How the times of a gate against a revision were measured. chosen: how many cases; earlier gates lack it"""

    roofline: list[Rate] = Field(min_length=1)
    base: str
    base_commit: str
    chosen: Annotated[int, Field(ge=1, le=LONGEST)] | None = None
    effect: Annotated[float, Field(gt=0, le=LARGEST_EFFECT)]


class AskedFor(_Line):
    """`harness.ground.command_lines.Asked` as JSON."""

    folder: str
    subject: str = ""
    recipe_dirs: dict[str, str] = {}
    include_dirs: Words = []
    options: Words = []


class JournalHeader(BaseModel):
    """The first line of a journal: what was run, where, and which part of it this is.

    sealed: see `harness.records.seal`; selection: a digest of the cases of all shards, as `cases` is of this one's
    merged: the runs that `harness merge` made one of; device_asked: as the command line names it
    commit: of the harness, edited: whether its sources differ from that; date, command: of the run's begin
    """

    model_config = ConfigDict(extra="allow", strict=True, defer_build=True)

    sources: str
    sealed: dict[str, str] = {}
    device: dict[str, str] = {}
    cases: str = ""
    selected: Count | None = None
    selection: str = ""
    set: str = ""
    shard: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8}/[1-9][0-9]{0,8}$")] | None = None
    timed: bool = False
    merged: Words = []
    asked: AskedFor | None = None
    device_asked: str = "auto"
    commit: str = ""
    edited: bool = False
    date: Date | Literal[""] = ""
    command: str = ""
