"""The committed times of a GPU, each with the commit and date it was measured at: their files, and how runs are added.

A baseline is of one kind of GPU, one driver and one method, and of as many runs as it was measured in. The file begins
with the header of the newest of them, and under `parts` it has what differs in each.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from harness.bench.statistics import FEWEST_SAMPLES
from harness.errors import UsageError
from harness.files import RECIPE_DIRS, RESULTS, SUITES, write_text
from harness.gate.against_baseline import differing, measured_by
from harness.ground.locks import NamedLock
from harness.records.lines import times_lines
from harness.records.records import Record
from harness.records.run_folder import BENCH, EVENTS, Header, RunFiles, gpu_folder, now, now_here, read_bench, shown
from harness.records.times import of_the_user, part_of, run_of, unsteady, waited
from harness.report.tables import write_bench
from harness.suite.suite import suite_of
from harness.verdict import failures_of

FOLDER = RESULTS / "baselines"
_SUFFIX = ".jsonl"
_OF_A_PART = ("commit", "edited", "sources", "date", "command", "roofline", "floors_us")


def path_of(header: Header) -> Path:
    return FOLDER / gpu_folder(header.get("machine", {})) / BENCH


def none_of_this_gpu(path: Path, header: Header, candidate: Header) -> str:
    """Why the baseline at `path`, which has `header`, can judge no time of a run, and how one is made; else empty."""
    own, gpu = path_of(candidate), candidate.get("machine", {}).get("gpu", "an unknown GPU")
    if not path.exists():
        others = sorted(each.parent.name for each in FOLDER.glob(f"*/{BENCH}"))
        of_others = f" ({gpu}), and those of {', '.join(others)} judge no other GPU" if path == own and others else ""
        return f"there is no baseline at {path}{of_others}; `harness gate --save` makes this run one"
    of = header.get("machine", {}).get("gpu", "an unknown GPU")
    if not candidate or of == gpu:
        return ""
    return (
        f"{path} is of {of}, and this run of {gpu}: no time of one is held against the other. Without --baseline the "
        f"gate takes {own}; where there is none yet, `harness gate --save` makes this run the first"
    )


def wanted() -> frozenset[str]:
    """The ids of all cases that a whole baseline has, of the user's recipes that are in use as well."""
    return _wanted((*sorted(path.stem for path in SUITES.glob("*.yaml")), *sorted(RECIPE_DIRS)))


@lru_cache(maxsize=1)
def _wanted(recipes: tuple[str, ...]) -> frozenset[str]:
    suites = map(suite_of, recipes)
    return frozenset(case.id for suite in suites if "bench" in suite.sets for case in suite.cases("bench"))


def known(stored: Sequence[Record], header: Header, run: RunFiles) -> list[Record]:
    """The stored records, without cases that the suites no longer time unless the run has them.

    header: the baseline's. A user's recipe, whose suite may not be in use here, is kept.
    """
    timed = {record["case_id"] for record in run.records}
    if {record["case_id"] for record in stored} <= timed:
        return list(stored)

    def not_in_use(record: Record) -> bool:
        return record["recipe"] not in RECIPE_DIRS and of_the_user(record, run_of(record["times"], header) or {}, {})

    return [each for each in stored if each["case_id"] in timed | wanted() or not_in_use(each)]


def not_to_keep(run: RunFiles) -> dict[str, str]:
    """By case id, why a time of this run could judge no other, so that no baseline keeps it."""
    found = {}
    for record in run.timed:
        times, samples = record["times"], len(record["times"]["samples_us"])
        if why := waited(times):
            found[record["case_id"]] = why
        elif samples < FEWEST_SAMPLES:
            found[record["case_id"]] = f"it has {samples} samples; {FEWEST_SAMPLES} are the fewest that show anything"
    return found


def waiting() -> Iterator[str]:
    """A sentence for each committed baseline that lacks cases or has cases that are no longer timed."""
    for path in sorted(FOLDER.glob(f"*/{BENCH}")):
        there = {record["case_id"] for record in read_bench(path)[1]}
        missing, gone = sorted(wanted() - there), sorted(there - wanted())
        if missing:
            yield (
                f"{shown(path)}: {len(missing):,} of {len(wanted()):,} cases wait for a time, {missing[0]} for one; "
                "`harness bench` and `harness gate --save` measure them"
            )
        if gone:
            yield f"{shown(path)}: {len(gone):,} cases are timed no longer, {gone[0]} for one; a saved run drops them"


def lock_of(path: Path) -> NamedLock:
    """A lock to hold while a baseline is read and saved: of two processes, each keeps what the other saved."""
    key = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:16]
    place = Path(tempfile.gettempdir(), f"nvfp4-harness-baseline-{key}.lock")
    return NamedLock.of(place, 0o666, "ask its owner to remove it, or set TMPDIR to another folder")


def save(run: RunFiles, path: Path, header: Header, stored: Sequence[Record]) -> list[Path]:
    """Put the times of the run into the baseline at `path`, which has `header` and `stored`; return the files written.

    Times of other cases, and of those that are `not_to_keep`, stay as they are, with their own commit and date; cases
    that the suites no longer time go. Raises UsageError for a run with wrong, missing or unsteady times, for one that
    is older than the times it would replace or dated later than now, and if those that would stay were measured
    otherwise, as by another method or on another GPU.
    """
    if path.suffix != _SUFFIX:
        raise UsageError(f"not saved: {path} must end in {_SUFFIX}, because its table is written beside it, as .md")
    if wrong := failures_of(run.records):
        raise UsageError(f"not saved: {wrong[0]['case_id']} is {wrong[0]['verdict']}; a baseline holds no wrong kernel")
    if subject := run.header.get("machine", {}).get("subject"):
        raise UsageError(f"not saved: this run is of the subject {subject}; a baseline holds times of our kernels")
    if not run.timed:
        raise UsageError(f"not saved: {run.path} has no times; make some with `harness bench`")
    if problem := unsteady(run.header):
        raise UsageError(f"not saved: this run {problem}")
    worthless = not_to_keep(run)
    taken = [record for record in run.timed if record["case_id"] not in worthless]
    if not taken:
        case_id, why = next(iter(worthless.items()))
        raise UsageError(f"not saved: no time of this run could judge another; of {case_id}, {why}")
    if EVENTS not in run.header["floors_us"] and any(each["case_id"].endswith("/eager") for each in taken):
        raise UsageError(
            f"not saved: the header of this run has no time of two events with nothing between them ('{EVENTS}' in "
            "floors_us), which its eager times hold; time its suites again"
        )
    new = {record["case_id"] for record in taken}
    kept = [record for record in known(stored, header, run) if record["case_id"] not in new]
    if kept and (others := differing(run.header, header)):
        raise UsageError(
            f"not saved: {path} has times of {len(kept)} cases that this run has not, {kept[0]['case_id']} for one, "
            f"which were measured otherwise: {', '.join(others)}; time them too, or delete that file first"
        )
    head = run.header | now_here(run.header)
    if head["date"] > now():
        raise UsageError(
            f"not saved: this run is dated {head['date']}, later than now, and nothing newer could replace it; set the "
            "clock of the machine that timed it, and time it again"
        )
    _require_no_newer(path, header, [record for record in stored if record["case_id"] in new], head)
    for record in kept:
        measured_by(record, header)
    kept = [_dated(record, header) for record in kept]
    merged = _merged(path, header, kept, head)
    records = [*kept, *(_dated(record, head) for record in taken)]
    summary = path.with_suffix(".md")
    with tempfile.TemporaryDirectory() as folder:
        tables = {table.suffix: table.read_text() for table in write_bench(Path(folder), merged, records)}
    _require_readable(path, tables[_SUFFIX])
    write_text(path, tables[_SUFFIX])
    write_text(summary, tables[".md"])
    return [path, summary]


def _require_no_newer(path: Path, header: Header, replaced: Sequence[Record], head: Header) -> None:
    """Raise UsageError if one of the records that this run replaces was measured after it."""
    if newer := [record for record in replaced if _date(record, header) > head["date"]]:
        raise UsageError(
            f"not saved: {path} has newer times of {len(newer)} cases of this run, {newer[0]['case_id']} for one, of "
            f"{_date(newer[0], header)}, and this run is of {head['date']}; save a newer run, or delete that file first"
        )


def _merged(path: Path, header: Header, kept: Sequence[Record], head: Header) -> Header:
    """The header for a baseline of these kept records and all of a run: its newest run's, with every part listed.

    Raises UsageError if commit and date do not tell the run from one that the baseline keeps.
    """
    ours = _part(head)
    own = part_of(ours)
    by_key = {part_of(part): part for part in _parts(header)}
    used = {part_of(record["times"]): record["case_id"] for record in kept}
    if own in used and by_key[own] != ours:
        raise UsageError(
            f"not saved: {path} has times of another run of commit {own[0]} that began in the same second, {own[1]}, "
            f"{used[own]} for one, and only commit and date say which run took a time; time the suites of this run "
            "again, or make one run of both with `harness merge` if they are its shards"
        )
    parts = [by_key[key] for key in by_key if key in used and key != own]
    parts = sorted([*parts, ours], key=lambda part: part["date"])
    return (head if parts[-1] is ours else header) | parts[-1] | {"parts": parts}


def _require_readable(path: Path, text: str) -> None:
    """Raise UsageError if the text of a baseline cannot be read back."""
    try:
        header, records = times_lines(path, text.encode().splitlines())
        for record in records:
            measured_by(record, header)
    except UsageError as error:
        raise UsageError(f"not saved, because what would be written could not be read again: {error}") from None


def _dated(record: Record, header: Header) -> Record:
    """The record with the commit and date of its run, if it has none."""
    return record | {"times": {"commit": header["commit"], "date": header["date"]} | record["times"]}


def _date(record: Record, header: Header) -> str:
    """When a record of a baseline was measured."""
    return part_of(record["times"])[1] or header["date"]


def _parts(header: Header) -> list[Header]:
    """The runs of a file of times; for a file of one run, that run.

    A part without floors gets the file header's, because a newer run will change the header's.
    """
    if not header:
        return []
    parts = header.get("parts") or [_part(header)]
    return [{"floors_us": header["floors_us"]} | part for part in parts]


def _part(header: Header) -> Header:
    """The fields of a run's header that a baseline keeps for it."""
    return {key: header[key] for key in _OF_A_PART}
