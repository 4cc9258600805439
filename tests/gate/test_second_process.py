"""SLOWER and FASTER count if a second process finds them, too; without it a clean gate would be red most nights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import timed_runs
from gate_runs import CASE, OTHER, Folder, changed, record, without_time
from processes import lives, wait_until
from timed_runs import GATE_HEADER, HEADER, gate_line, gate_lines

from harness.cli import main
from harness.contract.case import Case
from harness.errors import Exit, UsageError
from harness.files import ROOT
from harness.gate import revision_run, second_process
from harness.gate.against_baseline import judge
from harness.gate.decision import Samples, decide
from harness.gate.report import from_lines
from harness.gate.revision_bench import Comparison
from harness.gate.second_process import recurring, run_harness
from harness.ground.command_lines import Asked
from harness.records.run_folder import RunFiles, read_bench_or_gate
from harness.suite.suite import find_case
from harness.verdict import Judgement, Performance, Result, Verdict

CASES = [find_case(f"swizzle/default/{rows}x256/normal/graph") for rows in (128, 256, 384)]
TIMED = "per_tensor/default/{0}28x2048/normal/graph"
ROUNDS = 30


def samples(rng: np.random.Generator, us: float) -> Samples:
    return Samples(list(us * rng.normal(1, 0.002, ROUNDS)), [1980.0] * ROUNDS)


def compared(rng: np.random.Generator, case: Case, change: float) -> Comparison:
    us = {"head": 100.0 * change, "again": 100.0 * change, "base": 100.0}
    series = {name: samples(rng, mean) for name, mean in us.items()}
    return Comparison(case, decide(*series.values()), Result(case.id, case.recipe, Verdict.PASS), series, 4, 8, 1000)


@pytest.fixture(params=["SLOWER", "FASTER"])
def change(request) -> str:
    return request.param


@pytest.fixture
def written(tmp_path: Path, change: str) -> tuple[Path, list[Comparison]]:
    changes = {"SLOWER": (1.0, 1.05, 1.06), "FASTER": (1.0, 0.95, 0.94)}[change]
    rng = np.random.default_rng(1)
    done = [compared(rng, case, change) for case, change in zip(CASES, changes, strict=True)]
    assert [one.judgement.verdict for one in done] == ["SAME", change, change]
    path = tmp_path / "gate.jsonl"
    lines = [GATE_HEADER, *map(revision_run.record, done), gate_lines()[-1]]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path, done


def line_of(case, verdict: str, verified: str = "PASS", reason: str = "") -> dict:
    return {"case_id": case.id, "verdict": verdict, "verified": verified, "reason": reason}


def test_what_changed_counts_if_it_recurs(written, change: str):
    path, done = written
    second = {CASES[1].id: line_of(CASES[1], change), CASES[2].id: line_of(CASES[2], "SAME")}
    found = second_process.recurring_comparisons(done, second)
    assert [one.judgement.verdict for one in found] == ["SAME", change, "AMBIGUOUS"]
    assert found[1].judgement.reason.endswith("; so it is in a second process")
    assert found[2].judgement.reason.startswith(f"{change} in one process, and a second found SAME: time ")
    revision_run.rewrite(path, found)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["verdict"], line["recurs"]) for line in lines[1:-1]] == [
        ("SAME", None), (change, True), ("AMBIGUOUS", False),
    ]  # fmt: skip
    assert lines[0] == GATE_HEADER and "end" in lines[-1]
    assert [each.verdict for each in from_lines(*read_bench_or_gate(path)).judgements] == ["SAME", change, "AMBIGUOUS"]


def test_a_second_process_that_does_not_come_to_a_case_proves_nothing(written):
    found = second_process.recurring_comparisons(written[1], {})
    assert [one.judgement.verdict for one in found] == ["SAME", "AMBIGUOUS", "AMBIGUOUS"]
    assert "and no second has timed it" in found[1].judgement.reason


def test_a_kernel_that_is_wrong_in_the_second_process_is_wrong(written):
    path, done = written
    second = {CASES[1].id: line_of(CASES[1], "NOT_MEASURED", "MISMATCH", "MISMATCH: 3 bytes differ")}
    found = second_process.recurring_comparisons(done, second)
    assert found[1].verified.verdict is Verdict.MISMATCH
    assert found[1].judgement.reason == "in a second process: MISMATCH: 3 bytes differ"
    revision_run.rewrite(path, found)
    _, lines = read_bench_or_gate(path)
    assert [line.get("verified") for line in lines[:-1]] == ["PASS", "MISMATCH", "PASS"]


def test_the_opposite_of_a_second_process_is_no_recurrence(written, change: str):
    other = {"SLOWER": "FASTER", "FASTER": "SLOWER"}[change]
    found = second_process.recurring_comparisons(written[1], {case.id: line_of(case, other) for case in CASES})
    assert [one.judgement.verdict for one in found] == ["SAME", "AMBIGUOUS", "AMBIGUOUS"]
    assert f"{change} in one process, and a second found {other}" in found[1].judgement.reason


def test_a_report_demands_what_a_second_process_found(change: str):
    line = gate_line("per_tensor/default/1024x2048/normal/graph", change, 1.1 if change == "SLOWER" else 0.9)
    for recurs, verdict in ((False, change), (True, "AMBIGUOUS")):
        with pytest.raises(UsageError, match=f"is {verdict}, and its changes are"):
            from_lines(GATE_HEADER, [line | {"recurs": recurs, "verdict": verdict}])
    for recurs, verdict in ((False, "AMBIGUOUS"), (True, change), (None, change)):
        (judgement,) = from_lines(GATE_HEADER, [line | {"recurs": recurs, "verdict": verdict}]).judgements
        assert judgement.verdict == verdict


def test_the_second_process_is_the_same_gate_of_those_cases(monkeypatch, tmp_path: Path):
    ran = []

    def run(words, **_):
        ran.append(words)
        tmp_path.joinpath("gate.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in (GATE_HEADER, *gate_lines()))
        )
        return SimpleNamespace(returncode=2)

    monkeypatch.setattr(subprocess, "run", run)
    ids = [line["case_id"] for line in read_lines()]
    found = second_process.compare_again("main", 0.01, True, ids, tmp_path)
    assert (found[ids[0]]["verdict"], found[ids[3]]["verdict"]) == ("SLOWER", "SAME")
    (words,) = ran
    assert words[3:] == [
        "gate", str(tmp_path), "--once", "--base", "main", "--effect", "0.01", "--all",
        *(word for each in ids for word in ("--case", each)),
    ]  # fmt: skip
    second_process.require_new(tmp_path)
    with pytest.raises(UsageError, match="is there already, of another gate"):
        (tmp_path / "second_process").mkdir()
        tmp_path.joinpath("gate.jsonl").rename(tmp_path / "second_process/gate.jsonl")
        second_process.require_new(tmp_path)


@pytest.mark.parametrize(("recurs", "once"), [(True, False), (False, False), (False, True)])
def test_the_command_asks_a_second_process(written, change: str, monkeypatch, capsys, recurs: bool, once: bool):
    path, done = written
    again = change if recurs else "SAME"
    code = Performance(change).exit_code if recurs or once else Exit.NOISY
    asked = []
    monkeypatch.setattr(revision_run, "run", lambda *_: (path, done))

    def compare(base, effect, everything, ids, folder):
        asked.append((base, effect, everything, list(ids), folder))
        return {case.id: line_of(case, again) for case in CASES[1:]}

    monkeypatch.setattr(second_process, "compare_again", compare)
    with pytest.raises(SystemExit) as ended:
        main(["gate", "--base", "main", *(["--once"] if once else []), "--case", CASES[0].id])
    assert ended.value.code == code
    ids = [case.id for case in CASES[1:]]
    commit = GATE_HEADER["base_commit"]  # not `main`, which may have moved
    assert asked == ([] if once else [(commit, 0.01, False, ids, path.parent / "second_process")])
    told = [line["recurs"] for line in read_bench_or_gate(path)[1] if "case_id" in line]
    assert told == [None, *([None] * 2 if once else [recurs] * 2)]


@pytest.mark.parametrize(
    ("first", "again", "second", "found"),
    [
        ("INVALID", True, ["SAME"], "SAME"),
        ("INVALID", False, ["SAME"], "INVALID"),  # another process would tell nothing more
        ("AMBIGUOUS", True, ["SLOWER"], "AMBIGUOUS"),
        ("AMBIGUOUS", True, ["NOT_MEASURED"], "AMBIGUOUS"),
        ("INVALID", True, ["SLOWER", "SAME"], "AMBIGUOUS"),
        ("INVALID", True, ["SAME", "SLOWER"], "AMBIGUOUS"),
        ("INVALID", True, ["SAME", "SAME"], "SAME"),
        ("SLOWER", False, ["SAME", "SLOWER"], "AMBIGUOUS"),
        ("SLOWER", False, ["SLOWER", "SLOWER"], "SLOWER"),
    ],
)
def test_what_several_processes_find(first: str, again: bool, second: list[str], found: str):
    others = [Judgement("x", Performance(verdict), f"number {number}") for number, verdict in enumerate(second)]
    (judgement,) = recurring([Judgement("x", Performance(first), "why", ask_again=again)], others)
    assert judgement.verdict == found


def test_two_speeds_of_a_clock_are_in_the_reason():
    rng = np.random.default_rng(5)
    two = [1980.0] * 15 + [1830.0] * 15
    head, again, base = (Samples(samples(rng, 100.0).us, two) for _ in range(3))
    assert "the clock had two speeds, 1,830 MHz in 15 rounds and 1,980 MHz in 15" in decide(head, again, base).reason


def read_lines() -> list[dict]:
    return [line for line in gate_lines() if "case_id" in line]


# A gate against a baseline, simulated


def in_a_process(rng: np.random.Generator, us: float = 100.0, code: str = "head") -> list[dict]:
    """The records of 40 cases as a process of its own times them, each off by 1 % in all of its rounds."""
    return [
        timed_runs.record(TIMED.format(number), us * rng.normal(1, 0.01), seed=int(rng.integers(2**31)), code=code)
        for number in range(1, 41)
    ]


def judged(run: list[dict], stored: list[dict]) -> list[Judgement]:
    return judge(RunFiles(Path("run"), run, HEADER), HEADER | {"date": "2025-12-31T00:00:00Z"}, stored)


def red(judgements: list[Judgement]) -> bool:
    return any(each.verdict is Performance.SLOWER for each in judgements)


@pytest.mark.slow
def test_a_clean_gate_under_noise_between_processes_is_seldom_red():
    rng, gates = np.random.default_rng(2), 100
    alone = both = 0
    for _ in range(gates):
        stored = in_a_process(rng, code="base")
        first = judged(in_a_process(rng), stored)
        alone += red(first)
        both += red(first) and red(recurring(first, judged(in_a_process(rng), stored)))
    # 58 and 15 of 100; what is left is the baseline's own process, which both are compared with.
    assert 0.45 * gates < alone < 0.7 * gates
    assert both < 0.2 * gates


@pytest.mark.parametrize(("us", "verdict"), [(110.0, Performance.SLOWER), (90.0, Performance.FASTER)])
def test_a_changed_kernel_is_found_by_both(us: float, verdict: Performance):
    rng = np.random.default_rng(3)
    stored, first, second = in_a_process(rng, code="base"), in_a_process(rng, us), in_a_process(rng, us)
    found = recurring(judged(first, stored), judged(second, stored))
    assert {each.verdict for each in found} == {verdict}
    assert all(each.reason.endswith("; so it is in a second process") for each in found)


def test_without_a_second_process_a_slower_is_ambiguous():
    rng = np.random.default_rng(4)
    found = recurring(judged(in_a_process(rng, 120.0), in_a_process(rng, code="base")), [])
    assert {each.verdict for each in found} == {Performance.AMBIGUOUS}
    assert found[0].reason.startswith("SLOWER in one process, and no second has timed it: time +")


def only(us: float, code: str = "head", **times) -> Judgement:
    """The judgement on one case that takes `us`, where the baseline has 100. times: what else differs in this run"""
    record = timed_runs.record(TIMED.format(1), us, seed=1, code=code)
    record["times"] |= times
    (found,) = judged([record], [timed_runs.record(TIMED.format(1), 100.0, code="base")])
    return found


WAITED = {"exposed": 30}  # of 30 rounds
DOUBTED = {"us": 108.0, "code": "base"}  # the machine code of the baseline


@pytest.mark.parametrize(
    ("first", "second", "verdict", "said"),
    [
        ({"us": 100.0} | WAITED, {"us": 100.0}, "SAME", "in a second process: time "),
        (DOUBTED, {"us": 100.0, "code": "base"}, "SAME", "in a second process: machine code and grids"),
        ({"us": 100.0} | WAITED, {"us": 110.0}, "AMBIGUOUS", "SLOWER in a second process alone: time +"),
        ({"us": 100.0} | WAITED, {"us": 90.0}, "AMBIGUOUS", "FASTER in a second process alone: time -"),
        ({"us": 100.0} | WAITED, {"us": 100.0} | WAITED, "INVALID", "in a second process: in this run the GPU waited"),
        (DOUBTED, DOUBTED, "AMBIGUOUS", "in a second process: changed, yet machine code and grids"),
    ],
)
def test_what_one_process_could_not_tell_a_second_may(first: dict, second: dict, verdict: str, said: str):
    alone = only(**first)
    assert second_process.to_ask([alone]) == [alone.case_id]
    (found,) = recurring([alone], [only(**second)])
    assert (found.verdict, found.reason.startswith(said)) == (verdict, True), found.reason
    assert f"the first process was {alone.verdict}, {alone.reason}" in found.reason
    assert recurring([alone], []) == [alone]


def test_what_no_process_can_tell_is_not_asked():
    short = [timed_runs.record(TIMED.format(1), 7.0, seed=seed, code=code) for seed, code in ((1, "head"), (2, "base"))]
    hidden = judged(short[:1], short[1:])
    assert [each.verdict for each in hidden] == [Performance.AMBIGUOUS]
    stored = timed_runs.record(TIMED.format(1), 100.0, code="base")
    stored["times"] |= WAITED
    of_the_baseline = judged([timed_runs.record(TIMED.format(1), 100.0)], [stored])
    assert [each.verdict for each in of_the_baseline] == [Performance.INVALID]
    assert second_process.to_ask([*hidden, *of_the_baseline]) == []


# How it is begun, and ends


def test_a_second_process_is_of_this_harness_and_its_exit_code_is_known():
    done = run_harness("list", "nope", cwd=ROOT, capture_output=True)
    assert (done.returncode, done.stdout) == (64, "")
    assert "nope" in done.stderr


def test_a_second_process_ends_with_a_gate_that_is_killed(tmp_path: Path):
    sleeper, number = tmp_path / "sleeper", tmp_path / "pid"
    sleeper.write_text(f"#!/bin/sh\necho $$ > {number}.new; mv {number}.new {number}; exec sleep 6000\n")
    sleeper.chmod(0o755)
    start = "from harness.gate.second_process import run_harness; run_harness()"
    program = f"import sys; sys.executable = {str(sleeper)!r}\n{start}"
    gate = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    wait_until(number.exists)
    gate.kill()
    gate.wait()
    wait_until(lambda: not lives(number.read_text().strip()))


# A gate of a run asks one


LATER = "2026-01-01T00:30:00Z"  # when the first process began


def in_a_second_process(folder: Folder, *records: dict, name: str = "second_process", **changes) -> None:
    second = Folder.__new__(Folder)
    second.run_dir = folder.run_dir / name
    second.run_dir.mkdir(exist_ok=True)
    second.made = 0
    second.holds(*records, header=changed(**{"date": "2026-01-01T01:00:00Z"} | changes))


@pytest.fixture
def slower(folder: Folder) -> Folder:
    """A run whose first case is slower than the baseline has it."""
    folder.saves(record(), record(OTHER))
    folder.holds(record(us=120.0, seed=1), record(OTHER), header=changed(date=LATER))
    return folder


@pytest.mark.parametrize(
    ("us", "code", "said"),
    [(118.0, Exit.SLOWER, "so it is in a second process"), (100.0, Exit.NOISY, "and a second found SAME")],
)
def test_a_slower_case_counts_if_a_second_process_finds_it(slower: Folder, us: float, code: Exit, said: str):
    in_a_second_process(slower, record(us=us, seed=1))
    found, text = slower.gate()
    assert (found, said in text) == (code, True)


def test_a_case_is_found_in_whichever_second_process_has_it(slower: Folder):
    in_a_second_process(slower, record(us=118.0, seed=1))
    in_a_second_process(slower, record(OTHER), name="second_process.2")
    assert slower.gate()[0] == Exit.SLOWER


def test_a_second_process_that_no_run_of_this_tree_writes_is_refused(slower: Folder):
    in_a_second_process(slower, record(us=118.0, seed=1) | {"bytes_compared": 1})
    assert slower.gate()[0] == Exit.USAGE


def test_wrong_bytes_of_the_second_process_count(slower: Folder):
    in_a_second_process(slower, without_time(verdict="MISMATCH", reason="bytes differ"))
    assert slower.gate()[0] == Exit.BYTES_DIFFER


def test_without_a_gpu_no_process_can_confirm(slower: Folder, monkeypatch):
    monkeypatch.setattr("harness.commands.gate.gpu_count", lambda: 0)
    code, text = slower.gate()
    assert code == Exit.NOISY and "SLOWER in one process, and no second has timed it" in text


def test_a_second_process_that_was_stopped_is_refused_with_what_to_do(slower: Folder):
    """Else it would stop every later gate of this run, and nothing would say how to go on."""
    in_a_second_process(slower, record(us=118.0, seed=1))
    journal = slower.run_dir / "second_process" / "journal.jsonl"
    journal.write_text(journal.read_text().replace('"selected": 1', '"selected": 54'))
    code, text = slower.gate()
    assert code == Exit.USAGE
    assert "second_process holds 1 of its 54 cases; delete it, and gate again, or finish it by the command" in text


def test_a_copy_of_the_run_is_no_second_process(slower: Folder):
    in_a_second_process(slower, record(us=120.0, seed=1), date=LATER)
    assert "so it is a copy" in slower.refusal()


@pytest.mark.slow
@pytest.mark.parametrize("subject", ["", "mine:make"])
@pytest.mark.parametrize("there", [False, True])
def test_with_a_gpu_those_cases_are_timed_that_no_second_process_has(
    slower: Folder, monkeypatch, there: bool, subject: str
):
    ran = []
    monkeypatch.setattr("harness.commands.gate.gpu_count", lambda: 1)
    asked = Asked.here(subject).to_header()
    slower.holds(record(us=120.0, seed=1), record(OTHER), header=changed(date=LATER), asked=asked)
    named = ["--subject", subject] if subject else []

    def run(*words):
        ran.append(list(words))
        in_a_second_process(slower, record(us=120.0, seed=1), name=Path(words[words.index("--run-dir") + 1]).name)

    monkeypatch.setattr("harness.gate.second_process._harness", run)
    if there:
        in_a_second_process(slower, record(OTHER))
    assert slower.gate("--subject", "other:make") == (Exit.USAGE, _refusal(slower, subject))
    assert slower.gate(*named)[0] == Exit.SLOWER
    (words,) = ran
    folder = slower.run_dir / ("second_process.2" if there else "second_process")
    assert words == ["bench", "swizzle", "--run-dir", str(folder), *named, "--case", CASE]
    assert slower.gate()[0] == Exit.SLOWER
    assert len(ran) == 1  # the second is there


def _refusal(slower: Folder, subject: str) -> str:
    if not subject:
        return f"error: {slower.run_dir} was made without --subject; leave it out\n"
    return (
        f"error: {slower.run_dir} was made with --subject, and a file does not say what to execute: name here what "
        "it was made with, so that a second process times cases again, or ask none with --once\n"
    )
