"""The proof of the gate: the slowdown it plants, and what it makes of gates that are made up."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from evidence.gate import self_test
from evidence.gate.self_test import PLANTED, GateRuns
from harness.errors import Exit, HarnessError, UsageError
from harness.files import ROOT
from harness.suite.launch_plan import plan
from harness.suite.suite import find_case


def test_the_lines_to_slow_down_are_there(tmp_path):
    for plant in PLANTED.values():
        target = tmp_path / plant.file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((ROOT / plant.file).read_text())
    self_test._plant(tmp_path, 3, dict.fromkeys(PLANTED, 10_000.0))
    amax, *waiting = ((tmp_path / plant.file).read_text() for plant in PLANTED.values())
    assert "again < total + total * 3 / 100" in amax
    for text in waiting:
        assert text.count("  for (const i64 until = clock64() + 300; clock64() < until;) {}\n") == 1
    with pytest.raises(UsageError, match="has no line"):
        self_test._plant(tmp_path, 3, dict.fromkeys(PLANTED, 10_000.0))


def test_the_cases_are_there():
    assert all(find_case(case).id == case for case in (*PLANTED, *self_test.AGAINST_ITSELF))
    assert [find_case(case).flags.stage for case in PLANTED if case.startswith("per_tensor")] == ["amax"]


def test_a_wait_is_in_a_kernel_that_the_case_launches():
    for case, plant in PLANTED.items():
        if plant.file.endswith(".cu"):
            ahead = (ROOT / plant.file).read_text().split(plant.line)[0].rsplit("__global__", 1)[1]
            assert any(f" {step.signature.name}(" in ahead for step in plan(find_case(case))), case


def test_a_wait_is_a_part_of_what_the_case_takes(tmp_path):
    line = {"case_id": "x", "verdict": "SAME", "reason": "", "head_us": 5.0, "mhz": [1980.0, 1970.0, 1990.0]}
    file = tmp_path / "gate.jsonl"
    file.write_text("\n".join(map(json.dumps, [{"base": "HEAD"}, line, {"end": {}}])) + "\n")
    assert self_test._cycles(file) == {"x": 9900.0}
    file.write_text(json.dumps(line | {"head_us": None, "verdict": "INVALID", "reason": "late"}) + "\n")
    with pytest.raises(UsageError, match="x has no time to plant a part of: INVALID, late"):
        self_test._cycles(file)


@pytest.mark.parametrize(
    "percent, verdicts, right",
    [
        (0, ["SAME"] * 19 + ["AMBIGUOUS"], True),
        (0, ["SAME"] * 18 + ["AMBIGUOUS"] * 2, False),
        (0, ["SAME"] * 97 + ["AMBIGUOUS"] * 3, True),
        (0, ["SAME"] * 96 + ["AMBIGUOUS"] * 4, False),
        (0, ["SAME"] * 19 + ["SLOWER"], False),
        (0, ["SAME"] * 19 + ["FASTER"], False),
        (3, ["SLOWER"] * 19 + ["SAME"], True),
        (3, ["SLOWER"] * 18 + ["SAME"] * 2, False),
        (3, ["SLOWER"] * 5 + ["SAME"], False),
        (10, ["SLOWER"] * 20, True),
        (10, ["SLOWER"] * 19 + ["AMBIGUOUS"], False),
    ],
)
def test_what_a_proof_must_show(percent, verdicts, right):
    assert GateRuns(percent, [{"case": verdict} for verdict in verdicts], []).right is right


def test_a_slowdown_must_be_found_in_each_case():
    gates = [{"long": "SLOWER", "short": "SAME" if number < 2 else "SLOWER"} for number in range(20)]
    runs = GateRuns(3, gates, [])
    assert (runs.found, runs.right) == ({"long": 20, "short": 18}, False)


def test_the_command_tells_and_fails(monkeypatch, capsys, tmp_path):
    from evidence.__main__ import main

    def gate(checkout: Path, cases: Sequence[str], into: Path) -> Path:
        into.mkdir(parents=True)
        times = {"verdict": "SAME", "head_us": 5.0, "mhz": [1980.0]}
        lines = [{"base": "HEAD"}, *({"case_id": str(n)} | times for n in range(2)), {"end": {}}]
        (into / "gate.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
        return into / "gate.jsonl"

    monkeypatch.setattr(self_test, "git", lambda *command: None)
    monkeypatch.setattr(self_test, "_plant", lambda checkout, percent, cycles: None)
    monkeypatch.setattr(self_test, "_gate", gate)
    with pytest.raises(SystemExit) as stop:
        main(["prove", "--into", str(tmp_path), "--times", "3", "--percent", "0", "--percent", "10"])
    assert stop.value.code == Exit.BYTES_DIFFER
    assert capsys.readouterr().out.splitlines() == [
        "against itself: 6 SAME, in 3 gates; as it must",
        "10 % planted: 6 SAME, in 3 gates; WRONG",
        "  0: SLOWER in 0",
        "  1: SLOWER in 0",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--percent", "3", "--draw", "5"],
            "--draw is of gates without a slowdown, and --percent asks for others alone",
        ),
        (["--seed", "5"], "--seed is that of the draw; give --draw, too"),
        (["--seed", "0"], "--seed is that of the draw; give --draw, too"),
    ],
)
def test_a_draw_and_a_seed_that_would_do_nothing_are_refused(capsys, tmp_path, words: list[str], said: str):
    from evidence.__main__ import main

    with pytest.raises(SystemExit) as stop:
        main(["prove", "--into", str(tmp_path / "new"), *words])
    assert stop.value.code == Exit.USAGE and not (tmp_path / "new").exists()
    assert capsys.readouterr().err.startswith(f"error: {said}")


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ([], ((0, 3, 10), 0, 0)),
        (["--draw", "5"], ((0, 3, 10), 5, 0)),
        (["--draw", "5", "--seed", "7", "--percent", "0", "--percent", "3"], ((0, 3), 5, 7)),
    ],
)
def test_a_draw_and_a_seed_are_those_of_the_gates(monkeypatch, tmp_path, words: list[str], given: tuple):
    from evidence.__main__ import main

    told = []
    monkeypatch.setattr(self_test, "prove", lambda percents, *rest: told.append((percents, *rest)) or [])
    with pytest.raises(SystemExit):
        main(["prove", "--into", str(tmp_path / "new"), *words])
    assert told == [(given[0], 20, tmp_path / "new", *given[1:])]


def test_cases_are_drawn_anew_for_each_gate_and_again_for_the_same_seed():
    first, other = (self_test._cases(0, 60, seed) for seed in (7, 8))
    assert len(set(first)) == 60 and set(first) != set(other) and self_test._cases(0, 60, 7) == first
    assert all(find_case(case).mode == "graph" for case in first)
    assert self_test._cases(3, 60, 7) == list(PLANTED)
    with pytest.raises(UsageError, match="cannot be drawn"):
        self_test._cases(0, 10**6, 0)


IDS = ["a/default/16x16/normal/graph", "b/default/16x16/normal/graph"]


def told(*ids: str, end: bool = True) -> str:
    lines = [{"base": "HEAD"}, *({"case_id": case, "verdict": "SAME"} for case in ids), *([{"end": {}}] if end else [])]
    return "\n".join(map(json.dumps, lines)) + "\n"


@pytest.mark.parametrize(
    ("left", "code"),
    [
        (told(), 64),
        (told(end=False), 4),
        (told(*IDS, end=False), 0),
        (told(IDS[0]), 0),
        (told(IDS[0], IDS[0]), 0),
        (told(*IDS, "c/default/16x16/normal/graph"), 0),
        (told(*IDS)[:-5], -9),
        ("", -9),
        (told(*IDS), 64),
    ],
)
def test_a_gate_that_did_not_judge_its_cases_proves_nothing(monkeypatch, tmp_path: Path, left: str, code: int):
    def run(*words, **options):
        (tmp_path / "gate").mkdir()
        (tmp_path / "gate/gate.jsonl").write_text(left)
        return subprocess.CompletedProcess([], code, "", "error: it went wrong")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(HarnessError, match=f"a gate ended with {code} .*; it printed: error: it went wrong"):
        self_test._gate(tmp_path, IDS, tmp_path / "gate")


@pytest.mark.parametrize("code", [0, 1, 2, 3])
def test_a_gate_that_judged_its_cases_counts_in_a_folder_that_was_new(monkeypatch, tmp_path: Path, code: int):
    def run(*words, **options):
        (tmp_path / "gate").mkdir()
        (tmp_path / "gate/gate.jsonl").write_text(told(*IDS))
        return subprocess.CompletedProcess([], code, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    assert self_test._gate(tmp_path, IDS[::-1], tmp_path / "gate").exists()
    with pytest.raises(UsageError, match="is not empty"):
        next(self_test.prove([0], 1, tmp_path))


def test_no_gate_and_none_of_any_case_is_wrong():
    assert [GateRuns(percent, verdicts, []).right for percent in (0, 3) for verdicts in ([], [{}])] == [False] * 4


@pytest.mark.parametrize(("code", "ends"), [(4, Exit.NO_DEVICE), (64, Exit.USAGE), (-9, Exit.USAGE)])
def test_a_gate_without_its_file_ends_the_proof_with_its_reason(monkeypatch, tmp_path: Path, code: int, ends: Exit):
    done = subprocess.CompletedProcess([], code, "", "error: device 'cuda' needs CuPy")
    monkeypatch.setattr(subprocess, "run", lambda *words, **options: done)
    with pytest.raises(HarnessError, match="device 'cuda' needs CuPy") as caught:
        self_test._gate(tmp_path, ["a/default/16x16/normal/graph"], tmp_path / "gate")
    assert caught.value.exit_code == ends
