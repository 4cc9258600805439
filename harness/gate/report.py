"""The report of a gate: page, summary and table for people, JUnit, metrics and code quality for a merge request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from harness.errors import Exit
from harness.report.code_quality import write_code_quality
from harness.report.junit import write_junit
from harness.report.metrics import write_metrics
from harness.report.pages import rows
from harness.report.plots.heat import heat_maps
from harness.report.plots.samples import Distribution, distribution
from harness.report.tables import failures_of, markdown, pictures_of, write_files
from harness.runner.run_files import Header, Record, RunFiles
from harness.verdict import Change, Judgement, Performance, Result, Verdict

_COLUMNS = (
    "verdict", "case_id", "base_us", "now_us", "change_percent", "low_percent", "high_percent", "reason",
)  # fmt: skip

_ORDER = (
    Performance.SLOWER, Performance.NO_BASELINE, Performance.AMBIGUOUS, Performance.INVALID, Performance.NOT_MEASURED,
    Performance.FASTER, Performance.SAME,
)  # fmt: skip
_HELD = (Performance.SAME, Performance.AMBIGUOUS)
_MOVED = (Performance.FASTER, Performance.SLOWER, Performance.NO_BASELINE)
_SIDES = {"base": "base", "now": "head", "now again": "again"}  # as drawn, and as `revision_bench` names them


@dataclass(frozen=True)
class Gated:
    """What a gate found, wherever its times come from.

    records: what was verified; samples: side → case id → us, sides in the order they are drawn
    facts: what was compared with what; again: the command that judges one case anew, `{case}` for its id
    ratios: case id → times as fast as what it is held against, moved only by a proven change
    pictures: `roofline`, `maps` and `groups` as the templates take them; than: what `maps` are relative to
    """

    records: Sequence[Record]
    judgements: Sequence[Judgement]
    samples: Mapping[str, Mapping[str, Sequence[float]]]
    facts: Mapping[str, str]
    ratios: Mapping[str, float]
    again: str
    than: str
    pictures: Mapping[str, Any]


def of_run(run: RunFiles, header: Header, held: Sequence[Record], judgements: Sequence[Judgement]) -> Gated:
    """A run against stored times, with their header: empty, if there are none.

    While a case is SAME or AMBIGUOUS, its ratio to the baseline recipe is the stored one.
    """
    now, then = ({record["case_id"]: record.get("times") or {} for record in side} for side in (run.records, held))
    ratios = {}
    for judgement in judgements:
        side = then if judgement.verdict in _HELD else now if judgement.verdict in _MOVED else {}
        ratios[judgement.case_id] = side.get(judgement.case_id, {}).get("baseline_ratio")
    return Gated(
        run.records, judgements,
        {name: {case_id: times.get("samples_us", ()) for case_id, times in side.items()}
         for name, side in (("base", then), ("now", now))},
        {"this run": said(run.header), "compared with": said(header)},
        {case_id: ratio for case_id, ratio in ratios.items() if ratio},
        "make bench CASE='{case}' && make gate", "the baseline recipe", pictures_of(run.header, run.timed),
    )  # fmt: skip


def of_lines(header: Header, lines: Sequence[Mapping[str, Any]], records: Sequence[Record] = ()) -> Gated:
    """What `harness gate --base` wrote. records: what was verified, made from the lines if there are none.

    While a case is SAME or AMBIGUOUS, it is as fast as the base.
    """
    found = [line for line in lines if "case_id" in line]
    judgements = [
        Judgement(
            line["case_id"], Performance(line["verdict"]), line["reason"], line["head_us"], line["base_us"],
            Change(*line["time"]) if line["time"] else None,
        )
        for line in found
    ]  # fmt: skip
    changed = {one.case_id: one.theirs_us / one.ours_us for one in judgements if one.ours_us and one.theirs_us}
    told = {one.case_id: one.verdict for one in judgements}
    ratios = dict.fromkeys((name for name, verdict in told.items() if verdict in _HELD), 1.0)
    ratios |= {name: ratio for name, ratio in changed.items() if told[name] in _MOVED}
    sides = {name: {line["case_id"]: line["samples_us"].get(key, ()) for line in found} for name, key in _SIDES.items()}
    maps = heat_maps([{"case_id": name, "times": {"baseline_ratio": ratio}} for name, ratio in changed.items()], 1.2)
    base = header.get("base", "?")
    facts = {
        "now": said(header),
        "base": f"{base}, commit {header.get('base_commit', '?')}",
        "method": header.get("method", "?"),
        "least change that counts": f"{header.get('effect', 0):.1%}",
    }
    again = f"harness gate --base {base} --case '{{case}}'"
    pictures = {"roofline": None, "maps": maps, "groups": {}}
    return Gated(
        records or [_verified(line) for line in found], judgements, sides, facts, ratios, again, "the base", pictures
    )


def write_gate(folder: Path, gated: Gated, code: Exit) -> list[Path]:
    """Write gate.md, gate.csv, gate.html, gate.xml (JUnit), metrics.txt and codequality.json; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        *write_pages(folder, "gate", gated, code),
        write_junit(folder / "gate.xml", gated.records, gated.judgements, gated.again),
        write_metrics(folder, gated.records, gated.judgements, gated.ratios),
        write_code_quality(folder, gated.records, gated.judgements),
    ]


def write_pages(folder: Path, stem: str, gated: Gated, code: Exit) -> list[Path]:
    """Write what people read, `stem`.md, .csv and .html; their paths."""
    table = gate_table(gated.judgements)
    wrong = failures_of(gated.records)
    counts = {str(verdict): count for verdict, count in Counter(table["verdict"]).most_common()}
    outcome = f"exit {int(code)}, {code.name.lower().replace('_', ' ')}"
    content = {
        "outcome": outcome, "facts": gated.facts, "counts": counts, "wrong": wrong, "table": rows(table),
        "drawn": _drawn(gated), "than": gated.than, **gated.pictures,
    }  # fmt: skip
    text = [
        f"# Gate: {outcome}",
        markdown(pd.DataFrame(gated.facts.items(), columns=["", "this gate"])),
        markdown(pd.DataFrame(counts.items(), columns=["verdict", "cases"])),
    ]
    if wrong:
        text += ["## Wrong bytes", markdown(pd.DataFrame(wrong, columns=["verdict", "case_id", "reason"]))]
    notable = table[table["verdict"] != Performance.SAME]
    if len(notable):
        text += ["## Every verdict but SAME", markdown(_spelled(notable))]
    return write_files(folder, stem, table, text, "gate.html.j2", content)


def gate_table(judgements: Sequence[Judgement]) -> pd.DataFrame:
    """One row a judgement, the worst first; changes in percent of the other side's time."""
    return pd.DataFrame([_row(judgement) for judgement in _worst_first(judgements)], columns=list(_COLUMNS))


def said(header: Mapping[str, Any]) -> str:
    """What times were measured with, in a line; of an empty header that there are none."""
    if not header:
        return "nothing"
    machine = header.get("machine", {})
    edited = ", with uncommitted edits" if header.get("edited") else ""
    return (
        f"commit {header.get('commit', '?')}{edited}; {header.get('date', '?')}; "
        f"{machine.get('gpu', '?')}, driver {machine.get('driver', '?')}; {header.get('command', '?')}"
    )


def _worst_first(judgements: Sequence[Judgement]) -> list[Judgement]:
    return sorted(judgements, key=lambda judgement: _ORDER.index(judgement.verdict))


def _row(judgement: Judgement) -> dict[str, Any]:
    row = {"verdict": str(judgement.verdict), "case_id": judgement.case_id, "reason": judgement.reason}
    row |= {"base_us": judgement.theirs_us, "now_us": judgement.ours_us}
    if judgement.change:
        ends = {"change": judgement.change.ratio, "low": judgement.change.low, "high": judgement.change.high}
        row |= {f"{name}_percent": 100 * (value - 1) for name, value in ends.items()}
    return row


def _spelled(table: pd.DataFrame) -> pd.DataFrame:
    told = table[["verdict", "case_id", "base_us", "now_us", "reason"]].astype(object)
    for column in ("base_us", "now_us"):
        told[column] = [f"{value:,.2f}" if pd.notna(value) else "-" for value in table[column]]
    return told


def _drawn(gated: Gated) -> list[tuple[Judgement, Distribution]]:
    found = []
    for judgement in _worst_first(gated.judgements):
        if judgement.verdict is not Performance.SAME:
            picture = distribution({name: side.get(judgement.case_id, ()) for name, side in gated.samples.items()})
            found += [(judgement, picture)] if picture else []
    return found


def _verified(line: Mapping[str, Any]) -> Record:
    reason = "" if line["verified"] == Verdict.PASS else line["reason"]
    return Result(line["case_id"], line["recipe"], Verdict(line["verified"]), reason).to_record()
