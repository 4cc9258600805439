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
        Result(f"{LONG_ID}{verdict}{number}", "per_token", verdict, f"{'r' * number} of a long reason" * 20)
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


def test_cases_that_fail_alike_are_one_row():
    reasons = (
        "race at a.cuh:12: byte 4; k<bf16>, block (1, 0, 0)",
        "race at a.cuh:13: byte 4; k<bf16>, block (1, 0, 0)",
    )
    found = [
        Result(f"toy/default/{number}x16/normal/eager", "toy", Verdict.NONDETERMINISTIC, reason)
        for number, reason in enumerate(
            [reasons[0], reasons[0].replace("4;", "800;").replace("bf16", "f32"), reasons[1]]
        )
    ]
    lines = summary.render(found, Counter(), 1.0, 200).splitlines()
    rows = [line.split(None, 1)[1] for line in lines if line.startswith("NONDETERMINISTIC")]
    assert rows == ["toy/default/0x16/normal/eager  and 1 alike", "toy/default/2x16/normal/eager"]


def test_a_subject_counts_the_kernels_that_it_is_known_to_launch():
    def told(launched: tuple[str, ...], verdict: Verdict = Verdict.PASS) -> str:
        found = Result("toy/default/16x16/normal/eager", "toy", verdict, "r", subject="mine (1)", launched=launched)
        return next((line for line in summary.render([found], Counter(), 1.0, 90).splitlines() if "kernel" in line), "")

    assert told(("host k 0a", "host k 0b")).split()[-2] == "2"
    assert told(()) == "" and told((), Verdict.MISMATCH) == ""


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
    [("MISMATCH  x\nfield     y\ncause     nibble swap: two\n", "nibble swap: two"), ("MISMATCH  x", "r of a long")],
)
def test_the_screen_names_the_cause_of_the_first(story: str, said: str):
    first = Result("a/first", "a", Verdict.MISMATCH, "r of a long reason" * 9, story)
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


@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_one_screen_for_cases_that_fail_alike_and_the_ids_of_all(run: Runs, workers: str):
    run.verdicts(normal="UNWRITTEN", toy="MISMATCH")
    result = run("suites", "-n", workers, fork=workers != "0")
    heads = [line for line in result.outlines if line.startswith("_____")]
    found = Counter(record["verdict"] for record in run.journal())
    assert len(heads) == len(found) == 2
    assert all(f"{count - 1:,} more fail alike:" in result.outlines for count in found.values())
    assert all(any(record["case_id"] in line for line in result.outlines) for record in run.journal())
    result.assert_outcomes(failed=SMOKE)


def test_pytest_lists_failures_where_it_is_asked_to(run: Runs):
    run.verdicts(toy="MISMATCH")
    assert sum(line.startswith("FAILED ") for line in run("suites", "-rf").outlines) == SMOKE
