"""Ways to a green gate by a run that says nothing of the tree, or by a limit that nothing reaches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_here import command
from runs_on_disk import GPU, IDS, about, passed, sources, write_run
from timed_runs import DUEL_HEADER, HEADER, duel_line
from ways import must_be_red

from harness.records.run_folder import commit

CASE = IDS[0]
FAST, SLOW = ([base + i / 10 for i in range(12)] for base in (20.0, 40.0))


@pytest.fixture
def gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Judges a run by a baseline, of the same times unless they are others."""

    def header(**changes: Any) -> dict[str, Any]:
        return HEADER | {"sources": sources()[:16], "commit": commit(), "machine": GPU} | changes

    def gate(*options: str, times: list[float] = FAST, base: list[float] = FAST, **changes: Any):
        baseline = tmp_path / "bench.jsonl"
        baseline.write_text("".join(json.dumps(line) + "\n" for line in (header(), passed(CASE, base))))
        first = about([CASE], [CASE], timed=True, device=GPU, **changes.pop("first", {}))
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


def test_a_run_that_was_killed(gate):
    """Kill a bench before its slow cases, and have the rest judged with a smaller baseline."""
    must_be_red(gate(first={"selected": 9}), "holds 1 of its 9 cases")


def test_a_verdict_that_its_interval_does_not_give(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Call a slower case SAME in the file of a gate, and publish its page."""
    line = duel_line(CASE, "SLOWER", 1.5) | {"verdict": "SAME"}
    file = tmp_path / "gate.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in (DUEL_HEADER, line, {"end": HEADER["roofline"][1]})))
    must_be_red(command(capsys, "report", file), "is SAME, and its changes are SLOWER")


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
    file = tmp_path / "gate.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in (DUEL_HEADER, line)))
    must_be_red(command(capsys, "report", file), "is not what a run writes: line 2")


@pytest.mark.parametrize("effect", [1e9, 0.6])
def test_a_gate_whose_header_has_an_effect_without_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], effect: float
):
    """Write a huge effect into the header of a gate, under which every case is the SAME."""
    file = tmp_path / "gate.jsonl"
    file.write_text(json.dumps(DUEL_HEADER | {"effect": effect}) + "\n")
    must_be_red(command(capsys, "report", file), "effect")
