"""`harness bench --function`: a function is timed at once, eagerly and as a graph, and nothing is verified or kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import stand_in_gpu
from stand_in_gpu import WORK_US

from harness.cli import main
from harness.errors import Exit, LaunchError, UsageError
from harness.subjects.at_once import UNVERIFIED, time_at_once
from harness.subjects.subject import Subject
from harness.suite.suite import find_case

CASE = "per_tensor/outputs=rowwise/32x64/normal/eager"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> stand_in_gpu.StandInGpu:
    return stand_in_gpu.install(monkeypatch)


def fill(case, inputs, outputs) -> None:
    """Wrong everywhere, and quick: one write for each output."""
    assert inputs["input"].shape == (case.rows, case.cols) and inputs["input"].dtype == "uint16"
    for output in outputs.values():
        output[...] = 1


def timed(gpu, quantize=fill, **changes):
    return list(time_at_once(Subject("mine:fill", "1", quantize, **changes), find_case(CASE), gpu, gpu.clock, 1.0))


def test_a_function_is_timed_eagerly_and_as_a_graph_and_called_unverified(gpu):
    rows = timed(gpu)
    assert [row["case"] for row in rows] == [CASE, CASE.replace("eager", "graph")]
    assert {row["verdict"] for row in rows} == {UNVERIFIED}
    outputs = ("rowwise_data", "rowwise_scale_inv", "rowwise_amax")
    assert {row["us"] for row in rows} == {f"{WORK_US * len(outputs):.2f}"}


def test_what_it_refuses_or_raises_is_one_sentence(gpu):
    with pytest.raises(UsageError, match="mine:fill refuses per_tensor/.*: too small; choose another --shape"):
        timed(gpu, refuses=lambda case: "too small")

    def fails(case, inputs, outputs):
        raise KeyError("nothing")

    with pytest.raises(LaunchError, match="mine:fill raised KeyError: 'nothing'"):
        timed(gpu, fails)


def test_the_command_says_first_that_nothing_is_verified_and_leaves_no_run(
    gpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "filling.py").write_text(
        'HARNESS_FLAGS = {"outputs": "rowwise"}\n'
        "def fill(case, inputs, outputs):\n    for output in outputs.values():\n        output[...] = 1\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("harness.commands.bench.require_clock", lambda name: None)
    monkeypatch.setattr("harness.commands.bench.select", lambda name: gpu)
    monkeypatch.setattr("harness.bench.gpu_timer.clock_of", lambda device: gpu.clock)
    monkeypatch.setattr("harness.bench.roofline.copy_gbps", lambda clock: 1.0)
    before = sorted(tmp_path.rglob("*.jsonl"))
    with pytest.raises(SystemExit) as ended:
        main(["bench", "--function", "filling:fill", "--shape", "32x64", "--flag", "rounding=sr"])
    printed = capsys.readouterr()
    assert ended.value.code == Exit.NO_DEVICE, printed.err
    first, *_, last = printed.out.splitlines()
    assert first.startswith("nothing is verified: nobody compares what filling:fill writes, and these times are kept")
    assert last == "2 timed, 0 compared; exit 4 (nothing was compared)"
    for mode in ("eager", "graph"):
        assert f"per_tensor/outputs=rowwise,rounding=sr/32x64/normal/{mode} │ {UNVERIFIED}" in printed.out
    assert sorted(tmp_path.rglob("*.jsonl")) == before
