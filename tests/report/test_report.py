"""Tables and pages: what they count, what they leave out, and that a reason cannot break out of its cell."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from pathlib import Path

import pandas as pd
import pytest
import timed_runs
from timed_runs import evidence, times_of

from harness.cli import main
from harness.errors import Exit
from harness.records.run_folder import newest_run, read_bench, read_run
from harness.report import tables
from harness.verdict import Result, Verdict

HOSTILE = "a <script>alert(1)</script> | b"


def record(case_id: str, verdict: str = "PASS", reason: str = "", story: str = "", **times: float) -> dict:
    shown = evidence(case_id) if verdict == "PASS" else {}
    result = Result(case_id, case_id.split("/")[0], Verdict(verdict), reason, story, seconds=0.5, **shown)
    return json.loads(json.dumps(result.to_record())) | {"times": times and timed(**times)}


def timed(median_us: float, percent: float = 80.0, ratio: float | None = 2.0) -> dict:
    return times_of([median_us] * 3, percent=percent, ratio=ratio, baseline_us=None)


HEADER = timed_runs.HEADER | {
    "command": "pytest suites --bench", "edited": True, "floors_us": {"events": 1.5},
    "roofline": [{"point": "start", "gbps": 4200.0, "date": ""}, {"point": "end", "gbps": 4190.0, "date": ""}],
}  # fmt: skip

VERIFIED = [
    record("toy/default/16x16/normal/eager"),
    record("toy/rht=true/16x16/file:suites/data/a.safetensors#x/eager"),
    record("toy/default/16x16/ties/eager", "MISMATCH", HOSTILE, "the <b>story</b>\nof a mismatch"),
    record("toy/default/16x16/normal/graph", "EXCLUDED", "no graphs | here"),
    record("toy/rht=true/16x16/normal/graph", "EXCLUDED", "no graphs | here"),
]

TIMED = [
    record("toy/default/16x16/normal/eager", median_us=100.0),
    record("toy/default/16x16/normal/graph", median_us=90.0, percent=88.0),
    record("toy/rht=true/16x16/normal/eager", median_us=5.25, ratio=None),
    record("toy/rht=true/16x16/normal/graph", "EXCLUDED", HOSTILE),
]


@pytest.fixture
def verified(tmp_path: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in tables.write_verify(tmp_path, VERIFIED)}


@pytest.fixture
def benched(tmp_path: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in tables.write_bench(tmp_path, HEADER, TIMED)}


def test_verification_is_written_in_four_forms(verified: dict[str, str]):
    assert set(verified) == {"verify.md", "verify.csv", "verify.html", "codequality.json"}


def test_the_page_counts_verdicts_bytes_and_exclusions(verified: dict[str, str]):
    page = verified["verify.html"]
    assert re.search(r'<b class="PASS">2</b>PASS', page)
    assert re.search(r'<b class="wrong">1</b>MISMATCH', page)
    assert "<b>2,000</b>bytes compared" in page
    assert '<td class="n">2</td><td>no graphs | here</td>' in page


def test_the_page_has_a_row_a_case_and_the_story_of_a_failure(verified: dict[str, str]):
    page = verified["verify.html"]
    assert page.count("<tr data-choice=") == len(VERIFIED)
    assert page.count("<details") == 1
    assert "the &lt;b&gt;story&lt;/b&gt;\nof a mismatch" in page


@pytest.mark.parametrize("name", ["verify.html", "bench.html"])
def test_nothing_of_a_reason_becomes_html(verified: dict[str, str], benched: dict[str, str], name: str):
    page = (verified | benched)[name]
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


@pytest.mark.parametrize("name", ["verify.html", "bench.html"])
def test_a_page_stands_alone(verified: dict[str, str], benched: dict[str, str], name: str):
    assert not re.search(r'(src|href|url|@import)\s*[=(]?\s*["\']?(https?:)?//', (verified | benched)[name])


def test_markdown_has_the_story_and_no_cell_breaks_its_table(verified: dict[str, str]):
    text = verified["verify.md"]
    assert "    the <b>story</b>\n    of a mismatch" in text
    assert text.endswith("## Excluded\n\n| because | cases |\n| --- | --- |\n| no graphs \\| here | 2 |\n")
    assert "| PASS | 2 |" in text


def test_the_star_of_a_groups_shape_is_no_emphasis():
    table = tables.markdown(pd.DataFrame([["8*128x64 *"]], columns=["shape"]))
    assert table.splitlines()[-1] == "| 8\\*128x64 \\* |"


def test_csv_holds_every_case_and_failures_first(verified: dict[str, str]):
    rows = list(csv.DictReader(io.StringIO(verified["verify.csv"])))
    wrong, *others = [record["case_id"] for record in (VERIFIED[2], *VERIFIED[:2], *VERIFIED[3:])]
    assert [row["case_id"] for row in rows] == [wrong, *sorted(others)]
    assert "file:suites/data/a.safetensors#x" in {row["input"] for row in rows}
    assert rows[0]["reason"] == HOSTILE


def test_the_order_in_which_workers_finish_does_not_show(verified: dict[str, str], tmp_path: Path):
    again = {path.name: path.read_text() for path in tables.write_verify(tmp_path, VERIFIED[::-1])}
    assert {name: again[name] for name in verified} == verified


def test_a_run_without_a_case_still_has_a_page(tmp_path: Path):
    pages = [path.read_text() for path in tables.write_verify(tmp_path, [])]
    assert "<b>0</b>bytes compared" in pages[2]


def test_times_stand_eager_beside_graph(benched: dict[str, str]):
    rows = [line for line in benched["bench.md"].splitlines() if line.startswith("| toy |")]
    assert rows == [
        "| toy | default | 16x16 | normal | b | 336.0 | 100.0 | 90.00 | 10.00 "
        "| 80.0 | 88.0 | 2.00 | 2.00 | 30.0 | 30.0 |",
        "| toy | rht=true | 16x16 | normal | b | 17.64 | 5.25 | - | - | 80.0 | - | - | - | - | - |",
    ]


def test_times_name_what_they_were_measured_with(benched: dict[str, str]):
    for name in ("bench.md", "bench.html"):
        for part in ("NVIDIA H200", "4,200 GB/s at the start, 4,190 GB/s at the end", "events 1.50 us", "a rule"):
            assert part in benched[name]
        assert "0123abc, with uncommitted edits; sources feed" in benched[name]


def test_a_case_without_a_time_is_listed_with_its_reason(benched: dict[str, str]):
    reason = "a &lt;script>alert(1)&lt;/script> \\| b"
    assert f"| toy/rht=true/16x16/normal/graph | EXCLUDED | {reason} |" in benched["bench.md"]
    cells = '<td class="EXCLUDED">EXCLUDED</td><td class="code">toy/rht=true/16x16/normal/graph</td>'
    assert cells in benched["bench.html"].replace("<wbr>", "")


def test_bars_are_as_long_as_their_share(benched: dict[str, str]):
    assert re.findall(r"--part: ([\d.]+)", benched["bench.html"]) == ["80.0", "88.0", "80.0"]


def test_bench_csv_and_jsonl_hold_every_time(benched: dict[str, str], tmp_path: Path):
    rows = list(csv.DictReader(io.StringIO(benched["bench.csv"])))
    modes_and_times = [("eager", "100.0"), ("graph", "90.0"), ("eager", "5.25")]
    assert [(row["mode"], row["median_us"]) for row in rows] == modes_and_times
    header, records = read_bench(tmp_path / "bench.jsonl")
    assert header == HEADER
    assert records == TIMED[:3]


def test_a_bench_in_which_nothing_was_timed_still_has_a_page(tmp_path: Path):
    paths = tables.write_bench(tmp_path, HEADER | {"roofline": [], "floors_us": {}}, TIMED[3:])
    assert "not measured" in next(path for path in paths if path.suffix == ".md").read_text()


def test_the_terminal_gets_a_line_for_each_problem_with_its_whole_id_last():
    lines = tables.terminal_lines(HEADER, TIMED[:3]).splitlines()
    heads = next(line for line in lines if line.endswith("  case"))
    assert heads.split() == ["eager", "us", "graph", "us", "rate", "x", "case"]
    assert any(re.fullmatch(r" +5\.25 +- +80\.0 % +- +toy/rht=true/16x16/normal", line) for line in lines)


def test_a_run_that_was_resumed_tells_the_range_of_its_copies():
    many = HEADER | {"roofline": [{"point": "start", "gbps": 4200.0 + n} for n in range(5)]}
    assert "4,200 to 4,204 GB/s in 5 measurements" in tables.terminal_lines(many, TIMED[:3])


def journal(folder: Path, *lines: str) -> None:
    folder.mkdir()
    (folder / "journal.jsonl").write_text("".join(['{"sources": "feed"}\n', *lines]))


def test_report_writes_the_tables_of_a_run_that_was_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    whole = [json.dumps(record) + "\n" for record in TIMED]
    journal(tmp_path / "run", *whole[:2], whole[2][:-20])
    (tmp_path / "run" / "bench_header.json").write_text(json.dumps(HEADER))
    with pytest.raises(SystemExit) as ended:
        main(["report", str(tmp_path / "run")])
    assert ended.value.code == Exit.CLEAN
    assert [Path(line).name for line in capsys.readouterr().out.split()] == [
        "verify.md", "verify.csv", "verify.html", "codequality.json",
        "bench.jsonl", "bench.md", "bench.csv", "bench.html",
    ]  # fmt: skip
    assert len(read_run(tmp_path / "run").timed) == 2


ABOUT = {
    "sources": "5" * 64, "device": {"device": "emulator", "nvrtc": "13.0"}, "selected": 5, "commit": "abc1",
    "edited": True, "date": "2026-01-01T00:00:00Z", "command": "harness verify <toy>",
    "asked": {"folder": "/home/me", "recipe_dirs": {"toy": "/home/me/toy"}},
}  # fmt: skip


def alike_records(*reasons: str) -> list[dict]:
    story = "MISMATCH  x\nfield     data uint8 (1, {0}): {0} of 9 entries differ\nfirst     [{0}, 0]\ncause     {1}"
    return [
        record(f"toy/default/{16 * n}x16/normal/eager", "MISMATCH", "bytes differ in data", story.format(n, reason))
        for n, reason in enumerate(reasons, 1)
    ]


def test_a_page_says_what_it_is_of_and_says_it_again_from_the_journal(tmp_path: Path):
    records = [each | {"device": "emulator"} for each in alike_records("swap", "swap", "swap", "not known")]
    journal(tmp_path / "run", *(json.dumps(each) + "\n" for each in records))
    path = tmp_path / "run" / "journal.jsonl"
    path.write_text(path.read_text().replace('{"sources": "feed"}', json.dumps(ABOUT)))
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path / "run")])
    page = (tmp_path / "run" / "verify.html").read_text()
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))
    assert facts == {
        "device": "emulator, nvrtc 13.0", "recipes": "toy in /home/me/toy",
        "harness": f"commit abc1, with uncommitted edits; sources {'5' * 16}", "command": "harness verify &lt;toy&gt;",
        "in the folder": "/home/me", "begun": "2026-01-01T00:00:00Z", "unfinished": "4 of 5 cases are here",
    }  # fmt: skip
    assert "| command | harness verify &lt;toy> |" in (tmp_path / "run" / "verify.md").read_text()


def test_nothing_is_said_of_what_a_journal_does_not_know():
    assert tables.facts_of_verify({}, []) == {}
    assert tables.facts_of_verify({"sources": "feed", "commit": "unknown"}, []) == {"harness": "sources feed"}


def test_cases_that_fail_alike_are_one_entry_with_the_ids_of_all(tmp_path: Path):
    records = alike_records("swap: in 3 of 5 tiles", "swap: in 2 of 9 tiles", "swap", "not known", "not known")
    both = "expected  0x{} = e2m1 {}\nactual    0x{} = e2m1 {}"
    for each, sides in zip(records[3:], (("10", "0, 1", "11", "1, 1"), ("10", "0, 1", "00", "0, 0")), strict=True):
        each["story"] += "\n" + both.format(*sides)
    written = {path.suffix: path.read_text() for path in tables.write_verify(tmp_path, records)}
    assert [len(group) for group in tables.wrong_groups(records, None)] == [2, 1, 1, 1]
    assert written[".html"].count("<pre>") == written[".md"].count("\n## MISMATCH") == 4
    for each in records:
        assert each["case_id"] in written[".md"]
        assert each["case_id"].replace("/", "/<wbr>") in written[".html"]


def test_report_takes_the_newest_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("harness.commands.report.RUNS", tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["report"])
    assert ended.value.code == Exit.USAGE and "make one with `harness verify`" in capsys.readouterr().err
    for name, seconds in (("b", 1_000), ("c", 3_000), ("a", 2_000)):
        journal(tmp_path / name)
        os.utime(tmp_path / name / "journal.jsonl", (seconds, seconds))
    with pytest.raises(SystemExit) as ended:
        main(["report"])
    assert ended.value.code == Exit.CLEAN
    assert {Path(line).parent.name for line in capsys.readouterr().out.split()} == {"c"}
    (tmp_path / "a" / "journal.jsonl").write_text(json.dumps(ABOUT) + "\n")  # it began later, and was copied before
    os.utime(tmp_path / "a" / "journal.jsonl", (2_000, 2_000))
    assert newest_run(tmp_path).name == "a"


@pytest.mark.parametrize("content", [None, '{"sources": "feed"}\n{"case_id": \n'])
def test_a_folder_without_a_readable_run_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
):
    if content is not None:
        (tmp_path / "journal.jsonl").write_text(content)
    with pytest.raises(SystemExit) as ended:
        main(["report", str(tmp_path)])
    assert ended.value.code == Exit.USAGE
    assert re.match(r"error: \S+journal.jsonl (cannot be read|is not what a run writes): ", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("case", "baseline", "text"),
    [
        ("swizzle/default/16x16/normal/eager", "copy/swizzle/default/16x16/normal/eager", "a copy of its bytes"),
        ("gemm/default/1x2x3/normal/eager", "cublas/bf16/1x2x3/normal/eager", "cublas bf16"),
        ("row_scaled/default/16x16/normal/eager", "per_tensor/outputs=rowwise/16x16/normal/eager",
         "per_tensor outputs=rowwise"),
        ("grouped/default/8*16x16/normal/eager", "per_tensor/rht=true/128x16/normal/eager",
         "per_tensor rht=true of 128x16"),
        ("toy/default/16x16/normal/eager", "ours toy/default/16x16/normal/eager", "ours toy default"),
    ],
)  # fmt: skip
def test_every_ratio_names_its_opponent(case: str, baseline: str, text: str):
    times = times_of([1.0] * 3) | {"baseline": baseline, "second": "gemm/default/1x2x3/normal/eager"}
    timed = [{"case_id": case, "recipe": case.partition("/")[0], "times": times}]
    assert tables.against(timed[0]) == text
    assert list(tables.pair_table(timed)["against"]) == [text]
    assert "eager x per_tensor" not in tables.pair_table(timed).columns
    times |= {"second_us": 2.0, "second_ratio": 2.0}
    assert list(tables.pair_table(timed)["eager x per_tensor"]) == [2.0]
    assert "eager x loop" not in tables.pair_table(timed).columns
    looped = [timed[0] | {"times": times | {"second": f"loop/{case}"}}]
    assert list(tables.pair_table(looped)["eager x loop"]) == [2.0]
    assert list(tables.bench_table(timed)[["baseline", "second", "second_ratio"]].iloc[0]) == [
        baseline, "gemm/default/1x2x3/normal/eager", 2.0,
    ]  # fmt: skip


def test_launches_are_a_column_where_they_were_counted():
    timed = [one for one in TIMED if one["times"]]
    assert "launches" not in tables.pair_table(timed).columns
    counted = [one | {"times": one["times"] | {"launches": 5}} for one in timed[:1]]
    pairs = tables.as_text(tables.pair_table([*counted, *timed[1:]]))
    assert list(pairs.columns[3:7]) == ["input", "against", "launches", "MB"]
    assert pairs["launches"][0] == "5"
