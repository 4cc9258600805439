"""The last screen of a gate, as text: the worst first, each case on a line, and no more lines than a screen has."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence

from harness import text
from harness.errors import Exit
from harness.gate.report import worst_first
from harness.records.records import Record
from harness.verdict import Judgement, Performance, Verdict, exit_meanings, failures_of

MOST_LINES = 25
_AROUND = 6  # lines: the page's path, the baseline, what is left out, a blank line, and two of counts
_INDENT = "    "
_WIDEST = 160  # columns; a reason is wrapped at this width even if lines can be longer


def render(records: Sequence[Record], judgements: Sequence[Judgement], code: Exit, width: int) -> str:
    """The wrong and the changed cases, with the reason once for all that have the same; then how many of each.

    records: what was verified; width: columns of a reason, while an id is never broken
    """
    wrong = failures_of(records)
    entries = [_entry([record["case_id"]], record["verdict"], record["reason"], "", width) for record in wrong]
    failed = {record["case_id"] for record in wrong}
    groups = _by_reason(judgement for judgement in judgements if judgement.case_id not in failed)
    entries += [_entry_of(group, width) for group in groups]
    shown: list[str] = []
    count = 0
    for entry in entries:
        rows = sum(-(-len(line) // width) for line in (*shown, *entry))
        if shown and rows > MOST_LINES - _AROUND:
            break
        shown += entry[: MOST_LINES - _AROUND]
        count += 1
    if count < len(entries):
        shown.append(f"and {len(entries) - count:,} more verdicts with other reasons, which gate.md has")
    counts = Counter(judgement.verdict for judgement in judgements)
    summary = [f"{counts[verdict]} {verdict}" for verdict in Performance if counts[verdict]] or ["nothing was measured"]
    verdicts = [Verdict(record["verdict"]) for record in records]
    unjudged = sum(not Verdict(record["verdict"]).judges for record in wrong)
    summary += [f"{len(wrong) - unjudged} wrong"] if len(wrong) > unjudged else []
    summary += [f"{unjudged} not judged"] if unjudged else []
    means = next(iter(exit_meanings(code, verdicts)), "clean")  # the counts have the rest
    end = f"{', '.join(summary)}: exit {int(code)} ({means})"
    return "\n".join([*shown, *([""] if shown else []), end])


def _by_reason(judgements: Iterable[Judgement]) -> list[list[Judgement]]:
    """Judgements other than SAME, the worst first, those of one verdict and one reason together."""
    groups: dict[tuple[str, str], list[Judgement]] = {}
    for judgement in worst_first(judgements):
        if judgement.verdict is not Performance.SAME:
            groups.setdefault((judgement.verdict, judgement.reason), []).append(judgement)
    return list(groups.values())


def _entry_of(group: Sequence[Judgement], width: int) -> list[str]:
    first = group[0]
    times = [f"{value:,.2f}" for value in (first.reference_us, first.candidate_us) if value is not None]
    us = f"{' -> '.join(times)} us" if times and len(group) == 1 else ""
    return _entry([judgement.case_id for judgement in group], first.verdict, first.reason, us, width)


def _entry(ids: Sequence[str], verdict: str, reason: str, us: str, width: int) -> list[str]:
    """The first case with its verdict on a line, and the reason below it."""
    more = f" and {len(ids) - 1:,} more" if len(ids) > 1 else ""
    line = text.one_line(f"{us}; {reason}" if us else reason)
    wrapped = textwrap.wrap(line, min(width, _WIDEST) - len(_INDENT), break_long_words=False, break_on_hyphens=False)
    return [f"{verdict:<12} {text.one_line(ids[0])}{more}", *(f"{_INDENT}{line}" for line in wrapped)]
