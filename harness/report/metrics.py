"""A gate as OpenMetrics text, for a merge request that compares two such files line by line, as strings.

Noise must not change a line: a verdict is an integer, a ratio has two significant digits, and the ratios from
`harness.gate.report` change only with a significant change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from harness.records.records import Record
from harness.verdict import Judgement, Performance, Verdict, failures_of

FASTER = -1


def metrics(records: Iterable[Record], judgements: Sequence[Judgement], ratios: Mapping[str, float]) -> str:
    """The text: cases by verdict, then the verdict of each case, then its ratio, sorted by case id.

    ratios: case id → times as fast as what the case is compared with
    """
    red = {record["case_id"]: Verdict(record["verdict"]) for record in failures_of(records)}
    wrong = sum(verdict.judges for verdict in red.values())
    verdicts = {judgement.case_id: code_of(judgement.verdict) for judgement in judgements}
    verdicts |= {case_id: int(verdict.exit_code) for case_id, verdict in red.items()}
    counts = Counter(str(judgement.verdict) for judgement in judgements)
    lines = [
        *_head("nvfp4_wrong", "Cases with a wrong byte."),
        f"nvfp4_wrong {wrong}",
        *_head("nvfp4_not_judged", "Cases in which no kernel was judged."),
        f"nvfp4_not_judged {len(red) - wrong}",
        *_head("nvfp4_cases", "Judged cases of each verdict."),
        *(f'nvfp4_cases{{verdict="{verdict}"}} {counts[verdict]}' for verdict in Performance),
        *_head(
            "nvfp4_verdict",
            "-1 faster, 0 same, 1 wrong bytes, 2 slower, 3 not told, 5 no baseline, 4 and 64 not judged.",
        ),
        *(f"nvfp4_verdict{_case(name)} {verdicts[name]}" for name in sorted(verdicts)),
        *_head("nvfp4_ratio", "Times as fast as what it is held against, two digits."),
        *(f"nvfp4_ratio{_case(name)} {two_digits(ratios[name])}" for name in sorted(ratios)),
        "# EOF",
    ]
    return "\n".join(lines) + "\n"


def code_of(verdict: Performance) -> int:
    """The exit code of a verdict, but -1 for FASTER, whose exit code is that of SAME."""
    return FASTER if verdict is Performance.FASTER else int(verdict.exit_code)


def two_digits(value: float) -> str:
    """Two significant digits, never with an exponent: 0.72, 1.3, 4.0, 12."""
    rounded = float(f"{value:.1e}")
    decimals = max(0, 1 - int(f"{rounded:e}".partition("e")[2]))
    return f"{rounded:.{decimals}f}"


def _head(name: str, help_text: str) -> list[str]:
    return [f"# TYPE {name} gauge", f"# HELP {name} {help_text}"]


def _case(case_id: str) -> str:
    escaped = case_id.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{{case="{escaped}"}}'
