"""The last screen of a gate: 25 rows whatever it found, the worst first, and no id broken."""

from __future__ import annotations

import random

import pytest
from timed_runs import HEADER, gate_run

from harness.errors import Exit
from harness.gate.against_baseline import exit_code, judge
from harness.gate.screen import MOST_LINES, render
from harness.verdict import Judgement, Performance, Result, TimeRatio, Verdict

AROUND = 2  # where the page lies, and whether there is a baseline
LONG_ID = "gemm_grouped/" + ",".join(f"flag{number}=value" for number in range(9)) + "/8*4096x1024x2048/normal/eager"
LONG_REASON = "time +3.1% (+2.9% to +3.3%), cycles +3.0% (+2.8% to +3.2%); noise +0.1% (+0.0% to +0.2%); 30 rounds"


def rows(text: str, width: int) -> int:
    return sum(max(1, -(-len(line) // width)) for line in text.splitlines())


@pytest.mark.parametrize("width", [80, 100, 120, 200])
@pytest.mark.parametrize("alone", [False, True])
def test_the_worst_gate_ends_on_one_screen(width: int, alone: bool):
    wrong = [
        Result(f"{LONG_ID}{verdict}{n}", "gemm_grouped", verdict, f"{n} {LONG_REASON}" * 3).to_record()
        for verdict in Verdict
        for n in range(40)
    ]
    judged = [
        Judgement(f"{LONG_ID}{each}{n}", each, f"{n} {LONG_REASON}" * 3, 2.0, 1.0, TimeRatio(2.0, 1.9, 2.1))
        for each in Performance
        for n in range(40)
    ]
    text = render([] if alone else wrong, judged, Exit.BYTES_DIFFER, width)
    assert rows(text, width) + AROUND <= MOST_LINES
    first = text.split(maxsplit=2)
    assert first[:2] == (["SLOWER", f"{LONG_ID}SLOWER0"] if alone else ["MISMATCH", f"{LONG_ID}MISMATCH0"])
    assert "more verdicts with other reasons, which gate.md has" in text
    assert text.splitlines()[-1].endswith("exit 1 (bytes differ)")


def test_one_reason_of_many_cases_is_said_once():
    judged = [Judgement(f"toy/default/{n}x16/normal/graph", Performance.INVALID, "other driver") for n in range(1000)]
    random.Random(0).shuffle(judged)
    assert render([], judged, Exit.NOISY, 100).splitlines() == [
        f"INVALID      {judged[0].case_id} and 999 more",
        "    other driver",
        "",
        "1000 INVALID: exit 3 (noisy)",
    ]


def test_what_is_wrong_comes_before_what_is_slower_and_times_stand_with_their_reason(tmp_path):
    run, held = gate_run(tmp_path)
    judgements = judge(run, HEADER, held)
    lines = render(run.records, judgements, exit_code(run.records, judgements), 100).splitlines()
    shown = [line.split()[0] for line in lines if line and not line.startswith(" ")]
    assert shown[:3] == ["MISMATCH", "SLOWER", "NO_BASELINE"]
    assert any(line.startswith("    20.04 -> 24.05 us; time +20.0% ") for line in lines)
    assert not any(line.startswith("SAME") for line in lines[:-1])
