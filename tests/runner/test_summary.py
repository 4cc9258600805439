"""The last screen of a run: 25 lines whatever is wrong, a case on one line, and the same lines in each run."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import pytest
from toy_runs import SMOKE, Runs

from harness.errors import Exit
from harness.runner import summary
from harness.runner.summary import AROUND, MOST_LINES
from harness.verdict import Result, Verdict

SOME = (Verdict.PASS, Verdict.CONVENTION, Verdict.MISMATCH, Verdict.UNWRITTEN, Verdict.EXCLUDED)
LONG_ID = "per_token/" + ",".join(f"flag{number}=value" for number in range(20)) + "/8192x7168/outliers/graph"


def rows(text: str, width: int) -> int:
    """Rows of a terminal, which shows a longer line on several."""
    return sum(max(1, -(-len(line) // width)) for line in text.splitlines())


def worst_run(verdicts: Iterable[Verdict] = SOME) -> list[Result]:
    """Forty cases of each of these verdicts, each for a reason of its own."""
    return [
        Result(f"{LONG_ID}{verdict}{number}", "per_token", verdict, f"{number} of a long reason" * 20)
        for verdict in verdicts
        for number in range(40)
    ]


@pytest.mark.parametrize("verdicts", [SOME, tuple(Verdict)])
@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_worst_run_ends_on_one_screen(width: int, verdicts: tuple[Verdict, ...]):
    told = summary.render(worst_run(verdicts), Counter({f"reason {n}": n + 1 for n in range(38)}), 1.0, width)
    assert rows(told, width) + AROUND <= MOST_LINES
    lines = told.splitlines()
    assert all(len(line) <= width for line in lines if LONG_ID not in line)
    assert "for other reasons" in told and "others, which verify.md has" in told
    for verdict in verdicts:
        assert f"40 {verdict}" in " ".join(told.replace("│", " ").split())


def test_two_wrong_cases_are_shown_and_the_others_counted():
    lines = summary.render(worst_run(), Counter(), 1.0, 400).splitlines()
    assert [line.split()[1] for line in lines if LONG_ID in line] == [f"{LONG_ID}MISMATCH{n}" for n in (0, 1)]
    assert "78        others, which verify.md has" in lines
    assert "      38  for other reasons" in lines


def test_inputs_that_no_case_compared_are_named():
    """A subject that takes few flags may miss all cases that have NaN."""
    found = [
        Result(f"toy/default/16x16/{name}/eager", "toy", verdict, "r", input=name)
        for name, verdict in [
            ("normal", Verdict.PASS),
            ("specials_nan", Verdict.EXCLUDED),
            ("ties", Verdict.EXCLUDED),
            ("ties", Verdict.PASS),
            ("huge", Verdict.EXCLUDED),
        ]
    ]
    told = summary.render(found, Counter(), 1.0, 100).splitlines()
    assert "no compared case has the input huge, specials_nan" in told
    assert not any("no compared" in line for line in summary.render(found[:1], Counter(), 1.0, 100).splitlines())


@pytest.mark.parametrize(
    ("story", "said"),
    [("MISMATCH  x\nfield     y\ncause     nibble swap: two\n", "nibble swap: two"), ("MISMATCH  x", "0 of a long")],
)
def test_the_screen_names_the_cause_of_the_first(story: str, said: str):
    first = Result("a/first", "a", Verdict.MISMATCH, "0 of a long reason" * 9, story)
    lines = summary.render([*worst_run(), first], Counter(), 1.0, 300).splitlines()
    assert [line for line in lines if line.startswith("the first: ")][0].startswith(f"the first: {said}")


def test_the_order_of_cases_does_not_show():
    run, again = worst_run(), worst_run()
    random.Random(0).shuffle(again)
    assert summary.render(run, Counter(), 1.0, 100) == summary.render(again, Counter(), 1.0, 100)


def test_a_run_whose_cases_all_fail_prints_its_ends_on_one_screen(run: Runs):
    run.verdicts(toy="MISMATCH")
    result = run("suites", "--tb=no")
    assert result.ret == Exit.BYTES_DIFFER
    start = next(number for number, line in enumerate(result.outlines) if " verdicts " in line)
    assert len(result.outlines[start:]) <= MOST_LINES
    assert sum("toy/" in line and "/16x" in line for line in result.outlines[start:]) <= 3
    assert any(f"{SMOKE} MISMATCH" in line for line in result.outlines)


def test_pytest_lists_failures_where_it_is_asked_to(run: Runs):
    run.verdicts(toy="MISMATCH")
    assert sum(line.startswith("FAILED ") for line in run("suites", "-rf").outlines) == SMOKE
