"""Tables and pages of a run, from its records: Markdown, CSV, HTML, and lines for a terminal."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.contract.case import id_parts
from harness.files import write_text
from harness.ground.command_lines import Asked
from harness.records.records import Record
from harness.records.run_folder import BENCH, Header
from harness.records.times import LOOP
from harness.report.merge_request import write_code_quality
from harness.report.pages import LAUNCHES, number, page, rows
from harness.report.plots import bar_groups, heat_maps, roofline_plot
from harness.text import one_line
from harness.verdict import Result, Verdict, failures_of
from harness.verify.not_run import counted
from harness.verify.screen import alike, screen

if TYPE_CHECKING:
    import pandas as pd

_VERIFY_COLUMNS = (
    "verdict", "recipe", "flags", "shape", "input", "mode", "bytes_compared", "seconds", "device", "reason", "case_id",
)  # fmt: skip
_TIME_COLUMNS = (
    "median_us", "q1_us", "q3_us", "min_us", "rounds", "relative_error", "exposed", "launches", "bytes", "gbps",
    "roofline_gbps", "roofline_percent", "baseline", "baseline_us", "baseline_percent", "baseline_ratio", "second",
    "second_us", "second_ratio", "tflops", "energy_uj", "energy_error_uj", "celsius", "measured",
)  # fmt: skip
_FORMULA = tuple("=+-@\t\r")
_MODES = ("eager", "graph")
_MARKDOWN = str.maketrans(
    {"&": "&amp;", "<": "&lt;", "|": "\\|", "*": "\\*"} | {each: f"&#{ord(each)};" for each in "\\`[~$"}
)
_EMOJI = re.compile(r":(?=[\w+-]+:)")
_AGAINST_BASELINE = (
    "which is named for each, on the same input, in the same mode and run, in turns with it, and on the same shape "
    "unless another is named; x per_tensor: as fast as the per_tensor product; x loop: as fast as our dense kernels "
    "in a loop over the tensors of the group"
)
_AGAINST_OURS = "our kernel on the same case, in turns with it; MB are those that our kernel reads and writes"
RATE = "TFLOP/s"
_SUBJECT = "subject, in place of our kernels"
_OWN = "of the harness"
_SECONDS = ("x per_tensor", "x loop")  # the second opponents
_LEGEND = "rate: % of the copy, or TFLOP/s of a product; x: times as fast as the baseline; all else is in bench.html"


def write_verify(
    run_dir: Path, records: Sequence[Record], asked: Asked | None = None, about: Header | None = None
) -> list[Path]:
    """Write verify.md, verify.csv, verify.html and codequality.json; their paths.

    asked: who asked for the run, for the commands below each failure; about: the first line of its journal
    Failures come first, then ids in order, because workers finish in a different order in each run. Those that are
    alike are one entry, with the screen of the first.
    """
    records = sorted(records, key=lambda record: (not Verdict(record["verdict"]).exit_code, record["case_id"]))
    table = verify_table(records)
    verdicts = _counts(record["verdict"] for record in records)
    excluded = _counts(record["reason"] for record in records if record["verdict"] == Verdict.EXCLUDED)
    conventions = _counts(
        Result.from_record(record).conventions for record in records if record["verdict"] == Verdict.CONVENTION
    )
    failures = wrong_groups(records, asked)
    facts = facts_of_verify(about or {}, records)
    notes = dict(counted(records).most_common())
    content = {
        "table": rows(table), "verdicts": verdicts, "excluded": excluded, "failures": failures,
        "conventions": conventions, "notes": notes, "facts": facts,
    }  # fmt: skip
    text = [
        "# Verification",
        *([markdown(frame(facts.items(), columns=["", "this run"]))] if facts else []),
        markdown(frame(verdicts.items(), columns=["verdict", "cases"])),
        f"{int(table['bytes_compared'].sum()):,} bytes compared. Every case is in verify.csv.",
    ]
    for first, *others in failures:
        text += [f"## {first['verdict']} {plain(first['case_id'])}", _indented(first["story"])]
        if others:
            text += [f"{len(others):,} more fail alike:", "\n".join(f"- {plain(each['case_id'])}" for each in others)]
    if conventions:
        counts = frame(conventions.items(), columns=["convention", "cases"])
        text += ["## Other bytes by convention", markdown(counts)]
    if excluded:
        text += ["## Excluded", markdown(frame(excluded.items(), columns=["because", "cases"]))]
    if notes:
        text += ["## Not judged", markdown(frame(notes.items(), columns=["what", "cases"]))]
    paths = write_files(run_dir, "verify", table, text, "verify.html.j2", content)
    return [*paths, write_code_quality(run_dir, records)]


def wrong_groups(records: Iterable[Record], asked: Asked | None) -> list[list[Record]]:
    """The records that are not clean, in groups that fail alike, each with its screen as its story."""
    return [
        [record | {"story": screen(record, asked)} for record in group] for group in alike(failures_of(records))
    ]  # fmt: skip


def facts_of_verify(about: Mapping[str, Any], records: Sequence[Record]) -> dict[str, str]:
    """The facts about a run, as name and value, as far as its journal and records have them.

    about: the first line of the journal, in which earlier runs have neither commit nor command
    """
    device = {name: value for name, value in about.get("device", {}).items() if not name.startswith("subject")}
    kind = device.pop("device", "")
    name = device.pop("gpu", kind)
    finished, selected = len(records), about.get("selected") or 0
    facts = {
        _SUBJECT: ", ".join(dict.fromkeys(record["subject"] for record in records if record.get("subject"))),
        "device": ", ".join([name, *(f"{what} {value}" for what, value in device.items())]) if name else "",
        "targets": ", ".join(sorted({target for record in records for target in record.get("targets", ())})),
        "recipes": _folders(about, records),
        "harness": _revision(about),
        "command": about.get("command", ""),
        "in the folder": (about.get("asked") or {}).get("folder", ""),
        "begun": about.get("date", ""),
        "unfinished": f"{finished:,} of {selected:,} cases are here" if finished < selected else "",
    }
    return {name: value for name, value in facts.items() if value}


def _revision(about: Mapping[str, Any]) -> str:
    """The commit of a run, unless it is not known, as of an installed package, and the digest of its sources."""
    edited = ", with uncommitted edits" if about.get("edited") else ""
    commit, sources = about.get("commit", "unknown"), about.get("sources", "")[:16]
    return "; ".join(
        ([f"commit {commit}{edited}"] if commit not in ("", "unknown") else [])
        + ([f"sources {sources}"] if sources else [])
    )


def _folders(about: Mapping[str, Any], records: Sequence[Record]) -> str:
    """The recipes, by the folder that each is of: `mine in /home/me/mine; casts, swizzle of the harness`."""
    asked, found = about.get("asked"), {}
    if not asked:
        return ""
    for recipe in dict.fromkeys(record["recipe"] for record in records):
        found.setdefault(asked.get("recipe_dirs", {}).get(recipe, ""), []).append(recipe)
    return "; ".join(f"{', '.join(names)} {f'in {folder}' if folder else _OWN}" for folder, names in found.items())


def write_bench(run_dir: Path, header: Header, records: Sequence[Record]) -> list[Path]:
    """Write bench.jsonl (header, then the timed records), bench.md, bench.csv and bench.html; their paths."""
    lines = run_dir / BENCH
    write_jsonl(lines, header, [record for record in records if record.get("times")])
    return [lines, *write_times(run_dir, lines.stem, header, records)]


def write_times(folder: Path, stem: str, header: Header, records: Sequence[Record]) -> list[Path]:
    """Write the times of the records as `stem`.md, .csv and .html; their paths."""
    timed = [record for record in records if record.get("times")]
    untimed = [record for record in records if not record.get("times")]
    table, pairs = bench_table(timed), pair_table(timed)
    facts = facts_of(header) | {"baselines": _opponents(timed)}
    content = {
        "facts": facts, "pairs": rows(pairs), "table": rows(table), "untimed": untimed, "modes": _MODES,
        "widest": max([100.0, *table["roofline_percent"]]),
        "rate": RATE if f"graph {RATE}" in pairs.columns else "",
        "seconds": [name for name in _SECONDS if f"graph {name}" in pairs.columns],
        **pictures_of(header, timed),
    }  # fmt: skip
    text = ["# Times", markdown(frame(facts.items(), columns=["", "this run"])), markdown(as_text(pairs))]
    if untimed:
        text += ["## Without a time", markdown(frame(untimed, columns=["case_id", "verdict", "reason"]))]
    return write_files(folder, stem, table, text, "bench.html.j2", content)


def pictures_of(header: Header, timed: Sequence[Record]) -> dict[str, Any]:
    return {"roofline": roofline_plot(header, timed), "maps": heat_maps(timed), "groups": bar_groups(timed)}


def write_files(
    folder: Path, stem: str, table: pd.DataFrame, text: Sequence[str], template: str, content: dict[str, Any]
) -> list[Path]:
    """`write_table`, and `stem`.html of the template; their paths."""
    paths = [*write_table(folder, stem, table, text), folder / f"{stem}.html"]
    write_text(paths[-1], page(template, **content))
    return paths


def write_table(folder: Path, stem: str, table: pd.DataFrame, text: Sequence[str]) -> list[Path]:
    """Write `stem`.md of paragraphs and `stem`.csv of the table; their paths."""
    paths = [folder / f"{stem}.md", folder / f"{stem}.csv"]
    write_text(paths[0], "\n\n".join(text) + "\n")
    write_text(paths[1], csv(table))
    return paths


def write_jsonl(path: Path, header: Header, records: Iterable[Record]) -> None:
    lines = (json.dumps(line, ensure_ascii=False) for line in (header, *records))
    write_text(path, "\n".join(lines) + "\n")


def frame(rows: Iterable[Any], columns: Iterable[str]) -> pd.DataFrame:
    """A table of these rows. Pandas is only imported here, because most processes of a run make no table."""
    import pandas as pd

    return pd.DataFrame(rows, columns=list(columns))


def verify_table(records: Sequence[Record]) -> pd.DataFrame:
    return frame([_with_parts(record) for record in records], columns=_VERIFY_COLUMNS)


def bench_table(timed: Sequence[Record]) -> pd.DataFrame:
    rows = [{**_with_parts(record), **record["times"]} for record in timed]
    return frame(rows, columns=["recipe", "flags", "shape", "input", "mode", *_TIME_COLUMNS, "case_id"])


def pair_table(timed: Sequence[Record]) -> pd.DataFrame:
    """One row for each problem: eager and graph time, % of copy and ratio; TFLOP/s of a GEMM; launches if counted."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for record in timed:
        parts, times = _with_parts(record), record["times"]
        problem = {key: parts[key] for key in ("recipe", "flags", "shape", "input")} | {"against": against(record)}
        shared = {"MB": times["bytes"] / 1e6, LAUNCHES: times.get("launches")}
        row = rows.setdefault(tuple(problem.values()), problem | shared)
        mode = parts["mode"]
        row[f"{mode} us"] = times["median_us"]
        row[f"{mode} %"] = times["roofline_percent"]
        row[f"{mode} x"] = times["baseline_ratio"]
        row[f"{mode} base %"] = times.get("baseline_percent")
        row[f"{mode} {RATE}"] = times.get("tflops")
        if times.get("second_ratio"):
            row[f"{mode} {_SECONDS[times['second'].startswith(f'{LOOP}/')]}"] = times["second_ratio"]
    units = ["us", "%", "x", "base %"]
    units += [name for name in _SECONDS if any(f"{mode} {name}" in row for row in rows.values() for mode in _MODES)]
    if any("tflops" in record["times"] for record in timed):
        units.append(RATE)
    columns = [f"{mode} {unit}" for unit in units for mode in _MODES]
    table = frame(rows.values(), columns=["recipe", "flags", "shape", "input", "against", "MB", *columns])
    table[columns] = table[columns].astype(float)
    table.insert(8, "difference us", table["eager us"] - table["graph us"])
    counted = [row[LAUNCHES] for row in rows.values()]
    if any(counted):
        table.insert(5, LAUNCHES, counted)
    return table


def against(record: Record) -> str:
    """The opponent of a time: `per_tensor rht=true,rounding=sr`, with its shape if that is another, `a copy`."""
    return " of ".join(filter(None, _opponent(record)))


def _opponent(record: Record) -> tuple[str, str]:
    """The opponent of a time, and its shape if that is another."""
    recipe, _, rest = record["times"]["baseline"].partition("/")
    if recipe == "copy":
        return "a copy", "its bytes"
    flags, _, rest = rest.partition("/")
    shape = rest.partition("/")[0]
    other = shape != _with_parts(record)["shape"] and not recipe.startswith("ours ")
    return f"{recipe} {flags}".strip(), shape if other else ""


def _opponents(timed: Sequence[Record]) -> str:
    """Every opponent, with the recipes that are compared with it."""
    found: dict[str, dict[str, None]] = {}
    for record in timed:
        found.setdefault(_opponent(record)[0], {})[record["recipe"]] = None
    return "; ".join(f"{name}: {', '.join(recipes)}" for name, recipes in found.items())


def as_text(pairs: pd.DataFrame) -> pd.DataFrame:
    table = pairs.astype(object)
    for column in table.columns[5:]:
        table[column] = [number(value, column) for value in pairs[column]]
    return table


def facts_of(header: Header) -> dict[str, str]:
    """The conditions that times were measured under, as name and value."""
    machine = header["machine"]
    rates = [entry["gbps"] for entry in header["roofline"]]
    roofline = ", ".join(f"{entry['gbps']:,.0f} GB/s at the {entry['point']}" for entry in header["roofline"])
    if len(rates) > 2:  # the run was resumed
        roofline = f"{min(rates):,.0f} to {max(rates):,.0f} GB/s in {len(rates)} measurements"
    floors = ", ".join(f"{name} {value:.2f} us" for name, value in header["floors_us"].items())
    subject = machine.get("subject", "")
    against = _AGAINST_OURS if subject else _AGAINST_BASELINE
    return ({_SUBJECT: subject} if subject else {}) | {
        "GPU": f"{machine.get('gpu', '?')}, driver {machine.get('driver', '?')}, NVRTC {machine.get('nvrtc', '?')}",
        "copy roofline (read + written)": roofline or "not measured",
        "floor of this clock (nothing; 4-byte memset eager, graph), not subtracted": floors or "not measured",
        "method": f"{header['clock']}; {header['method']}",
        "compile flags": header["compile_flags"],
        "date": header["date"],
        "commit": _revision(header).removeprefix("commit "),
        "command": header["command"],
        "columns": "MB: read + written; us: median time; difference: eager - graph; %: of the copy roofline; x: times "
        f"as fast as the baseline, {against}; base %: of the baseline; launches: of kernels and library calls in one "
        "round",
        "published, on another chip against another baseline, as times of this baseline's": (
            "per_token 0.49-0.77, with rht 0.59-0.88; grouped 0.41-0.77 and 0.50-0.94 (all in Transformer Engine pull "
            "request 3045); 1 / x is what compares with them"
        ),
    }


def terminal_lines(header: Header, timed: Sequence[Record]) -> str:
    """One line per problem below the measuring conditions, with its id last so that it is never broken.

    Rate and ratio are the graph's, if there is one.
    """
    pairs = pair_table(timed)
    columns = [[name, *(number(value, name) for value in pairs[name])] for name in ("eager us", "graph us")]
    percent, flops, ratio = (_of_graph(pairs, unit) for unit in ("%", RATE, "x"))
    rates = [
        f"{number(share, '%')} %" if rate != rate else f"{number(rate, '%')} TF"
        for share, rate in zip(percent, flops, strict=True)
    ]
    columns += [["rate", *rates], ["x", *(number(value, "x") for value in ratio)]]
    problems = pairs[["recipe", "flags", "shape", "input"]].agg("/".join, axis=1)
    wide = [max(map(len, column)) for column in columns]
    rows = zip(*columns, ["case", *problems], strict=True)
    lines = ["  ".join([*map(str.rjust, figures, wide), case]) for *figures, case in rows]
    facts = list(facts_of(header).items())[: 4 if header["machine"].get("subject") else 3]
    return "\n".join([*(f"{name}: {value}" for name, value in facts), *lines, _LEGEND])


def _of_graph(pairs: pd.DataFrame, unit: str) -> pd.Series:
    """A problem's value as a graph, or the eager one if there is none; NaN if neither was measured."""
    if f"graph {unit}" not in pairs:
        return pairs["MB"] * math.nan
    return pairs[f"graph {unit}"].fillna(pairs[f"eager {unit}"])


def markdown(table: pd.DataFrame, escaped: Callable[[object], str] | None = None) -> str:
    """A table in Markdown, its cells escaped. escaped: how, in place of `plain`"""
    lines = [list(table.columns), ["---"] * len(table.columns), *table.itertuples(index=False)]
    return "\n".join("| " + " | ".join(map(escaped or plain, line)) + " |" for line in lines)


def _with_parts(record: Record) -> dict[str, Any]:
    parts = zip(("recipe", "flags", "shape", "input", "mode"), id_parts(record["case_id"]), strict=True)
    return {**record, **dict(parts)}


def _counts(values: Iterable[str]) -> dict[str, int]:
    return dict(Counter(values).most_common())


def plain(value: object) -> str:
    """Escape text for a line of Markdown, so that it cannot end a cell or become HTML."""
    return _EMOJI.sub("&#58;", one_line(" ".join(str(value).split())).translate(_MARKDOWN))


def csv(table: pd.DataFrame) -> str:
    """A table as CSV; text that a spreadsheet would take for a formula gets an apostrophe in front."""
    return table.map(lambda value: f"'{value}" if isinstance(value, str) and value[:1] in _FORMULA else value).to_csv(
        index=False
    )


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
