"""The last screen of a suite run, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.table import Table

from harness import text
from harness.runner.outcome import few_compared
from harness.verdict import Result, Verdict
from harness.verify.screen import alike, said

MOST_LINES = 25  # lines of the last screen, including pytest's
AROUND = 4  # lines for the section's head, the page's path, and the last words of pytest and the supervisor
_CONVENTIONS = "convention that explains each byte that is not ours"


def render(
    results: Sequence[Result],
    refused: Counter[str],
    seconds: float,
    width: int,
    listing: str = "harness list --refused",
) -> str:
    """The end of a run: what was compared, what is wrong, a subject's conventions, what was not compared and why.

    It fits on one screen, even a narrow one; further rows are in verify.md.

    refused: combinations that the recipes refuse, reason → count; no cases exist for them
    seconds: wall time of the run; listing: the command that lists the refused combinations
    """
    for rows in (3, 2, 1):
        lines = _render(results, refused, seconds, width, rows, listing)
        if sum(-(-len(line) // width) for line in lines) + AROUND <= MOST_LINES:
            break
    return "\n".join(lines)


def _render(
    results: Sequence[Result], refused: Counter[str], seconds: float, width: int, rows: int, listing: str
) -> list[str]:
    """The lines.

    rows: how many rows for reasons, conventions and wrong cases, including the row that counts the rest
    """
    passed = [result for result in results if result.verdict.right]
    kernels = {name for result in passed for name in (*result.instantiations, *result.launched)}
    compared = Table(show_header=False)
    compared.add_column()
    compared.add_column(justify="right")
    compared.add_row("cases", _verdicts(results))
    compared.add_row("inputs compared", f"{len({result.input for result in passed}):,}")
    if kernels or not any(result.subject for result in results):  # what a function launches is known on the emulator
        compared.add_row("kernel instantiations compared", f"{len(kernels):,}")
    compared.add_row("bytes compared", f"{sum(result.bytes_compared for result in results):,}")
    compared.add_row("seconds", f"{seconds:.1f}")

    red = sorted((result for result in results if result.verdict.exit_code), key=lambda result: result.case_id)
    wrong = [result for result in red if result.verdict.judges]
    unjudged = [result for result in red if not result.verdict.judges]
    declared = Counter(result.conventions for result in results if result.verdict is Verdict.CONVENTION)
    incapable = Counter(result.reason for result in results if result.verdict is Verdict.EXCLUDED)
    compared_inputs = {result.input for result in results if result.verdict.judges}
    left_out = ", ".join(sorted({result.input for result in results} - compared_inputs))
    few = "" if red else few_compared(results)
    lists = (
        *([few] if few else []),
        *_listed("wrong", "case", "others, which verify.md has", _alike(wrong), 0, rows),
        *(_cut(f"the first: {_cause(result)}", width) for result in wrong[:1] if rows > 1 or not unjudged),
        *_not_judged(unjudged, width, rows),
        *_listed("cases", _CONVENTIONS, "by others", _by(declared), width, rows),
        *_listed(
            "excluded",
            "because the device or the subject cannot run it",
            "for other reasons",
            _by(incapable),
            width,
            rows,
        ),
        *([_cut(f"no compared case has the input {left_out}", width)] if left_out else []),
    )
    console = text.console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(compared)
    if refused:
        reasons = f"for {len(refused)} reason{'s' * (len(refused) > 1)}: {listing}"
        lists += (f"{refused.total():,} combinations are refused, {reasons}",)
    return [*capture.get().rstrip().splitlines(), *lists]


def _cause(result: Result) -> str:
    """The cause in a wrong case's story, or else its reason."""
    return text.one_line(said(result.story, "cause") or result.reason)


def _cut(line: str, width: int) -> str:
    return f"{line[: width - 1]}…" if len(line) > width else line


def _verdicts(results: Sequence[Result]) -> str:
    """`120 PASS, 5 EXCLUDED`, in the order of the verdicts."""
    found = Counter(result.verdict for result in results)
    return ", ".join(
        f"{found[verdict]:,} {verdict}" for verdict in Verdict if found[verdict] or verdict is Verdict.PASS
    )


def _not_judged(results: Sequence[Result], width: int, rows: int) -> list[str]:
    """How many cases judged no kernel, and, if there is room, the first of them and its reason."""
    if not results:
        return []
    first, count = results[0], f"{len(results):,} not judged"
    if rows == 1:
        return [_cut(f"{count}: {', '.join(dict.fromkeys(each.verdict for each in results))}", width)]
    return [f"{count}, the first {first.verdict}  {first.case_id}", _cut(f"  {first.reason}", width)]


def _alike(results: Sequence[Result]) -> list[tuple[str, str, int]]:
    """A row for each group of cases that fail alike: its first case, and how many others there are."""
    groups = [[each["case_id"] for each in group] for group in alike(each.to_record() for each in results)]
    verdicts = {result.case_id: str(result.verdict) for result in results}
    return [
        (verdicts[first], f"{first}  and {len(others):,} alike" if others else first, 1 + len(others))
        for first, *others in groups
    ]


def _by(counts: Counter[str]) -> list[tuple[str, str, int]]:
    """Sort reasons by count, then alphabetically, so that two runs show them in the same order."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [(f"{count:,}", reason, count) for reason, count in ordered]


def _listed(
    left: str, right: str, others: str, rows: Sequence[tuple[str, str, int]], width: int, most: int
) -> list[str]:
    """A table with one line per row, whose last row counts the rows that do not fit; empty without rows.

    left, right: heads of the columns; rows: what stands in them, and for how many cases; most: of the table's rows
    width: where a line is cut, 0 for nowhere, because an id is copied into commands
    """
    if not rows:
        return []
    shown = list(rows) if len(rows) <= most else [*rows[: most - 1]]
    if len(shown) < len(rows):
        shown.append((f"{sum(count for _, _, count in rows[len(shown) :]):,}", others, 0))
    wide = max(len(first) for first, _, _ in [(left, "", 0), *shown])
    lines = [f"{first:{'<' if right == 'case' else '>'}{wide}}  {text.one_line(then)}" for first, then, _ in shown]
    return [f"{left:<{wide}}  {right}", *(_cut(line, width) if width else line for line in lines)]
