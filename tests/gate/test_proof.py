"""The proof of the gate: the slowdown it plants, and what it makes of gates that are made up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.errors import Exit, UsageError
from harness.files import ROOT
from harness.gate import self_test
from harness.gate.self_test import GateRuns
from harness.suite.suite import find_case


def test_the_line_to_slow_down_is_there_and_the_cases_run_it(tmp_path):
    target = tmp_path / "harness/kernels/reduce/tensor_amax.cuh"
    target.parent.mkdir(parents=True)
    target.write_text((ROOT / "harness/kernels/reduce/tensor_amax.cuh").read_text())
    self_test._plant(tmp_path, 3)
    assert "again < total + total * 3 / 100" in target.read_text()
    with pytest.raises(UsageError, match="has no line"):
        self_test._plant(tmp_path, 3)
    assert [find_case(case).flags.stage for case in self_test.PLANTED] == ["amax"]
    assert all(find_case(case).id == case for case in self_test.AGAINST_ITSELF)


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
    assert GateRuns(percent, [Counter([verdict]) for verdict in verdicts], []).right is right


def test_the_command_tells_and_fails(monkeypatch, capsys, tmp_path):
    from harness.cli import main

    def gate(checkout: Path, cases: Sequence[str], into: Path) -> Path:
        into.mkdir(parents=True)
        lines = [{"base": "HEAD"}, *({"case_id": str(n), "verdict": "SAME"} for n in range(2)), {"end": {}}]
        (into / "gate.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
        return into / "gate.jsonl"

    monkeypatch.setattr(self_test, "git", lambda *command: None)
    monkeypatch.setattr(self_test, "_plant", lambda checkout, percent: None)
    monkeypatch.setattr(self_test, "_gate", gate)
    with pytest.raises(SystemExit) as stop:
        main(["prove", "--into", str(tmp_path), "--times", "3", "--percent", "0", "--percent", "10"])
    assert stop.value.code == Exit.BYTES_DIFFER
    assert capsys.readouterr().out.splitlines() == [
        "against itself: 6 SAME, in 3 gates; as it must",
        "10 % planted: 6 SAME, in 3 gates; WRONG",
    ]


def test_cases_are_drawn_anew_for_each_gate_and_again_for_the_same_seed():
    first, other = (self_test._cases(0, 60, seed) for seed in (7, 8))
    assert len(set(first)) == 60 and set(first) != set(other) and self_test._cases(0, 60, 7) == first
    assert all(find_case(case).mode == "graph" for case in first)
    assert self_test._cases(3, 60, 7) == self_test.PLANTED
    with pytest.raises(UsageError, match="cannot be drawn"):
        self_test._cases(0, 10**6, 0)
