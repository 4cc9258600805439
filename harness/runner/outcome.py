"""The exit code of a suite run and the sentences for it, from the cases it selected and the results it has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from harness.errors import SEVERITY, Exit
from harness.verdict import Result, Verdict, exit_words

BEFORE_COMPARED = (Verdict.COMPILE_ERROR, Verdict.LAUNCH_ERROR)
OF_THE_DEVICE = "capability:"  # a device's reasons for EXCLUDED begin so, and no subject's do
_SHOWN = 3


def outcome(
    selected: Collection[str], total: int, results: Sequence[Result], ended_by: Exit = Exit.CLEAN
) -> tuple[Exit, str]:
    """CLEAN only if every selected case has a result, none is wrong and enough were compared.

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
    too_few = few_compared(results)
    return (Exit.NO_DEVICE, too_few) if too_few else (Exit.CLEAN, "")


def few_compared(results: Sequence[Result]) -> str:
    """A sentence if nothing was compared, or if a subject refuses most of the cases that its device runs; else empty.

    What a card or a function declares is not counted against it: the cases of a set take on the flags it declares.
    """
    excluded = [result for result in results if result.verdict is Verdict.EXCLUDED]
    refused = [result for result in excluded if not result.reason.startswith(OF_THE_DEVICE)]
    by_device = len(excluded) - len(refused)
    if len(excluded) == len(results):
        if not refused:
            return f"nothing was compared: all {by_device:,} cases are excluded on this device"
        also = f", and the device runs {by_device:,} others not" if by_device else ""
        return f"nothing was compared: the subject refuses {_count(len(refused))}{also}"
    asked = len(results) - by_device
    if 2 * len(refused) <= asked or any(_is_card(result.subject) for result in refused):
        return ""
    return (
        f"only {asked - len(refused):,} of {asked:,} cases were compared: the subject refuses {len(refused):,}, more "
        "than half; declare the flags that it is for as HARNESS_FLAGS in its module, and the cases of a set take them "
        "on, or select with -k or --case the cases that it takes"
    )


def worst(codes: Iterable[Exit]) -> Exit:
    """The most serious of some exit codes; CLEAN if there are none."""
    codes = {*codes, Exit.CLEAN}
    return next(code for code in SEVERITY if code in codes)


def last_line(selected: Collection[str], results: Sequence[Result]) -> str:
    """Text such as `465 selected, 447 compared, 18 excluded`, with further counts if there are any."""
    excluded = sum(result.verdict is Verdict.EXCLUDED for result in results)
    failed = sum(result.verdict in BEFORE_COMPARED for result in results)
    unjudged = sum(not result.verdict.judges for result in results) - excluded
    counts = {
        "selected": len(selected),
        "compared": len(results) - excluded - failed - unjudged,
        "excluded": excluded,
        "failed before they could be compared": failed,
        "not judged": unjudged,
        "without a result": len({*selected} - {result.case_id for result in results}),
        "wrong": sum(bool(result.verdict.exit_code) for result in results) - failed - unjudged,
    }
    always = ("selected", "compared", "excluded")
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count or name in always)


def meaning(code: Exit, selected: Collection[str], results: Sequence[Result]) -> str:
    """What the exit code of a run means, for its last line."""
    missing = bool({*selected} - {result.case_id for result in results})
    if code in (Exit.BYTES_DIFFER, Exit.NO_DEVICE) and not any(result.verdict.exit_code for result in results):
        if code is Exit.BYTES_DIFFER and missing:
            return "not every case was compared"
        if code is Exit.NO_DEVICE and not missing:
            return "too few cases were compared"
    return exit_words(code, [result.verdict for result in results])


def _is_card(subject: str) -> bool:
    return subject.rpartition(" (")[0].endswith((".yaml", ".yml"))


def _count(cases: int) -> str:
    return f"all {cases:,} cases" if cases > 1 else "the case"


def _some(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
    return ", ".join(ids[:_SHOWN]) + more
