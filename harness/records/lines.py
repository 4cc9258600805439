"""The lines of a run's files, read one by one, and the sentence that refuses what no run writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from harness.errors import UsageError
from harness.records.claims import unmeasured
from harness.records.records import Finished, GateCase, GateEnd, GateHeader, JournalHeader, Record, TimesHeader
from harness.records.seal import selection_digest
from harness.text import acts
from harness.verdict import Verdict

_KINDS = ("function-", "dict[")  # pydantic's names of kinds begin with these


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

    lines: with their line ends. A gate writes lines one by one: a last line without an end was cut off when its process
    died, and a file without the line `end` is unfinished.
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
    """Raise UsageError for records whose device or case does not match the header."""
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
    """Yield every string in a JSON value, keys included."""
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
        # pydantic's location includes the kind that it tried, and its message names the validator; drop both.
        where = ".".join(str(part) for part in first["loc"] if not str(part).startswith(_KINDS))
        why = first["msg"].removeprefix("Value error, ")
        raise _refusal(path, number, f"{where}: {why}" if where else why) from None


def _twice(path: Path, number: int, record: Record) -> UsageError:
    return _refusal(path, number, f"{record['case_id']} stands there a second time")


def _refusal(path: Path, number: int, why: str) -> UsageError:
    return UsageError(f"{path} is not what a run writes: line {number}: {' '.join(why.split())}")
