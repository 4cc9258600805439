"""The exit code of a suite run and the sentences for it, from the cases it selected and the results it has."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from harness.device.capability import DECLARED, OF_THE_DEVICE
from harness.errors import Exit, worst
from harness.ground.command_lines import is_card
from harness.verdict import Result, Verdict, exit_words

BEFORE_COMPARED = (Verdict.COMPILE_ERROR, Verdict.LAUNCH_ERROR)
_SHOWN = 3
_DECLARE = (
    "; declare the flags that it is for as HARNESS_FLAGS in its module, which the cases of a set then take on, or "
    "select with -k or --case those that it takes"
)


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
    few = few_compared(results)
    if not few or _by_a_card(results):  # what a card is for it declares, every extent and flag
        return Exit.CLEAN, ""
    return Exit.NO_DEVICE, few if all(result.verdict is Verdict.EXCLUDED for result in results) else few + _DECLARE


def few_compared(results: Sequence[Result]) -> str:
    """A sentence if nothing was compared, or less than half of what the device runs; empty otherwise.

    What a function declares, as its flags, is not asked of it.
    """
    excluded = [result for result in results if result.verdict is Verdict.EXCLUDED]
    by_device = sum(not result.subject or result.reason.startswith(OF_THE_DEVICE) for result in excluded)
    declared = sum(result.reason.startswith(DECLARED) for result in excluded)
    refused = len(excluded) - by_device - declared
    if results and len(excluded) == len(results):
        if by_device == len(results):
            return f"nothing was compared: all {by_device:,} cases are excluded on this device"
        by_others = f"; of them {by_device:,} by the device" if by_device else ""
        return f"nothing was compared: all {len(results):,} cases are excluded{by_others}"
    asked = len(results) - by_device - declared
    if 2 * refused <= asked:
        return ""
    return f"only {asked - refused:,} of {asked:,} cases were compared: the subject refuses the other {refused:,}"


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
    """The meaning of a run's exit code, for its last line."""
    missing = bool({*selected} - {result.case_id for result in results})
    if code in (Exit.BYTES_DIFFER, Exit.NO_DEVICE) and not any(result.verdict.exit_code for result in results):
        if code is Exit.BYTES_DIFFER and missing:
            return "not every case was compared"
        if code is Exit.NO_DEVICE and not missing:
            return "too few cases were compared"
    return exit_words(code, [result.verdict for result in results])


def _by_a_card(results: Sequence[Result]) -> bool:
    """Whether a card's kernels were compared."""
    ran = [result.subject for result in results if result.verdict is not Verdict.EXCLUDED]
    return any(is_card(subject.rpartition(" (")[0]) for subject in ran)


def _some(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
    return ", ".join(ids[:_SHOWN]) + more
