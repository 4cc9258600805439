"""The exit code of a suite run and the sentences for it, from the cases it selected and the results it has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from harness.errors import SEVERITY, Exit
from harness.verdict import Result, Verdict

NOT_COMPARED = (Verdict.COMPILE_ERROR, Verdict.LAUNCH_ERROR)
_SHOWN = 3


def outcome(
    selected: Collection[str], total: int, results: Sequence[Result], ended_by: Exit = Exit.CLEAN
) -> tuple[Exit, str]:
    """CLEAN only if every selected case has a result, none is wrong and at least one was compared.

    selected: case ids; total: how many there were before the command line narrowed them; ended_by: the exit code of an
    error that ended the run early and was reported, if there was one
    """
    if not selected:
        return Exit.USAGE, f"no case was selected out of {total}; loosen -k, --case, --set or --shard"
    found = [result.case_id for result in results]
    strange = sorted({*found} - {*selected})
    if strange:
        return Exit.USAGE, f"the run has results of cases that it did not select: {_some(strange)}"
    wrong = {result.verdict.exit_code for result in results} - {Exit.CLEAN}
    missing = sorted({*selected} - {*found})
    if missing:
        sentence = (
            f"{len(missing):,} of {len(selected):,} selected cases have no result: {_some(missing)}; only --set, "
            "--case, --shard, -k, --deselect or FILE::ID on the command line leave cases out"
        )
        return worst([ended_by or Exit.BYTES_DIFFER, *wrong]), "" if ended_by else sentence
    if wrong:
        return worst(wrong), ""
    if all(result.verdict is Verdict.EXCLUDED for result in results):
        return Exit.NO_DEVICE, f"nothing was compared: all {len(results):,} cases are excluded on this device"
    return Exit.CLEAN, ""


def worst(codes: Iterable[Exit]) -> Exit:
    """The most serious of some exit codes; CLEAN if there are none."""
    codes = {*codes, Exit.CLEAN}
    return next(code for code in SEVERITY if code in codes)


def last_line(selected: Collection[str], results: Sequence[Result]) -> str:
    """Text such as `465 selected, 447 compared, 18 excluded`, with further counts if there are any."""
    excluded = sum(result.verdict is Verdict.EXCLUDED for result in results)
    failed = sum(result.verdict in NOT_COMPARED for result in results)
    counts = {
        "selected": len(selected),
        "compared": len(results) - excluded - failed,
        "excluded": excluded,
        "failed before they could be compared": failed,
        "without a result": len({*selected} - {result.case_id for result in results}),
        "wrong": sum(bool(result.verdict.exit_code) for result in results) - failed,
    }
    always = ("selected", "compared", "excluded")
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count or name in always)


def _some(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
    return ", ".join(ids[:_SHOWN]) + more
