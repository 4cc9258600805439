"""Whether the suites of this tree have the case of a record, and the case the bytes, kernels and oracles it claims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from harness.contract.case import Case
from harness.errors import HarnessError, UsageError
from harness.jit.compile import instantiation
from harness.records.records import Record
from harness.suite.launch_plan import plan
from harness.suite.suite import find_case, suite_of
from harness.verdict import Verdict
from harness.verify.expected import NUMPY_LARGEST, NUMPY_LARGEST_TIMED, fields_of
from harness.verify.verify import POISONS


def require_possible(where: object, records: Iterable[Record], timed: bool) -> None:
    """Raise UsageError for the first record that no run of this tree writes. where: for its text; timed: by a bench"""
    for record in records:
        problem = impossible(record, timed)
        if problem:
            raise UsageError(f"{where} is not what a run writes: {record['case_id']}: {problem}")


def require_whole_set(where: object, records: Iterable[Record], set_name: str) -> None:
    """Raise UsageError unless each recipe that is there has all cases of the set. set_name: empty for single cases"""
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


def impossible(record: Record, timed: bool) -> str:
    """Why no run of this tree writes the record, or an empty string."""
    try:
        case = find_case(record["case_id"])
        if case.id != record["case_id"]:
            return f"that case is called {case.id}"
        return next(_problems(record, case, timed), "") if Verdict(record["verdict"]).right else ""
    except HarnessError as error:
        return str(error)


def _problems(record: Record, case: Case, timed: bool) -> Iterator[str]:
    nbytes = sum(field.nbytes for field in fields_of(case).values())
    numpy_too = case.work <= (NUMPY_LARGEST_TIMED if timed else NUMPY_LARGEST)
    oracles = ["numpy", "torch"] if numpy_too else ["torch"]
    if record["oracles"] != oracles:
        yield f"its oracles are {' and '.join(oracles)}, not {' and '.join(record['oracles'])}"
    times, rest = divmod(record["bytes_compared"], nbytes)
    if record.get("subject"):
        if rest or times < len(POISONS):
            yield f"a call writes {nbytes} bytes, and {record['bytes_compared']} are no whole number of calls"
        return
    targets = record["targets"]
    if rest or times != len(POISONS) * len(targets):
        right = len(POISONS) * len(targets) * nbytes
        yield f"{right} bytes are compared in it, not {record['bytes_compared']}"
    by_target = {target: [] for target in targets}
    for name in record["instantiations"]:
        target, _, expression = name.partition(" ")
        by_target[target].append(expression)
    choices = [_kernels(case, fits) for fits in (False, True)]
    for target, kernels in by_target.items():
        if kernels not in choices:
            yield f"it runs {', '.join(choices[0])} on {target}, not {', '.join(kernels)}"


def _kernels(case: Case, fits: bool) -> list[str]:
    """The kernels of a case, where a device holds all CTAs of a launch at once and where it does not."""
    steps = plan(case, fits=lambda step: fits)
    return [instantiation(step.signature, step.case.flags) for step in steps if not step.library]
