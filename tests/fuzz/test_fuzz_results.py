"""Files of a run that are wrong in any way: read as what they say, or refused; nothing is written anywhere else."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from hostile import bounded, mutated, patience
from hypothesis import given
from hypothesis import strategies as st
from runs_on_disk import IDS, about, passed
from timed_runs import GATE_HEADER, HEADER, gate_lines, gate_run, wrong

from harness import cli
from harness.errors import Exit, UsageError
from harness.gate import baseline
from harness.records.journal import Journal
from harness.records.records import Finished
from harness.records.run_folder import read_bench_or_gate, read_run
from harness.report import tables
from harness.verdict import Result

RUN, HELD = gate_run(Path())
CODES = {Exit.CLEAN, Exit.BYTES_DIFFER, Exit.SLOWER, Exit.NOISY, Exit.NO_DEVICE, Exit.NO_BASELINE, Exit.USAGE}


def lines(*records: dict) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


ABOUT = {"sources": "feed", "timed": True}
PLAIN = [passed(case_id) for case_id in IDS]
WHOLE = about(IDS, IDS)
UNFINISHED = WHOLE | {"selected": 9}
FILES = {
    "run/journal.jsonl": lines(ABOUT, *RUN.records[:3], wrong()),
    "plain/journal.jsonl": lines(WHOLE, *PLAIN),
    "run/bench_header.json": json.dumps(HEADER).encode(),
    "held.jsonl": lines(HEADER | {"date": "2025-12-31T00:00:00Z"}, *HELD[:3]),
    "gate.jsonl": lines(GATE_HEADER, *gate_lines()[:3], gate_lines()[-1]),
}
COMMANDS = {
    "run/journal.jsonl": [("report", "run"), ("gate", "run", "--baseline", "held.jsonl")],
    "plain/journal.jsonl": [("merge", "plain", "--into", "merged")],
    "run/bench_header.json": [("report", "run"), ("gate", "run", "--baseline", "held.jsonl")],
    "held.jsonl": [("report", "held.jsonl"), ("gate", "run", "--baseline", "held.jsonl")],
    "gate.jsonl": [("report", "gate.jsonl")],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lay_out(folder: Path, **changed: bytes) -> Path:
    """The files of a run, some of them changed, in a new folder inside."""
    inner = folder / "inner"
    shutil.rmtree(inner, ignore_errors=True)
    for name, content in {**FILES, **changed}.items():
        path = inner / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return inner


def run(folder: Path, capsys: pytest.CaptureFixture[str], command: str, *words: str) -> tuple[int, str]:
    """Exit code and what was said on standard error; words that name files are inside the folder."""
    inside = [str(folder / word) if not word.startswith("--") else word for word in words]
    with patience(), pytest.raises(SystemExit) as ended:
        cli.main([command, *inside])
    return int(ended.value.code), capsys.readouterr().err


@bounded(100)
@given(data=st.data())
def test_a_changed_file_is_one_sentence_or_what_it_says(
    folder: Path, capsys: pytest.CaptureFixture[str], data: st.DataObject
):
    name = data.draw(st.sampled_from(sorted(FILES)))
    content = data.draw(mutated(FILES[name], *([FILES["held.jsonl"]] if name.endswith("l") else [])))
    inner = lay_out(folder, **{name: content})
    command = data.draw(st.sampled_from(COMMANDS[name]))
    code, said = run(inner, capsys, *command)
    assert code in CODES
    if code == Exit.USAGE:
        assert said.startswith("error: ") and said.count("\n") == 1
    assert list(folder.iterdir()) == [inner]
    assert not (inner / "merged" / "x").exists()


@bounded(150)
@given(content=mutated(FILES["plain/journal.jsonl"]))
def test_a_merge_that_is_green_has_only_right_cases(folder: Path, capsys, content: bytes):
    inner = lay_out(folder, **{"plain/journal.jsonl": content})
    code, _ = run(inner, capsys, "merge", "plain", "--into", "merged")
    if code == Exit.CLEAN:
        said = [json.loads(line) for line in content.split(b"\n")[:-1]]
        assert all(record["verdict"] in ("PASS", "EXCLUDED") for record in said[1:]) and said[1:]
        assert [record["case_id"] for record in read_run(inner / "merged").records] == [r["case_id"] for r in said[1:]]


@bounded(100)
@given(content=mutated(FILES["held.jsonl"], FILES["gate.jsonl"]))
def test_times_that_are_read_are_the_times_that_are_there(folder: Path, content: bytes):
    path = folder / "held.jsonl"
    path.write_bytes(content)
    with patience():
        try:
            header, records = read_bench_or_gate(path)
        except UsageError:
            return
    assert [header, *records] == [json.loads(line) for line in content.split(b"\n") if line]
    numbers = [us for record in records for us in (record.get("times") or {}).get("samples_us", ())]
    assert all(0 < us < 2**60 for us in numbers)


@bounded(60)
@given(content=mutated(lines(UNFINISHED, *PLAIN)))
def test_a_changed_journal_is_resumed_as_what_it_says_or_refused(folder: Path, content: bytes):
    inner = lay_out(folder, **{"plain/journal.jsonl": content})
    with patience():
        try:
            journal = Journal(inner / "plain", UNFINISHED, resume=True)
        except UsageError as error:
            assert "\n" not in str(error)
            return
    journal.append(wrong())
    journal.close()
    whole = [json.loads(line) for line in content.split(b"\n")[:-1]]
    assert journal.records == [*whole[1:], wrong()]
    assert read_run(inner / "plain").records == journal.records


@pytest.mark.parametrize(
    "line",
    [
        '{"verdict": "PASS"}', "[]", "3", "[" * 5000, '{"case_id": "a/b/c/d/eager", "recipe": "b", "verdict": "PASS"}',
        '{"case_id": "a/b/c/d/eager", "recipe": "a", "verdict": "PASS", "seconds": NaN}',
        '{"case_id": "a/b/c/d/eager", "recipe": "a", "verdict": "PASS", "seconds": 1e999}',
        '{"case_id": "a/b/c/d/eager", "recipe": "a", "verdict": "PASS", "bytes_compared": ' + "9" * 5000 + "}",
        '{"case_id": "a/b/c/d/eager", "recipe": "a", "verdict": "MISMATCH", "verdict": "PASS"}',
        '{"case_id": "a/b/c/d/eager", "recipe": "a", "verdict": "PASS", "reason": "\\ud800"}',
        '{"case_id": "a/b/c/../../d\\n/eager", "recipe": "a", "verdict": "PASS"}',
        '{"case_id": "a/b/c/d/eager", "recipe": "a", "verdict": "PASS", "surprise": 1}',
        '{"case_id": "../b/c/d/eager", "recipe": "..", "verdict": "PASS"}',
    ],
    ids=lambda line: line[:60].replace("/", " "),
)  # fmt: skip
def test_a_line_that_no_run_writes_is_refused_with_its_number(folder: Path, line: str):
    inner = lay_out(folder, **{"plain/journal.jsonl": lines(WHOLE) + line.encode() + b"\n"})
    with pytest.raises(UsageError, match="journal.jsonl is not what a run writes: line 2: "):
        read_run(inner / "plain")


def test_a_case_that_stands_twice_is_refused_unless_its_process_died(folder: Path):
    dead = {**PLAIN[0], "verdict": "LAUNCH_ERROR", "died": True}
    inner = lay_out(folder, **{"plain/journal.jsonl": lines(WHOLE, dead, PLAIN[0])})
    assert read_run(inner / "plain").records == [PLAIN[0]]
    inner = lay_out(folder, **{"plain/journal.jsonl": lines(WHOLE, PLAIN[0], {**PLAIN[0], "verdict": "MISMATCH"})})
    with pytest.raises(UsageError, match="stands there a second time"):
        read_run(inner / "plain")


def test_times_without_what_they_were_measured_with_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]):
    inner = lay_out(folder)
    (inner / "run" / "bench_header.json").unlink()
    for command in COMMANDS["run/journal.jsonl"]:
        code, said = run(inner, capsys, *command)
        assert code == Exit.USAGE and "bench_header.json is missing" in said


HOSTILE = "<script>alert(1)</script>|../../../../tmp/x|=cmd|' /C calc'!A0"


@pytest.mark.parametrize("begins", ["=", "+", "-", "@", "\t", "<script>"])
def test_no_text_of_a_record_becomes_code_or_a_path(folder: Path, begins: str):
    text = begins + HOSTILE
    bad = {**wrong(), "reason": text, "story": text, "instantiations": [text], "input": text}
    bad["case_id"] = "swizzle/default/16x16/file:" + HOSTILE.replace("\t", "") + "/eager"
    inner = lay_out(folder, **{"plain/journal.jsonl": lines(WHOLE, *PLAIN[:1], bad)})
    before = set(inner.rglob("*"))
    tables.write_verify(inner / "plain", read_run(inner / "plain").records)
    assert {path.parent for path in set(inner.rglob("*")) - before} == {inner / "plain"}
    assert list(folder.iterdir()) == [inner]
    page, table = ((inner / "plain" / f"verify.{kind}").read_text() for kind in ("html", "csv"))
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page
    words = [line for line in (inner / "plain" / "verify.md").read_text().splitlines() if not line.startswith("    ")]
    assert "<script" not in "\n".join(words)
    cells = [cell.strip('"') for line in table.splitlines() for cell in line.split(",")]
    assert not [cell for cell in cells if cell[:1] in "=+-@\t" and cell[:1]]


@pytest.mark.parametrize("gpu", ["../../../etc", "..", "", "/", "<b>"])
def test_a_gpu_has_a_baseline_in_the_folder_of_baselines(gpu: str):
    path = baseline.path_of({"machine": {"gpu": gpu}})
    assert path.parents[1].name == "baselines" and ".." not in path.parts


def test_a_line_of_a_journal_has_what_a_result_has():
    assert set(Finished.model_fields) | {"findings"} == {field.name for field in dataclasses.fields(Result)}
