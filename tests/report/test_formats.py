"""What a merge request reads of a gate: JUnit, metrics and code quality, by case id, and nothing that noise moves."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from timed_runs import (
    FASTER,
    GATE_HEADER,
    HEADER,
    NEW,
    SLOWER,
    UNTIMED,
    WRONG,
    gate_line,
    gate_lines,
    gate_run,
    record,
    wrong,
)

from harness.cli import main
from harness.errors import Exit
from harness.files import ROOT
from harness.gate.against_baseline import exit_code, judge
from harness.gate.decision import Samples, decide
from harness.gate.report import from_lines, from_run, write_gate
from harness.gate.revision_bench import Comparison
from harness.gate.revision_run import record as line_of
from harness.records.run_folder import RunFiles, read_bench
from harness.report.merge_request import code_of, code_quality, junit, metrics, two_digits
from harness.report.tables import write_times
from harness.suite.suite import find_case
from harness.verdict import Judgement, Performance, Result, TimeRatio, Verdict


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    run, held = gate_run(tmp_path)
    judgements = judge(run, HEADER, held)
    written = write_gate(tmp_path, from_run(run, HEADER, held, judgements), exit_code(run.records, judgements))
    return {path.name: path.read_text() for path in written}


def cases(text: str | bytes) -> dict[str, ElementTree.Element]:
    return {case.get("name"): case for case in ElementTree.fromstring(text).iter("testcase")}


def test_a_gate_is_written_for_people_and_for_machines(files: dict[str, str]):
    assert set(files) == {"gate.md", "gate.csv", "gate.html", "gate.xml", "metrics.txt", "codequality.json"}
    assert files["gate.md"].startswith("# Gate: exit 1, bytes differ\n")
    for name in (SLOWER, FASTER, NEW, UNTIMED, WRONG):
        assert name in files["gate.md"] and name in files["gate.html"]
    assert "rht=true/1024x2048" not in files["gate.md"].partition("## Furthest")[0]
    assert "rht=true/1024x2048" in files["gate.csv"]


def test_junit_has_every_case_once_with_the_file_of_its_suite(files: dict[str, str]):
    found = [case.get("name") for case in ElementTree.fromstring(files["gate.xml"]).iter("testcase")]
    assert len(found) == len(set(found)) == 25
    assert {case.get("file") for case in cases(files["gate.xml"]).values()} == {
        "suites/per_tensor.yaml",
        "suites/swizzle.yaml",
    }


@pytest.mark.parametrize(
    ("name", "kind", "word"),
    [
        (SLOWER, "failure", "SLOWER"),
        (WRONG, "failure", "MISMATCH"),
        (NEW, "error", "NO_BASELINE"),
        (UNTIMED, "skipped", "NOT_MEASURED"),
    ],
)
def test_junit_tells_what_is_not_green_and_how_to_see_it_again(files: dict[str, str], name: str, kind: str, word: str):
    told = cases(files["gate.xml"])[name].find(kind)
    assert told.get("type") == word and told.get("message").startswith(f"{word}: ")
    assert re.search(rf"^reproduce .*harness (bench|verify) --case '{re.escape(name)}'", told.text, re.MULTILINE)


def test_junit_counts_and_only_same_and_faster_pass(files: dict[str, str]):
    suite = ElementTree.fromstring(files["gate.xml"])[0]
    counts = {key: int(suite.get(key)) for key in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": 25, "failures": 2, "errors": 1, "skipped": 1}
    passed = [case for case in cases(files["gate.xml"]).values() if case[0].tag == "system-out"]
    assert len(passed) == 21 and {case[0].text.partition(":")[0] for case in passed} == {"SAME", "FASTER"}


def test_junit_takes_any_text_of_a_reason():
    told = junit([wrong() | {"reason": "\x1b[31mred\x00 <&>", "story": "\x07 ]]>"}], [], str)
    assert "red? <&>" in cases(told)[WRONG].find("failure").get("message")


@pytest.mark.parametrize(
    ("verdict", "kind", "path", "code"),
    [
        (Verdict.MISMATCH, "failure", "harness/kernels/swizzle.cu", Exit.BYTES_DIFFER),
        (Verdict.SETUP_ERROR, "error", "suites/swizzle.yaml", Exit.USAGE),
        (Verdict.NOT_EMULATED, "error", "harness/kernels/swizzle.cu", Exit.NO_DEVICE),
    ],
)
def test_what_was_not_judged_is_no_wrong_kernel(tmp_path: Path, verdict: Verdict, kind: str, path: str, code: Exit):
    line = wrong("swizzle/default/48x80/normal/eager") | {"verdict": str(verdict), "recipe": "swizzle"}
    found = cases(junit([line], [], "make gate"))[line["case_id"]]
    assert found.find(kind).get("message") == f"{verdict}: 3 of 9 entries differ"
    judged = int(kind == "failure")
    told = metrics([line], [], {})
    assert f"nvfp4_wrong {judged}\n" in told and f"nvfp4_not_judged {1 - judged}\n" in told
    assert told.splitlines()[-4].endswith(f" {int(code)}")
    assert code_quality([line])[0]["location"]["path"] == path
    assert exit_code([line], []) is code


def test_metrics_are_open_metrics(files: dict[str, str]):
    lines = files["metrics.txt"].splitlines()
    assert files["metrics.txt"].endswith("\n# EOF\n") and "" not in lines
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert families == ["nvfp4_wrong", "nvfp4_not_judged", "nvfp4_cases", "nvfp4_verdict", "nvfp4_ratio"]
    for line in lines[:-1]:
        assert re.fullmatch(r'# (TYPE|HELP) nvfp4_\w+ .+|nvfp4_\w+(\{\w+="[^"\\\n]*"\})? -?\d+(\.\d+)?', line), line
    names = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(names) == len(set(names))


def test_metrics_tell_each_verdict_as_an_integer(files: dict[str, str]):
    told = dict(re.findall(r'nvfp4_verdict\{case="(.+)"\} (.+)', files["metrics.txt"]))
    assert [told[name] for name in (FASTER, WRONG, SLOWER, UNTIMED, NEW)] == ["-1", "1", "2", "3", "5"]
    assert sorted(told.values()).count("0") == 20
    assert "nvfp4_wrong 1\n" in files["metrics.txt"] and 'nvfp4_cases{verdict="SLOWER"} 1\n' in files["metrics.txt"]
    assert {code_of(verdict) for verdict in Performance} == {-1, 0, 2, 3, 5}


def metrics_of(records: list[dict], held: list[dict], judgements: list[Judgement]) -> str:
    gated = from_run(RunFiles(Path(), records, HEADER), HEADER, held, judgements)
    return metrics(gated.records, gated.judgements, gated.ratios)


def test_two_runs_that_differ_by_noise_have_the_same_metrics():
    held = [record(f"toy/default/{us}x16/normal/graph", us, seed=1) for us in range(40, 240)]
    texts = set()
    for seed in range(2, 6):
        noisy = [record(f"toy/default/{us}x16/normal/graph", us, seed=seed) for us in range(40, 240)]
        judgements = [Judgement(one["case_id"], Performance.SAME, "", 1.0, 1.0) for one in noisy]
        texts.add(metrics_of(noisy, held, judgements))
        assert {one["times"]["baseline_ratio"] for one in noisy} != {one["times"]["baseline_ratio"] for one in held}
    assert len(texts) == 1
    assert 'nvfp4_ratio{case="toy/default/120x16/normal/graph"} 1.2\n' in texts.copy().pop()
    moved = [Judgement(one["case_id"], Performance.FASTER, "", 1.0, 1.0) for one in noisy]
    assert metrics_of(noisy, held, moved) not in texts


def test_a_ratio_that_cannot_be_told_is_not_told(files: dict[str, str]):
    assert f'nvfp4_ratio{{case="{UNTIMED}"}}' not in files["metrics.txt"]
    assert f'nvfp4_ratio{{case="{SLOWER}"}}' in files["metrics.txt"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.3349, "1.3"), (0.7249, "0.72"), (3.96, "4.0"), (9.96, "10"), (31.26, "31"), (0.0456, "0.046"), (123.0, "120")],
)
def test_two_digits(value: float, text: str):
    assert two_digits(value) == text


def test_code_quality_points_at_the_kernel_that_is_to_blame(files: dict[str, str]):
    issues = {issue["description"].split()[1].rstrip(":"): issue for issue in json.loads(files["codequality.json"])}
    assert set(issues) == {SLOWER, WRONG}
    for name, kernel, severity in ((SLOWER, "per_tensor_encode_tile", "major"), (WRONG, "swizzle", "blocker")):
        path, begin = issues[name]["location"]["path"], issues[name]["location"]["lines"]["begin"]
        assert f" {kernel}(" in f" {(ROOT / path).read_text().splitlines()[begin - 1]}"
        assert issues[name]["severity"] == severity
        assert issues[name]["check_name"] == ("SLOWER" if name == SLOWER else "MISMATCH")


def test_a_fingerprint_belongs_to_a_case_and_its_verdict():
    one, other = wrong(), wrong("swizzle/default/16x16/normal/eager")
    prints = [
        issue["fingerprint"] for issue in code_quality([one, other, other | {"verdict": "UNWRITTEN", "case_id": WRONG}])
    ]
    assert len(set(prints)) == 2  # a case has one record, the last
    again = code_quality([one | {"reason": "other words"}])[0]["fingerprint"]
    assert code_quality([one])[0]["fingerprint"] == again
    assert code_quality([one | {"verdict": "UNWRITTEN"}])[0]["fingerprint"] != again


def test_a_recipe_without_a_kernel_is_blamed_on_its_suite():
    (issue,) = code_quality([wrong("toy/default/16x16/normal/eager")])
    assert issue["location"] == {"path": "suites/toy.yaml", "lines": {"begin": 1}}


def test_a_clean_run_has_an_empty_report():
    assert code_quality([record(SLOWER)]) == []


def test_a_gate_against_a_revision_is_written_alike(tmp_path: Path):
    gated = from_lines(GATE_HEADER, gate_lines())
    code = exit_code(gated.records, gated.judgements)
    files = {path.name: path.read_text() for path in write_gate(tmp_path, gated, code)}
    assert files["gate.md"].startswith("# Gate: exit 1, bytes differ\n") and "main, commit feedbeef" in files["gate.md"]
    found = cases(files["gate.xml"])
    kinds = [case[0].tag for case in found.values()]
    assert sorted(kinds) == ["error", "failure", "failure", "skipped", "system-out", "system-out"]
    slower = next(case for case in found.values() if "SLOWER" in case[0].get("type", ""))
    assert slower[0].text.endswith(f"harness gate --base main --case '{slower.get('name')}'")
    ratios = dict(
        re.findall(r'nvfp4_ratio\{case="per_tensor/default/(.+)x2048/normal/graph"\} (.+)', files["metrics.txt"])
    )
    assert ratios == {"1024": "0.91", "2048": "1.1", "4096": "1.0", "8192": "1.0"}
    assert [issue["check_name"] for issue in json.loads(files["codequality.json"])] == ["MISMATCH", "SLOWER"]


def test_a_gate_against_a_revision_can_be_reported_from_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "planted.jsonl"
    lines = [GATE_HEADER, gate_line(SLOWER, "SLOWER", 1.1), {"end": HEADER["roofline"][1]}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(SystemExit) as ended:
        main(["report", str(file)])
    assert ended.value.code == Exit.CLEAN
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"planted.{end}" for end in ("csv", "html", "jsonl", "md")
    ]
    assert (tmp_path / "planted.md").read_text().startswith("# Gate: exit 2, slower\n")


def test_times_can_be_reported_from_their_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "table.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in (HEADER, record(SLOWER))))
    with pytest.raises(SystemExit) as ended:
        main(["report", str(file)])
    assert ended.value.code == Exit.CLEAN
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"table.{end}" for end in ("csv", "html", "jsonl", "md")
    ]


def test_the_example_page_is_small_and_the_one_that_is_made_of_the_file_beside_it(tmp_path: Path):
    page = ROOT / "results/tables/nvidia-h200/per_token_and_grouped.html"
    made = write_times(tmp_path, page.stem, *read_bench(page.with_suffix(".jsonl")))
    text = next(path for path in made if path.suffix == ".html").read_text()
    again = f"make it again: harness report {page.with_suffix('.jsonl').relative_to(ROOT)}"
    assert (page.read_text() == text) is True, again  # without pytest's comparison of two pages
    assert len(text) < 700_000


def test_the_line_of_a_match_is_one_that_a_report_reads():
    case = find_case("per_tensor/default/1024x2048/normal/graph")
    sides = {name: Samples([us] * 12, [1980.0] * 12) for name, us in (("head", 55.0), ("again", 55.1), ("base", 50.0))}
    judgement = replace(decide(*sides.values()), reason="proven")
    verified = Result(case.id, case.recipe, Verdict.PASS)
    untimed = Judgement("", Performance.NOT_MEASURED, "it has no graph")
    lines = [
        line_of(Comparison(case, judgement, verified, sides, 4, 8, 1000)),
        line_of(Comparison(case, untimed, verified, {})),
    ]
    gated = from_lines(GATE_HEADER, json.loads(json.dumps(lines)))
    assert gated.judgements[0] == Judgement(case.id, Performance.SLOWER, "proven", 55.0, 50.0, TimeRatio(1.1, 1.1, 1.1))
    assert gated.judgements[1].time is None
    gated = from_lines(GATE_HEADER, lines[:1])
    first = {name: side[case.id][0] for name, side in gated.samples.items()}
    assert first == {"base": 50, "now": 55, "now again": 55.1}
