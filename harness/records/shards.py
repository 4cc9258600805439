"""Merge the shards of a run: every shard once, of the same cases, sources and kind of machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.errors import UsageError
from harness.records import seal
from harness.records.possible import require_possible, require_whole_set
from harness.records.records import Record
from harness.records.run_folder import EVENTS, Header, RunFiles
from harness.records.times import ONE_HOST_US

_SHARED = ("sources", "device", "selection", "set", "timed")
_NEEDED = (*_SHARED, "cases", "selected", "sealed", "shard")
_SHARED_BY_TIMES = ("commit", "edited", "sources", "machine", "compile_flags", "method", "clock")


def join(runs: Sequence[RunFiles], into: Path) -> RunFiles:
    """Join shards to the run that they are parts of.

    Raises UsageError if one is missing, unfinished or of another run.
    """
    for run in runs:
        missing = [key for key in _NEEDED if run.about.get(key) is None]
        if missing:
            raise UsageError(f"{run.path} says nothing of its {' and '.join(missing)}, so it is no shard of a run")
    first = runs[0]
    for run in runs[1:]:
        _require_alike(first, run)
    for problem in (*_unfinished(runs), *_not_every_shard_once(runs)):
        raise UsageError(problem)
    records = _every_case_once(runs)
    about = {key: first.about[key] for key in _SHARED} | {
        "sealed": {name: digest for run in runs for name, digest in run.about["sealed"].items()},
        "cases": first.about["selection"],
        "selected": len(records),
        "shard": "1/1",
        "merged": [str(run.path) for run in runs],
        "asked": first.about.get("asked"),
        **_begun(runs),
    }
    if seal.selection_digest(record["case_id"] for record in records) != about["selection"]:
        raise UsageError(
            f"{_names(runs)} together are not all cases of their selection: -k, --deselect or a node id left some out; "
            "run the shards without these"
        )
    return RunFiles(into, records, _times_header(runs) if about["timed"] else {}, about)


def _begun(runs: Sequence[RunFiles]) -> dict[str, str | bool]:
    """Commit, command and date of a run of shards, where all shards have them: the date of the newest."""
    begins = [{key: run.about.get(key, "") for key in ("commit", "command", "date")} for run in runs]
    if not all(all(each.values()) for each in begins):
        return {}
    words = {key: "; ".join(dict.fromkeys(each[key] for each in begins)) for key in ("commit", "command")}
    return words | {
        "date": max(each["date"] for each in begins),
        "edited": any(run.about.get("edited") for run in runs),
    }


def require_of_this_tree(whole: RunFiles) -> None:
    """Raise UsageError for a run of other sources, and for records that these suites do not make."""
    shards = ", ".join(whole.about["merged"])
    if whole.about["sources"] != seal.sources_digest():
        raise UsageError(f"{shards}: of other sources than this tree; merge them where they were run")
    require_possible(shards, whole.records, whole.about["timed"], whole.header.get("machine"))
    require_whole_set(shards, whole.records, whole.about["set"])


def _require_alike(first: RunFiles, run: RunFiles) -> None:
    differing = [key for key in _SHARED if run.about[key] != first.about[key]]
    # Tensors are not compared, because each shard reads its own.
    mine, theirs = (
        {name: digest for name, digest in each.about["sealed"].items() if not name.startswith(seal.TENSOR)}
        for each in (run, first)
    )
    differing += seal.changed(theirs, mine)
    if differing:
        raise UsageError(
            f"{first.path} and {run.path} are no shards of one run, because these differ: {seal.listed(differing)}"
        )


def _unfinished(runs: Sequence[RunFiles]) -> Iterator[str]:
    for run in runs:
        selected = run.about["selected"]
        if len(run.records) != selected:
            yield (
                f"{run.path} holds {len(run.records)} of its {selected} cases; finish it with --resume before it is "
                "merged"
            )
        elif seal.selection_digest(record["case_id"] for record in run.records) != run.about["cases"]:
            yield f"{run.path} holds other cases than were selected"
        elif run.about["timed"] and not _ended(run.header):
            yield f"{run.path} did not come to its end, so nothing shows that its machine held the copy roofline"


def _ended(header: Header) -> bool:
    rates = header.get("roofline", [])
    return bool(rates) and rates[-1]["point"] == "end"


def _not_every_shard_once(runs: Sequence[RunFiles]) -> Iterator[str]:
    shards = [tuple(map(int, run.about["shard"].split("/"))) for run in runs]
    counts = {count for _, count in shards}
    if len(counts) > 1:
        yield f"{_names(runs)} are of {' and '.join(map(str, sorted(counts)))} shards; all must be of one number"
        return
    (count,) = counts
    there = Counter(index for index, _ in shards)
    for index, times in there.items():
        if times > 1 or index > count:
            yield f"shard {index}/{count} is there {times} times" if index <= count else f"no shard is {index}/{count}"
    missing = count - len(there)
    if missing:
        # Name one example only, because very many may be missing.
        example = next(index for index in range(1, count + 1) if index not in there)
        yield f"{missing} of {count} shards are missing, {example}/{count} for one"


def _every_case_once(runs: Sequence[RunFiles]) -> list[Record]:
    found: dict[str, tuple[Path, Record]] = {}
    for run in runs:
        for record in run.records:
            where, _ = found.setdefault(record["case_id"], (run.path, record))
            if where != run.path:
                raise UsageError(f"{record['case_id']} is in {where} and in {run.path}; each case is in one shard")
    return [record for _, record in found.values()]


def _times_header(runs: Sequence[RunFiles]) -> Header:
    """How all of the times were measured, with every copy roofline, the lowest floors, and the date of the newest.

    Raises UsageError for times of unlike runs.
    """
    headers = [run.header for run in runs]
    for run in runs[1:]:
        differing = [key for key in _SHARED_BY_TIMES if run.header[key] != headers[0][key]]
        if differing:
            raise UsageError(
                f"times of {runs[0].path} and {run.path} are of different {' and '.join(differing)}, so they are not "
                "comparable"
            )
    _require_alike_events(runs)
    names = set.intersection(*(set(header["floors_us"]) for header in headers))
    return headers[0] | {
        "command": "; ".join(header["command"] for header in headers),
        "date": max(header["date"] for header in headers),
        "roofline": [rate for header in headers for rate in header["roofline"]],
        "floors_us": {name: min(header["floors_us"][name] for header in headers) for name in sorted(names)},
        "note": "; ".join(dict.fromkeys(header["note"] for header in headers if header.get("note"))),
    }


def _require_alike_events(runs: Sequence[RunFiles]) -> None:
    """Raise UsageError if two events take longer in one run than in another, because one header cannot say both."""
    took = {str(run.path): run.header["floors_us"][EVENTS] for run in runs if EVENTS in run.header["floors_us"]}
    # Rounded like the floors, because a difference of floats has an error.
    if took and round(max(took.values()) - min(took.values()), 3) > ONE_HOST_US:
        each = ", ".join(f"{us:.2f} us in {path}" for path, us in took.items())
        raise UsageError(
            f"two events with nothing between them took {each}, and every eager time holds them, so these times are "
            f"not comparable; time all shards on one host, where they differ by {ONE_HOST_US} us at most"
        )


def _names(runs: Sequence[RunFiles]) -> str:
    return ", ".join(str(run.path) for run in runs)
