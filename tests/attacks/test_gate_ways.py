"""Ways to a green gate by a run that says nothing of the tree, or by a limit that nothing reaches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_here import command
from runs_on_disk import GPU, IDS, about, passed, sources, write_run
from timed_runs import DUEL_HEADER, HEADER, duel_line
from ways import must_be_red

from harness.files import ROOT
from harness.gate import revision_run
from harness.gate.decision import Samples, decide
from harness.gate.report import from_lines
from harness.gate.revision_bench import Comparison, RevisionBench
from harness.records.claims import UNCHANGED
from harness.records.run_folder import commit, read_bench_or_gate
from harness.suite.suite import find_case
from harness.verdict import Result, Verdict

CASE = IDS[0]
FAST, SLOW = ([base + i / 10 for i in range(12)] for base in (20.0, 40.0))


@pytest.fixture
def gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Judges a run by a baseline, of the same times unless they are others."""

    def header(**changes: Any) -> dict[str, Any]:
        return HEADER | {"sources": sources()[:16], "commit": commit(), "machine": GPU} | changes

    def gate(*options: str, times: list[float] = FAST, base: list[float] = FAST, then: str = "2025", **changes: Any):
        baseline = tmp_path / "bench.jsonl"
        baseline.write_text(
            "".join(json.dumps(line) + "\n" for line in (header() | {"date": then}, passed(CASE, base)))
        )
        first = about([CASE], [CASE], **{"timed": True, "device": GPU} | changes.pop("first", {}))
        run = write_run(tmp_path / "run", first, passed(CASE, times), header=header(**changes))
        return command(capsys, "gate", run, "--baseline", baseline, *options)

    return gate


def test_the_gate_that_is_deceived_here_is_green_by_itself(gate):
    """No way to green: the same times of the same tree are SAME."""
    assert gate().returncode == 0


@pytest.mark.parametrize("effect", ["inf", "nan", "1e308", "1"])
def test_an_effect_that_no_slowdown_reaches(gate, effect: str):
    """Ask for a change that counts only if it is infinite."""
    must_be_red(gate("--effect", effect, times=SLOW), "effect")


def test_a_run_of_other_sources(gate):
    """Have a fast run of earlier kernels judged after the kernels became slow."""
    must_be_red(gate(sources="0" * 16, first={"sources": "0" * 64}), "of other sources than this tree")


def test_times_of_other_sources_in_the_folder_of_this_run(gate):
    """Put the header of earlier times beside a journal of this tree."""
    must_be_red(gate(sources="0" * 16), "of other sources than this tree")


def test_a_run_of_another_commit(gate):
    """Have a run of another commit judged as this one's."""
    must_be_red(gate(commit="f" * 40), "is of commit ffffffffffff")


def test_the_times_of_the_baseline_itself(gate):
    """Save a slow run as the baseline, and have it judged by that."""
    must_be_red(gate(times=SLOW, base=SLOW, then=HEADER["date"]), "these are the baseline's own times")


def test_times_of_another_machine_in_the_folder_of_this_run(gate):
    """Run on a faster GPU, and name the baseline's in the header of the times."""
    must_be_red(gate(first={"device": GPU | {"gpu": "NVIDIA B200"}}), "machine.gpu is 'NVIDIA H200', and in the")


def test_a_slower_kernel_whose_events_are_said_to_be_unknown(gate):
    """Leave out what two events took, so that all of it is allowed for."""
    must_be_red(gate(times=[us + 1.3 for us in FAST], floors_us={}), "the header of this run has no time of two")


def test_a_run_that_was_killed(gate):
    """Kill a bench before its slow cases, and have the rest judged with a smaller baseline."""
    must_be_red(gate(first={"selected": 9}), "holds 1 of its 9 cases")


def reported(tmp_path: Path, capsys: pytest.CaptureFixture[str], line: dict[str, Any], **header: Any):
    """What `harness report` makes of a gate of this line."""
    file = tmp_path / "gate.jsonl"
    lines = (DUEL_HEADER | header, line, {"end": HEADER["roofline"][1]})
    file.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return command(capsys, "report", file)


def test_a_verdict_that_its_interval_does_not_give(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Call a slower case SAME in the file of a gate, and publish its page."""
    line = duel_line(CASE, "SLOWER", 1.5) | {"verdict": "SAME"}
    must_be_red(reported(tmp_path, capsys, line), "is SAME, and its changes are SLOWER")


@pytest.mark.parametrize(
    "changes",
    [{"head_us": 1.0}, {"time": [1.0, 0.999, 1.001]}, {"samples_us": {}}, {"verified": "MISMATCH"}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_comparison_that_is_not_its_samples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]
):
    """Write another median, change or verification beside the samples of a gate, and publish its page."""
    line = duel_line(CASE, "SLOWER", 1.5) | changes
    must_be_red(reported(tmp_path, capsys, line), "is not what a run writes: line 2")


UNTIMED = dict.fromkeys(("time", "cycles", "floor", "head_us", "base_us"))
WITHOUT_SAMPLES = UNTIMED | {"samples_us": {}, "mhz": []}
NO_MEMORY = {"copies": 0, "calls": 0, "bytes": 0, "memory": ""}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"verdict": "SAME", "time": [1.5, 0.999, 1.001], "cycles": [1.5, 0.999, 1.001]}, "the time +50.0% (-0.1% to "),
        ({"verdict": "AMBIGUOUS", "cycles": [1.5, 0.999, 1.6]}, "the cycles +50.0% (-0.1% to +60.0%), and that of its"),
        ({"verdict": "AMBIGUOUS", "floor": [1.5, 1.4, 1.6]}, "the floor +50.0% (+40.0% to +60.0%), and that of its"),
        ({"verdict": "SAME", "mhz": [1000.0] * 30}, "is SAME, and its changes are SLOWER"),
        ({"verdict": "INVALID"}, "line 2: Value error, an INVALID has samples, and no times"),
        ({"verdict": "AMBIGUOUS", "recurs": False, "reason": "noise"}, "its reason does not say what another found"),
        ({"dropped": 3}, "has dropped 3 rounds, and by its clocks 0 are to be dropped"),
        ({"verdict": "SAME"} | UNTIMED, "line 2: Value error, a timed case that is SAME needs medians"),
        ({"verdict": "AMBIGUOUS"} | UNTIMED, "has the head_us None, and that of its samples is "),
        ({"verdict": "NO_BASELINE"} | UNTIMED, "line 2: Value error, a case that is NO_BASELINE has no samples"),
        ({"verdict": "SAME"} | WITHOUT_SAMPLES, "line 2: Value error, a verified case that is SAME needs samples"),
        ({"verdict": "AMBIGUOUS"} | WITHOUT_SAMPLES, "a verified case that is AMBIGUOUS needs samples"),
        ({"verdict": "SAME", "verified": None}, "by its machine code alone, and has no samples"),
        ({"verdict": "SAME", "verified": None} | WITHOUT_SAMPLES, "was not timed, has no memory, and says so"),
        ({"verdict": "SAME", "verified": None} | WITHOUT_SAMPLES | NO_MEMORY, "says so: machine code, grids and lib"),
        ({"mhz": [1980.0]}, "line 2: Value error, there are 30 rounds, and the clocks of 1"),
    ],
)  # fmt: skip
def test_a_slower_case_that_is_edited_into_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], sentence: str
):
    """Edit the verdict of a slower case and some of what it follows from, and publish its page."""
    must_be_red(reported(tmp_path, capsys, duel_line(CASE, "SLOWER", 1.5) | changes), sentence)


@pytest.mark.parametrize(
    ("option", "changes", "sentence"),
    [
        ("--all", {"verdict": "SAME", "verified": None, "reason": UNCHANGED} | WITHOUT_SAMPLES | NO_MEMORY,
         "was not timed, by a gate that times all cases (--all)"),
        ("--once", {"verdict": "AMBIGUOUS", "recurs": False}, "no second process was asked about it"),
    ],
    ids=["all", "once"],
)  # fmt: skip
def test_what_the_command_of_a_gate_does_not_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, changes: dict[str, Any], sentence: str
):
    """Claim unchanged machine code of a gate that times it all, or a second process of one that asks none."""
    line = duel_line(CASE, "SLOWER", 1.5) | changes
    assert reported(tmp_path, capsys, line).returncode == 0
    must_be_red(reported(tmp_path, capsys, line, command=f"harness gate --base main {option}"), sentence)


def test_what_a_gate_writes_is_read_as_what_it_decided(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """No way to green: samples at every edge of a verdict, unchanged machine code, and what was too short to judge."""
    rng = np.random.default_rng(0)
    case = find_case("swizzle/default/128x256/normal/graph")
    verified = Result(case.id, case.recipe, Verdict.PASS)
    bench = RevisionBench(None, None, None)
    bench._same[case.id] = True
    found = [bench.compare(case)]
    for us in (0.7, 5.0, 300.0):
        for change in (1.0, 1.0095, 1.01, 1.0105, 1.013):
            clocks = list(rng.choice([1980.0, 1782.04, 1000.0, 0.0], 30, p=(0.5, 0.3, 0.15, 0.05)))
            sides = {
                name: Samples(list(us * factor * rng.normal(1, 0.001, 30)), clocks)
                for name, factor in (("head", change), ("again", change), ("base", 1.0))
            }
            found.append(Comparison(case, decide(**sides), verified, sides))
    assert {*(one.decision.verdict for one in found)} >= {"SAME", "AMBIGUOUS", "SLOWER"}
    for one in found:
        line = json.loads(json.dumps(revision_run.record(one)))
        done = reported(tmp_path, capsys, line)
        assert done.returncode == 0, done.stderr
        assert not one.samples or Samples(line["samples_us"]["head"], line["mhz"]) == one.samples["head"].written


@pytest.mark.parametrize("folder", ["clean", "planted"])
def test_the_gates_that_are_committed_are_read(tmp_path: Path, folder: str):
    """No way to green: they were decided by samples that were rounded since."""
    lines = from_lines(*read_bench_or_gate(ROOT / "results" / "gate" / folder / "gate.jsonl")).judgements
    assert {each.verdict for each in lines} == {"SAME" if folder == "clean" else "SLOWER"}


@pytest.mark.parametrize("effect", [1e9, 0.6])
def test_a_gate_whose_header_has_an_effect_without_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], effect: float
):
    """Write a huge effect into the header of a gate, under which every case is the SAME."""
    file = tmp_path / "gate.jsonl"
    file.write_text(json.dumps(DUEL_HEADER | {"effect": effect}) + "\n")
    must_be_red(command(capsys, "report", file), "effect")
