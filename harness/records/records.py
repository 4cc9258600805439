"""What may stand in a line of a run's files, and the sentence that refuses any other line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from harness.errors import UsageError
from harness.records.claims import LARGEST_EFFECT, unmeasured, wrong_case, wrong_comparison, wrong_times
from harness.records.seal import selection_digest
from harness.text import acts
from harness.verdict import Performance, Verdict

Record = dict[str, Any]

FASTEST_MHZ = 10_000
LONGEST = 1 << 53  # beyond, a float no longer counts by one
_KINDS = ("function-", "dict[")  # with which pydantic begins the name of a kind
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
Change = Annotated[list[Positive], Field(min_length=3, max_length=3)]


def _right(line: Any, problem: str) -> Any:
    if problem:
        raise ValueError(problem)
    return line


def _from_word(kind: type[Verdict] | type[Performance]) -> BeforeValidator:
    # JSON has no enums, and a strict model takes no string for one.
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
    date: str
    gbps: Positive


class Times(_Line):
    """What a bench measured. Earlier runs had fewer of these."""

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
    gbps: Positive
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
    date: str = ""
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


class Finished(_CaseLine):
    """A finished case, `harness.verdict.Result` as JSON. Earlier runs had fewer of what has a default here."""

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

    @model_validator(mode="after")
    def _as_a_run_writes_it(self) -> Finished:
        return _right(self, wrong_case(self))


class GateCase(_CaseLine):
    """A case that `harness gate --base` timed, or, with `verified` null, found the same machine code of."""

    verified: VerdictWord | None
    verdict: PerformanceWord
    reason: str
    head_us: Positive | None
    base_us: Positive | None
    time: Change | None
    cycles: Change | None
    floor: Change | None
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
    """One of several runs that measured a baseline. floors_us: parts of before 2026-11-27 lack it, and none has null"""

    commit: str
    edited: bool
    sources: str
    date: str
    command: str
    roofline: list[Rate]
    floors_us: dict[str, NotNegative] = {}


class TimesHeader(_Line):
    """How times were measured. parts: the runs that measured them, of a baseline; seconds: what they took"""

    command: str
    commit: str
    edited: bool
    sources: str
    date: str
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
    """How the times of a gate against a revision were measured. chosen: how many cases; gates of before do not say"""

    roofline: list[Rate] = Field(min_length=1)
    base: str
    base_commit: str
    chosen: Annotated[int, Field(ge=1, le=LONGEST)] | None = None
    effect: Annotated[float, Field(gt=0, le=LARGEST_EFFECT)]


class JournalHeader(BaseModel):
    """The first line of a journal: what was run, where, and which part of it this is.

    sealed: see `harness.records.seal`; selection: a digest of the cases of all shards, as `cases` is of this one's
    merged: the runs that `harness merge` made one of
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


def journal_lines(path: Path, lines: Sequence[bytes]) -> tuple[Record, list[Record]]:
    """Header and records of a journal, each case once: a record whose process died is replaced by a later one.

    Raises UsageError.
    """
    header = one(path, lines[0], JournalHeader)
    found: dict[str, Record] = {}
    for number, line in enumerate(lines[1:], 2):
        record = one(path, line, Finished, number)
        if not found.get(record["case_id"], {"died": True}).get("died"):
            raise _twice(path, number, record)
        found[record["case_id"]] = record
    _check_against_header(path, header, list(found.values()))
    return header, list(found.values())


def is_gate(header: Record) -> bool:
    """Whether the header of a file of times is that of a gate against a revision."""
    return "base" in header


def times_lines(path: Path, lines: Sequence[bytes]) -> tuple[Record, list[Record]]:
    """Header and records of a file of times, or of a gate against a revision. Raises UsageError.

    lines: with their ends. A gate writes them one by one, so that a last one without an end was being written when its
    process died; without the line `end` it is unfinished.
    """
    if not lines:
        raise UsageError(f"{path} is not what a run writes: it is empty")
    header = _parsed(path, 1, lines[0])
    gate = is_gate(header)
    if gate and not lines[-1].endswith(b"\n"):
        lines = lines[:-1]
    if not lines:
        raise UsageError(f"{path} is not what a run writes: it has no finished line")
    records = [_parsed(path, number, line) for number, line in enumerate(lines[1:], 2)]
    _check(path, 1, GateHeader if gate else TimesHeader, header)
    seen: set[str] = set()
    for number, record in enumerate(records, 2):
        if gate and "end" in record:
            _check(path, number, GateEnd, record)
            if number <= len(records):
                raise _refusal(path, number, "a gate has one line 'end', its last, and more lines follow")
            continue
        _check(path, number, GateCase if gate else Finished, record)
        if not gate and not record.get("times"):
            raise _refusal(path, number, f"{record['case_id']} has no times")
        if record["case_id"] in seen:
            raise _twice(path, number, record)
        if not gate and (problem := unmeasured(record["times"], header)):
            raise _refusal(path, number, problem)
        seen.add(record["case_id"])
    return header, records


def _check_against_header(path: Path, header: Record, records: Sequence[Record]) -> None:
    """Raise UsageError for records that are not of the header's device or cases."""
    device = header.get("device", {})
    for record in records:
        for key, said in (("device", record.get("device")), ("subject", record.get("subject"))):
            if said and device and device.get(key, "") != said:
                raise _refusal(path, 1, f"{key} is '{device.get(key, '')}', and {record['case_id']} ran on '{said}'")
        if device.get("subject") and Verdict(record["verdict"]).right and not record.get("subject"):
            raise _refusal(path, 1, f"{record['case_id']} is not of the subject {device['subject']}")
        if record.get("times") and header.get("timed") is False:
            raise _refusal(path, 1, f"the run timed nothing, and {record['case_id']} has times")
    selected = header.get("selected")
    if selected is not None and len(records) > selected:
        raise _refusal(path, 1, f"{selected} cases were selected, and there are {len(records)}")
    whole = selected is not None and len(records) == selected
    if whole and header.get("cases") and selection_digest(r["case_id"] for r in records) != header["cases"]:
        raise _refusal(path, 1, "the cases are not those that were selected")


def one(path: Path, text: bytes, kind: type[BaseModel], number: int = 1) -> Record:
    """The record of this kind on a line of a file. Raises UsageError."""
    record = _parsed(path, number, text)
    _check(path, number, kind, record)
    return record


def _parsed(path: Path, number: int, line: bytes) -> Record:
    try:
        value = json.loads(line.decode(), object_pairs_hook=_each_key_once, parse_constant=_no_number)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair can be read but not written
    except (ValueError, RecursionError) as error:
        raise _refusal(path, number, str(error)) from None
    if any(map(acts, _texts(value))):
        raise _refusal(path, number, "a text has a control character")
    if not isinstance(value, dict):
        raise _refusal(path, number, f"a {type(value).__name__} stands where a record belongs")
    return value


def _texts(value: Any) -> Iterator[str]:
    """Every text of a JSON value, keys too."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str(text):
                yield text
            case list(items):
                waiting += items
            case dict(items):
                waiting += [*items, *items.values()]


def _each_key_once(pairs: Iterable[tuple[str, Any]]) -> Record:
    made: Record = {}
    for key, value in pairs:
        if key in made:
            raise ValueError(f"key '{key}' appears twice")
        made[key] = value
    return made


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _check(path: Path, number: int, kind: type[BaseModel], value: Record) -> None:
    try:
        kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        # Of a union it says which kind was tried, and of a check of ours what raised it.
        where = ".".join(str(part) for part in first["loc"] if not str(part).startswith(_KINDS))
        why = first["msg"].removeprefix("Value error, ")
        raise _refusal(path, number, f"{where}: {why}" if where else why) from None


def _twice(path: Path, number: int, record: Record) -> UsageError:
    return _refusal(path, number, f"{record['case_id']} stands there a second time")


def _refusal(path: Path, number: int, why: str) -> UsageError:
    return UsageError(f"{path} is not what a run writes: line {number}: {' '.join(why.split())}")
