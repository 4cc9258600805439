"""The figures to reach: the table itself, what is wrong in one, and what a run says of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from timed_runs import HEADER, record

from evidence.commands import roofline
from evidence.measured import chips
from evidence.targets import reached
from harness.bench.targets import Line, Targets, load
from harness.errors import Exit, SuiteError, UsageError
from harness.files import ROOT
from harness.report.tables import write_jsonl
from harness.runner.below_supervisor import without_settings
from harness.suite.suite import find_case

AMAX = "per_tensor/stage=amax/32768x8192/normal/graph"
SMALL = "per_tensor/default/1024x2048/normal/graph"
FLOORS = {"floors_us": {"two kernels": 5.5, "events": 1.5}}


def targets(**changes: object) -> Targets:
    amax = Line(kernel="amax", cases=("per_tensor/stage=amax/*",), percent=95, limit="bytes")
    small = Line(kernel="small", cases=("per_tensor/default/1024x2048",), launches=1.5)
    return Targets(shape="32768x8192", lines=(amax, small)).model_copy(update=changes)


def test_every_case_of_the_table_can_be_run():
    table = load()
    for line in table.lines:
        for case_id in table.case_ids(line):
            assert find_case(case_id).id == case_id


@pytest.mark.parametrize(("percent", "us", "holds"), [(95.0, 6.0, True), (94.9, 6.0, False), (96.0, 6.01, False)])
def test_a_line_holds_from_its_figure_on(percent: float, us: float, holds: bool):
    records = [record(AMAX, percent=percent), record(SMALL, us, noise=0.0)]
    found = list(reached(targets(), HEADER | FLOORS, records))
    assert all(one.holds for one in found) is holds


def test_what_falls_short_says_by_how_much_and_of_what():
    records = [record(AMAX, percent=90.5), record(SMALL, 8.0, noise=0.0)]
    amax, small = reached(targets(), HEADER | FLOORS, records)
    assert (amax.required, amax.reached, amax.verdict) == ("95 %", "90.5 %", "short by 4.5 points: bytes")
    assert (small.required, small.reached, small.verdict) == ("1.5 x two kernels", "2.00 x two kernels", "over by 0.50")


def test_a_line_may_be_for_some_gpus_alone():
    amax, small = targets().lines
    table = targets(lines=(amax.model_copy(update={"gpus": ("NVIDIA H100",)}), small))
    assert [one.case_id for one in reached(table, HEADER | FLOORS, [])] == [SMALL]
    other = HEADER | FLOORS | {"machine": {"gpu": "NVIDIA H100"}}
    assert [one.case_id for one in reached(table, other, [])] == [AMAX, SMALL]
    with pytest.raises(UsageError, match="no line of targets.yaml is for NVIDIA H200; all are for NVIDIA H100"):
        targets(lines=table.lines[:1]).of("NVIDIA H200")


def test_a_case_without_a_time_never_holds():
    amax, small = reached(targets(), HEADER | FLOORS, [{**record(AMAX), "times": None, "reason": "no memory"}])
    assert not amax.holds and amax.reached == "no time: PASS no memory"
    assert not small.holds and small.reached == "no time: it was not run"


@pytest.mark.parametrize(
    ("rates", "why"),
    [([4200.0], "did not come to its end"), ([3150.0, 4200.0], "saw its own copy roofline move from 3,150 to 4,200")],
)
def test_a_run_whose_machine_did_not_hold_its_roofline_measured_nothing(rates: list[float], why: str):
    points = [{"point": point, "gbps": rate, "date": ""} for point, rate in zip(("start", "end"), rates, strict=False)]
    records = [record(AMAX, percent=96.0), record(SMALL, 6.0, noise=0.0)]
    found = list(reached(targets(), HEADER | FLOORS | {"roofline": points}, records))
    assert all(one.reached.startswith(f"no time: the run {why}") and not one.holds for one in found)


def test_a_case_whose_gpu_waited_for_the_host_is_not_measured():
    late = record(AMAX, percent=96.0)
    late["times"]["exposed"] = late["times"]["rounds"]
    amax, small = reached(targets(), HEADER | FLOORS, [late, record(SMALL, 6.0, noise=0.0)])
    assert amax.reached.startswith("no time: the GPU waited for the host in ") and not amax.holds
    assert small.holds


@pytest.mark.parametrize("name", FLOORS["floors_us"])
def test_a_run_without_a_floor_is_refused(name: str):
    floors = {"floors_us": {key: us for key, us in FLOORS["floors_us"].items() if key != name}}
    with pytest.raises(UsageError, match=f"no floor of '{name}'"):
        list(reached(targets(), HEADER | floors, []))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("shape: s\nlines:\n  - kernel: k\n    cases: [c]\n", "lines.yaml:3.*one of percent and launches"),
        ("shape: s\nlines:\n  - {kernel: k, cases: [c], percent: 1, launches: 1}\n", "one of percent"),
        ("shape: s\nlines:\n  - kernel: k\n    cases: [c]\n    percent: -3\n", "lines.yaml:5: lines.0.percent"),
        ("shape: s\n", "lines: field required"),
        ("lines: [", "not valid YAML"),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(tmp_path: Path, text: str, sentence: str):
    (tmp_path / "lines.yaml").write_text(text)
    with pytest.raises(SuiteError, match=sentence):
        load(tmp_path / "lines.yaml")


class TestCommand:
    def run(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *records: dict) -> tuple[int, str]:
        monkeypatch.setattr(roofline, "load", targets)
        times, table = tmp_path / "bench.jsonl", tmp_path / "table.md"
        write_jsonl(times, HEADER | FLOORS, [*records, record(SMALL, 6.0, noise=0.0)])
        result = CliRunner().invoke(
            roofline.command, ["--times", str(times), "--into", str(table)], standalone_mode=False
        )
        return result.return_value, table.read_text()

    def test_the_table_is_written_and_the_exit_code_says_whether_all_holds(self, monkeypatch, tmp_path):
        code, text = self.run(monkeypatch, tmp_path, record(AMAX, percent=96.0))
        assert code == Exit.CLEAN
        assert "2 of 2 cases reach theirs" in text

    def test_a_missed_figure_is_an_exit_code(self, monkeypatch, tmp_path):
        code, text = self.run(monkeypatch, tmp_path, record(AMAX, percent=60.0))
        assert code == Exit.SLOWER
        assert "short by 35.0 points: bytes" in text

    def test_a_missed_figure_is_not_hidden_by_a_case_without_a_time(self, monkeypatch, tmp_path):
        monkeypatch.setattr(roofline, "load", targets)
        times = tmp_path / "bench.jsonl"
        write_jsonl(times, HEADER | FLOORS, [record(AMAX, percent=60.0)])
        words = ["--times", str(times)]
        assert CliRunner().invoke(roofline.command, words, standalone_mode=False).return_value == Exit.SLOWER

    @pytest.mark.parametrize("gpu", chips())
    def test_committed_times_give_the_committed_table(self, tmp_path, gpu):
        tables = ROOT / "results" / "tables" / gpu
        words = ["--times", str(tables / "roofline.jsonl"), "--into", str(tmp_path / "table.md")]
        CliRunner().invoke(roofline.command, words, standalone_mode=False)
        assert (tmp_path / "table.md").read_text() == (tables / "roofline.md").read_text()

    @pytest.mark.parametrize(("verdict", "code"), [("UNWRITTEN", Exit.BYTES_DIFFER), ("EXCLUDED", Exit.NOISY)])
    def test_a_case_without_a_time_is_no_missed_figure(self, monkeypatch, tmp_path, verdict, code):
        untimed = {**record(AMAX), "times": {}, "verdict": verdict, "reason": "so"}
        run = SimpleNamespace(header=HEADER | FLOORS, records=[untimed, record(SMALL, 6.0, noise=0.0)])
        monkeypatch.setattr(roofline, "load", targets)
        monkeypatch.setattr(roofline, "_time", lambda *_: Exit.BYTES_DIFFER)
        monkeypatch.setattr(roofline, "read_run", lambda folder: run)
        assert CliRunner().invoke(roofline.command, [], standalone_mode=False).return_value == code

    def test_its_command_names_no_folder_of_this_machine(self, monkeypatch):
        asked: list[list[str]] = []
        monkeypatch.setattr(roofline, "load", targets)
        monkeypatch.setattr(roofline, "supervise", lambda words, *_: asked.append(words) or Exit.NO_DEVICE)
        CliRunner().invoke(roofline.command, ["--run-dir", str(ROOT / "results/runs/new")], standalone_mode=False)
        assert asked and "results/runs/new" in asked[0] and "suites/per_tensor.yaml" in asked[0]
        assert not any(Path(word).is_absolute() for word in without_settings(asked[0]))

    def test_a_run_that_did_not_begin_is_not_read(self, monkeypatch, tmp_path):
        monkeypatch.setattr(roofline, "_time", lambda *_: Exit.NO_DEVICE)
        monkeypatch.setattr(roofline, "read_run", lambda folder: pytest.fail("an older run in that folder was read"))
        result = CliRunner().invoke(roofline.command, ["--run-dir", str(tmp_path)], standalone_mode=False)
        assert result.return_value == Exit.NO_DEVICE

    @pytest.mark.parametrize("words", [("--run-dir", "x"), ("--energy",)])
    def test_times_of_a_file_exclude_what_is_measured(self, words):
        result = CliRunner().invoke(roofline.command, ["--times", "y", *words], standalone_mode=False)
        assert isinstance(result.exception, UsageError)

    def test_energy_has_a_column_where_it_was_measured(self, monkeypatch, tmp_path):
        measured = record(AMAX, percent=96.0)
        measured["times"] |= {"energy_uj": 65_000.0, "energy_error_uj": 900.0, "celsius": 41}
        _, text = self.run(monkeypatch, tmp_path, measured)
        assert "nJ an element" in text and "0.2421 ± 0.003 at 41 °C" in text  # over 32768 * 8192
        measured["times"] = record(AMAX, percent=96.0)["times"] | {"no_energy": "the driver counts no energy"}
        assert "the driver counts no energy" in self.run(monkeypatch, tmp_path, measured)[1]
        assert "nJ" not in self.run(monkeypatch, tmp_path, record(AMAX, percent=96.0))[1]
