"""The report of a gate: page, summary and table for people, JUnit, metrics and code quality for a merge request."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.bench.standings import Standing, furthest
from harness.errors import Exit
from harness.files import write_text
from harness.gate.decision import CHANGED
from harness.gate.recomputed import flaw, require_its_verdict
from harness.ground.command_lines import UNNAMED, Asked, quoted, recipe_dir_option, this_harness, verify_command
from harness.records.records import Record
from harness.records.run_folder import Header, RunFiles
from harness.report.merge_request import junit, metrics, write_code_quality
from harness.report.pages import rows
from harness.report.plots import Distribution, distribution, heat_maps
from harness.report.tables import markdown, pictures_of, write_files, wrong_groups
from harness.verdict import Judgement, Performance, Result, TimeRatio, Verdict, exit_words, failures_of

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = (
    "verdict", "case_id", "base_us", "now_us", "change_percent", "low_percent", "high_percent", "reason",
)  # fmt: skip

_ORDER = (
    Performance.SLOWER, Performance.NO_BASELINE, Performance.AMBIGUOUS, Performance.INVALID, Performance.NOT_MEASURED,
    Performance.FASTER, Performance.SAME,
)  # fmt: skip
_REVISION = re.compile(r"\w[\w./@^~{}-]*", re.ASCII)
_STORED = (Performance.SAME, Performance.AMBIGUOUS)  # verdicts that keep the stored ratio
_MEASURED = (*CHANGED, Performance.NO_BASELINE)  # verdicts that take this run's ratio
_SERIES = {"base": "base", "now": "head", "now again": "again"}  # series in a picture → graph of `revision_bench`


@dataclass(frozen=True)
class GateResult:
    """The result of a gate, against a baseline or a revision.

    records: what was verified; samples: series → case id → us, series in the order they are drawn
    facts: the two runs that were compared; rerun: what makes of a case id the command that repeats it
    ratios: case id → times as fast as its counterpart, changed only by a significant change
    pictures: `roofline`, `maps` and `groups` as the templates take them; than: what `maps` are relative to
    flaw: why it is not clean although its cases are, such as being unfinished
    asked: who asked for the records, for the commands below one that is wrong
    furthest: the timed cases that are furthest from their targets, see `harness.bench.standings`
    """

    records: Sequence[Record]
    judgements: Sequence[Judgement]
    samples: Mapping[str, Mapping[str, Sequence[float]]]
    facts: Mapping[str, str]
    ratios: Mapping[str, float]
    rerun: Callable[[str], str]
    than: str
    pictures: Mapping[str, Any]
    flaw: str = ""
    asked: Asked | None = None
    furthest: Sequence[Standing] = ()

    def at_best(self, code: Exit) -> Exit:
        """The exit code of its cases, NOISY in place of CLEAN if it has a flaw."""
        return Exit.NOISY if self.flaw and code is Exit.CLEAN else code


def from_run(
    run: RunFiles, header: Header, stored: Sequence[Record], judgements: Sequence[Judgement], subject: str = ""
) -> GateResult:
    """The result of a run against stored times.

    header: of the stored times, empty if there are none; subject: as this command line names it
    While a case is SAME or AMBIGUOUS, its ratio to the baseline recipe is the stored one.
    """
    now, then = (
        {record["case_id"]: record.get("times") or {} for record in series} for series in (run.records, stored)
    )
    ratios, asked = {}, Asked.from_header(run.about, run.path, subject)
    for judgement in judgements:
        series = then if judgement.verdict in _STORED else now if judgement.verdict in _MEASURED else {}
        ratios[judgement.case_id] = series.get(judgement.case_id, {}).get("baseline_ratio")
    return GateResult(
        run.records, judgements,
        {name: {case_id: times.get("samples_us", ()) for case_id, times in series.items()}
         for name, series in (("base", then), ("now", now))},
        {"this run": describe(run.header), "compared with": describe(header)},
        {case_id: ratio for case_id, ratio in ratios.items() if ratio},
        lambda case_id: _timed_and_gated(verify_command(case_id, "bench", asked)),
        "the baseline recipe", pictures_of(run.header, run.timed),
        asked=asked, furthest=furthest(run.header, run.records),
    )  # fmt: skip


def _timed_and_gated(bench: str) -> str:
    """A command that times a case and gates; what is not named, see `Asked`, has to be filled in first."""
    return bench if f"# {UNNAMED}" in bench else f"{bench} && {shlex.join(this_harness(Path.cwd()))} gate"


def from_lines(header: Header, lines: Sequence[Mapping[str, Any]], records: Sequence[Record] = ()) -> GateResult:
    """The result that `harness gate --base` wrote. records: what was verified, made from the lines if there are none

    The ratio of a SAME or AMBIGUOUS case is 1. Raises UsageError for a verdict that its changes do not give, and for
    cases that are not those that were chosen.
    """
    found = [line for line in lines if "case_id" in line]
    for line in found:
        require_its_verdict(line, header)
    flawed = flaw(header, lines)
    judgements = [
        Judgement(
            line["case_id"], Performance(line["verdict"]), line["reason"], line["head_us"], line["base_us"],
            TimeRatio(*line["time"]) if line["time"] else None,
        )
        for line in found
    ]  # fmt: skip
    changed = {
        one.case_id: one.reference_us / one.candidate_us for one in judgements if one.candidate_us and one.reference_us
    }
    verdicts = {one.case_id: one.verdict for one in judgements}
    ratios = dict.fromkeys((name for name, verdict in verdicts.items() if verdict in _STORED), 1.0)
    ratios |= {name: ratio for name, ratio in changed.items() if verdicts[name] in _MEASURED}
    samples = {
        name: {line["case_id"]: line["samples_us"].get(key, ()) for line in found} for name, key in _SERIES.items()
    }
    maps = heat_maps([{"case_id": name, "times": {"baseline_ratio": ratio}} for name, ratio in changed.items()], 1.2)
    base = header.get("base", "?")
    facts = {
        "now": describe(header),
        "base": f"{base}, commit {header.get('base_commit', '?')}",
        "method": header.get("method", "?"),
        "least change that counts": f"{header.get('effect', 0):.1%}",
    }
    if "chosen" in header:
        timed = sum(bool(line["samples_us"]) for line in found)
        facts["cases"] = f"{header['chosen']:,} chosen, {timed:,} timed"
    named = base if _REVISION.fullmatch(base) else UNNAMED
    again = shlex.join([*this_harness(Path.cwd()), "gate", "--base", named])
    return GateResult(
        records or [_verified(line) for line in found if line["verified"]], judgements, samples, facts, ratios,
        lambda case_id: f"{again}{recipe_dir_option(case_id)} --case {quoted(case_id)}", "the base",
        {"roofline": None, "maps": maps, "groups": {}}, flawed, Asked.here(),
    )  # fmt: skip


def write_gate(folder: Path, gated: GateResult, code: Exit) -> list[Path]:
    """Write gate.md, gate.csv, gate.html, gate.xml (JUnit), metrics.txt and codequality.json; their paths."""
    paths = [*write_pages(folder, "gate", gated, code), folder / "gate.xml", folder / "metrics.txt"]
    write_text(paths[-2], junit(gated.records, gated.judgements, gated.rerun, gated.asked).decode())
    write_text(paths[-1], metrics(gated.records, gated.judgements, gated.ratios))
    return [*paths, write_code_quality(folder, gated.records, gated.judgements)]


def write_pages(folder: Path, stem: str, gated: GateResult, code: Exit) -> list[Path]:
    """Write `stem`.md, .csv and .html; their paths."""
    import pandas as pd

    table = gate_table(gated.judgements)
    wrong = failures_of(gated.records)
    counts = {str(verdict): count for verdict, count in Counter(table["verdict"]).most_common()}
    standings = [one.row() for one in gated.furthest]
    code = gated.at_best(code)
    meaning = exit_words(code, [Verdict(record["verdict"]) for record in gated.records]) or "clean"
    outcome = "; ".join(filter(None, [gated.flaw, f"exit {int(code)}, {meaning}"]))
    content = {
        "outcome": outcome, "facts": gated.facts, "counts": counts, "wrong": wrong_groups(wrong, None),
        "table": rows(table), "furthest": standings, "drawn": _pictures(gated), "than": gated.than, **gated.pictures,
    }  # fmt: skip
    text = [
        f"# Gate: {outcome}",
        markdown(pd.DataFrame(gated.facts.items(), columns=["", "this gate"])),
        markdown(pd.DataFrame(counts.items(), columns=["verdict", "cases"])),
    ]
    if wrong:
        text += ["## Wrong, or not judged", markdown(pd.DataFrame(wrong, columns=["verdict", "case_id", "reason"]))]
    notable = table[table["verdict"] != Performance.SAME]
    if len(notable):
        text += ["## Every verdict but SAME", markdown(_as_text(notable))]
    if standings:
        text += ["## Furthest from their targets", markdown(pd.DataFrame(standings))]
    return write_files(folder, stem, table, text, "gate.html.j2", content)


def gate_table(judgements: Sequence[Judgement]) -> pd.DataFrame:
    """One row a case, the worst first; changes in percent of the base's time."""
    import pandas as pd

    return pd.DataFrame([_row(judgement) for judgement in worst_first(judgements)], columns=list(_COLUMNS))


def describe(header: Mapping[str, Any]) -> str:
    """Commit, date, GPU and command of a run, in a line; "nothing" for an empty header."""
    if not header:
        return "nothing"
    machine = header.get("machine", {})
    edited = ", with uncommitted edits" if header.get("edited") else ""
    return (
        f"commit {header.get('commit', '?')}{edited}; {header.get('date', '?')}; "
        f"{machine.get('gpu', '?')}, driver {machine.get('driver', '?')}; {header.get('command', '?')}"
    )


def worst_first(judgements: Iterable[Judgement]) -> list[Judgement]:
    """Sort by the order of verdicts in tables and on screens; cases of one verdict keep their order."""
    return sorted(judgements, key=lambda judgement: _ORDER.index(judgement.verdict))


def _row(judgement: Judgement) -> dict[str, Any]:
    row = {"verdict": str(judgement.verdict), "case_id": judgement.case_id, "reason": judgement.reason}
    row |= {"base_us": judgement.reference_us, "now_us": judgement.candidate_us}
    if judgement.time:
        ratios = zip(("change", "low", "high"), astuple(judgement.time), strict=True)
        row |= {f"{name}_percent": 100 * (ratio - 1) for name, ratio in ratios}
    return row


def _as_text(table: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    text = table[["verdict", "case_id", "base_us", "now_us", "reason"]].astype(object)
    for column in ("base_us", "now_us"):
        text[column] = [f"{value:,.2f}" if pd.notna(value) else "-" for value in table[column]]
    return text


def _pictures(gated: GateResult) -> list[tuple[Judgement, Distribution]]:
    found = []
    for judgement in worst_first(gated.judgements):
        if judgement.verdict is not Performance.SAME:
            picture = distribution({name: series.get(judgement.case_id, ()) for name, series in gated.samples.items()})
            found += [(judgement, picture)] if picture else []
    return found


def _verified(line: Mapping[str, Any]) -> Record:
    reason = "" if line["verified"] == Verdict.PASS else line["reason"]
    return Result(line["case_id"], line["recipe"], Verdict(line["verified"]), reason).to_record()
