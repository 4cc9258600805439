"""Check that this tree has a record's case, with the bytes, kernels, oracles and times that it claims."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf
from typing import Any

from harness.contract.case import Case
from harness.device.capability import CONTEXT, incapable, needed
from harness.device.emulator import EmulatorDevice
from harness.errors import HarnessError, UsageError
from harness.expected.expected import NUMPY_LARGEST, NUMPY_LARGEST_TIMED, fields_of
from harness.expected.read_arrays import read_arrays
from harness.jit.compile import instantiation
from harness.records.records import Record
from harness.records.seal import sources_digest
from harness.records.times import of_the_user, part_of, parts_of
from harness.suite import physics
from harness.suite.launch_plan import Step, plan, plans
from harness.suite.physics import Needs, arrays_moved, bytes_moved, operations, peak_tflops
from harness.suite.suite import find_case, suite_of
from harness.verdict import Verdict
from harness.verify.judge import POISONS
from harness.verify.verify import splits_judged

LARGEST_L2 = 128 << 20  # bytes, assumed if the header does not say; a B200 has 126 MiB
_CALLS = re.compile(r"graphs of ([0-9]{1,6}) calls")
_FILLED = 3.0  # a case's copies fill the L2 at least this many times, unless 256 copies do not suffice
_COPIES = 2, 256  # the fewest and the most


def moved(case: Case) -> tuple[tuple[int, int, int], ...]:
    """For each choice of launches, the bytes that a call moves, and the bytes of the arrays that it reads and writes.

    Nothing for a recipe of the user's.
    """
    return _moved(replace(case, mode="eager"))


@lru_cache(maxsize=1 << 12)
def _moved(case: Case) -> tuple[tuple[int, int, int], ...]:
    arrays = read_arrays(case)
    if arrays is None:
        return ()
    fields = fields_of(case)
    moves = ((bytes_moved(each, arrays, fields), *arrays_moved(each, arrays, fields)) for each in plans(case))
    return tuple(dict.fromkeys(moves))


def memory_bytes(case: Case) -> int | None:
    """Bytes of all that a case reads and writes, as it lies in memory; None for a recipe of the user's."""
    arrays = read_arrays(case)
    if arrays is None:
        return None
    return sum(array.nbytes for array in arrays.values()) + sum(field.nbytes for field in fields_of(case).values())


def problems_of_times(
    case: Case, target: str, times: Mapping[str, Any], machine: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yield why times cannot be our kernels'. machine: from the header of these times; without it bounds are wider"""
    known = moved(case)
    if known and times["bytes"] not in (counts := [count for count, _, _ in known]):
        yield f"bytes is {times['bytes']}, and a call of it moves {' or '.join(map(str, counts))}"
    calls = _CALLS.search(times.get("measured", ""))
    clocks = [*times.get("samples_mhz", ()), times.get("mhz") or 0.0]
    us, copy_gbps = times["median_us"], times["roofline_gbps"]
    yield from too_short(case, target, us, copy_gbps, machine or {}, max(clocks), int(calls[1]) if calls else 1)


def too_short(
    case: Case, target: str, us: float, copy_gbps: float, machine: Mapping[str, str], mhz: float = 0.0, calls: int = 1
) -> Iterator[str]:
    """A sentence if no call of the case can take so few microseconds. calls: in a round; target: `sm_90a`, or empty"""
    l2_bytes = _number(machine.get("l2_bytes")) or LARGEST_L2
    peak = peak_tflops(target, _number(machine.get("multiprocessors")), mhz)
    found = []
    for _, read, written in moved(case):
        filled = inf
        if case.mode == "graph":
            fewest, most = (copies * (read + written) / l2_bytes for copies in _COPIES)
            filled = max(fewest, min(_FILLED, most), 1.0)
        needs = Needs(read, written, operations(case), filled, max(calls, 1))
        found.append(physics.impossible(us, needs, l2_bytes, copy_gbps, peak))
    if found and all(found):
        yield found[0]


def _number(word: str | None) -> int:
    return int(word) if word and re.fullmatch("[0-9]{1,12}", word) else 0


_NO_ROOM = re.compile(r"capability: needs about ([0-9]{1,6}) GiB of GPU memory, there are ([0-9]{1,6})")


def require_possible(
    where: object, records: Iterable[Record], timed: bool, machine: Mapping[str, str] | None = None
) -> None:
    """Raise UsageError for the first record that no run of this tree writes. where: for the message; timed: by a bench

    machine: from the header of the times; without it their bounds are wider
    """
    for record in records:
        problem = impossible(record, timed, machine)
        if problem:
            raise UsageError(f"{where} is not what a run writes: {record['case_id']}: {problem}")


def require_possible_here(
    where: object, header: Mapping[str, Any], records: Iterable[Record], about: Mapping[str, Any] | None = None
) -> None:
    """Raise UsageError for the first record that claims to be of this tree and that no run of it writes.

    Records of other trees, and of recipes from a user's folder, are not checked, because their cases are unknown here.
    header: of the times, whose parts may be of several trees; about: the first line of the journal, if there is one
    """
    now = sources_digest()
    parts = parts_of(header)

    def here(record: Record) -> bool:
        part = parts.get(part_of(record.get("times") or {}), header)
        return (about or part).get("sources") in (now, now[:16]) and not of_the_user(record, part, about or {})

    require_possible(where, filter(here, records), bool(header), header.get("machine"))


def require_whole_set(where: object, records: Iterable[Record], set_name: str) -> None:
    """Raise UsageError unless every recipe among the records has all cases of the set.

    set_name: empty for single cases
    """
    if not set_name:
        return
    found: dict[str, set[str]] = {}
    for record in records:
        found.setdefault(record["recipe"], set()).add(record["case_id"])
    for recipe, ids in found.items():
        wanted = {case.id for case in suite_of(recipe).cases(set_name)}
        if ids != wanted:
            raise UsageError(
                f"{where} is not set '{set_name}' of {recipe}: {len(wanted - ids)} of its {len(wanted)} cases are "
                f"missing, and {len(ids - wanted)} are of no such set"
            )


def impossible(record: Record, timed: bool, machine: Mapping[str, str] | None = None) -> str:
    """Why no run of this tree writes the record, or an empty string. machine: see `require_possible`"""
    try:
        case = find_case(record["case_id"])
        if case.id != record["case_id"]:
            return f"that case is called {case.id}"
        verdict = Verdict(record["verdict"])
        if verdict is Verdict.EXCLUDED and not record.get("subject"):
            return _capable(record, case)
        return next(_problems(record, case, timed, machine), "") if verdict.right else ""
    except HarnessError as error:
        return str(error)


def _capable(record: Record, case: Case) -> str:
    """Why the device of an EXCLUDED case could have run it, or an empty string."""
    reason = record["reason"]
    if record["device"] == "cuda":
        found = _NO_ROOM.fullmatch(reason)
        fits = found is None or needed(case) + CONTEXT <= int(found[2]) << 30 or int(found[1]) != needed(case) >> 30
    else:
        fits = reason != incapable(case, EmulatorDevice())
    return f"it is not EXCLUDED because of '{reason}'" if fits else ""


def evidence(case: Case, targets: Sequence[str], timed: bool) -> Record:
    """The fields that the case's record has if our kernels pass on these targets.

    CTAs that wait for each other are taken not to fit on the device at once.
    """
    numpy_largest = NUMPY_LARGEST_TIMED if timed else NUMPY_LARGEST
    judged = (case, *splits_judged(case, numpy_largest))
    return {
        "oracles": ["numpy", "torch"] if case.work <= numpy_largest else ["torch"],
        "bytes_compared": len(POISONS) * len(targets) * sum(map(_bytes, judged)),
        "instantiations": [name for target in targets for name in _instantiations(plan(case), target)],
    }


def _instantiations(steps: Iterable[Step], target: str) -> list[str]:
    return [f"{target} {instantiation(step.signature, step.flags)}" for step in steps if not step.library]


def _problems(record: Record, case: Case, timed: bool, machine: Mapping[str, str] | None) -> Iterator[str]:
    targets = record["targets"]
    right = evidence(case, targets, timed)
    if record["oracles"] != right["oracles"]:
        yield f"its oracles are {' and '.join(right['oracles'])}, not {' and '.join(record['oracles'])}"
    compared = record["bytes_compared"]
    if record.get("subject"):
        if record["subject"].rpartition(" (")[0].endswith((".yaml", ".yml")) and record["reason"]:
            return  # a card whose kernels write only some of the bytes, as its reason says
        if compared % _bytes(case) or compared < len(POISONS) * _bytes(case):
            yield f"a call writes {_bytes(case)} bytes, and {compared} are no whole number of calls"
        return
    if compared != right["bytes_compared"]:
        yield f"{right['bytes_compared']} bytes are compared in it, not {compared}"
    launched = (record.get("times") or {}).get("launches")  # earlier runs did not count launches
    every = list(plans(case))
    for target in targets:  # each has its own limit of CTAs
        ran = [name for name in record["instantiations"] if name.startswith(f"{target} ")]
        counts = sorted({len(steps) for steps in every if _instantiations(steps, target) == ran})
        if not counts:
            yield f"it runs {', '.join(_instantiations(every[0], target))}, not {', '.join(ran)}"
        elif launched is not None and launched not in counts:
            yield f"launches is {launched}, and a call of it has {' or '.join(map(str, counts))}"
    if record.get("times"):
        yield from problems_of_times(case, targets[0], record["times"], machine)


def _bytes(case: Case) -> int:
    return sum(field.nbytes for field in fields_of(case).values())
