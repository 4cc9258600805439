"""The closing table of a suite run, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.table import Table

from harness import text
from harness.verdict import Result, Verdict

_REASONS = 4  # why a device cannot run a case, that are shown


def render(results: Sequence[Result], refused: Counter[str], seconds: float, width: int) -> str:
    """Tables of what was compared, of a subject's declared differences, and of what was not compared and why.

    So short that a run ends on one screen.

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
    excluded = Table("excluded", "because the device cannot run it")
    for reason, count in incapable.most_common(_REASONS):
        excluded.add_row(f"{count:,}", reason)
    others = incapable.total() - sum(count for _, count in incapable.most_common(_REASONS))
    if others:
        excluded.add_row(f"{others:,}", f"for {len(incapable) - _REASONS} other reasons, which verify.md has")
    excluded.columns[0].justify = "right"

    console = text.console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(compared)
        for table in (conventions, excluded):
            if table.row_count:
                console.print(table)
        if refused:
            reasons = f"for {len(refused)} reason{'s' * (len(refused) > 1)}: harness list --refused"
            console.print(f"{refused.total():,} combinations are refused by the suites, {reasons}")
    return capture.get().rstrip()
