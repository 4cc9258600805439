"""The closing table of a suite run, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.table import Table

from harness import text
from harness.verdict import Result, Verdict


def render(results: Sequence[Result], refused: Counter[str], seconds: float, width: int) -> str:
    """Tables of what was compared, of a subject's declared differences, and of what was not compared and why.

    refused: combinations that the recipes refuse, reason → count; no cases exist for them
    seconds: wall time of the run
    """
    verdicts = Counter(result.verdict for result in results)
    passed = [result for result in results if result.verdict.right]
    compared = Table("", "count")
    for verdict in Verdict:
        if verdicts[verdict] or verdict is Verdict.PASS:
            compared.add_row(f"cases {verdict}", f"{verdicts[verdict]:,}")
    compared.add_row("inputs compared", f"{len({result.input for result in passed}):,}")
    instantiations = {name for result in passed for name in result.instantiations}
    compared.add_row("kernel instantiations compared", f"{len(instantiations):,}")
    compared.add_row("bytes compared", f"{sum(result.bytes_compared for result in results):,}")
    compared.add_row("seconds", f"{seconds:.1f}")
    compared.columns[1].justify = "right"

    declared = Counter(result.conventions for result in results if result.verdict is Verdict.CONVENTION)
    conventions = Table("cases", "convention that explains each byte that is not ours")
    for reason, count in declared.most_common():
        conventions.add_row(f"{count:,}", reason)
    conventions.columns[0].justify = "right"

    incapable = Counter(result.reason for result in results if result.verdict is Verdict.EXCLUDED)
    excluded = Table("excluded", "by", "because")
    for by, reasons in (("device", incapable), ("recipe", refused)):
        for reason, count in reasons.most_common():
            excluded.add_row(f"{count:,}", by, reason)
    excluded.columns[0].justify = "right"

    console = text.console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(compared)
        for table in (conventions, excluded):
            if table.row_count:
                console.print(table)
    return capture.get().rstrip()
