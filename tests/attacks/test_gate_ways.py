"""Ways to a green gate by a run that says nothing of the tree, or by a limit that nothing reaches."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs_on_disk import GPU, IDS, about, passed, sources, write_run
from timed_runs import GATE_HEADER, HEADER, gate_line
from ways import Command, must_be_red, still_green_if

from harness.bench import statistics
from harness.files import ROOT
from harness.gate import revision_run
from harness.gate.decision import Samples, decide
from harness.gate.report import from_lines
from harness.gate.revision_bench import Comparison, RevisionBench
from harness.gate.second_process import recurring
from harness.records.claims import UNCHANGED
from harness.records.run_folder import commit, read_bench_or_gate
from harness.suite.suite import find_case
from harness.verdict import Result, Verdict

try:
    from harness.gate.decision import samples_of
except ImportError:  # before one rule book judged both gates
    try:
        from harness.gate.times import judge_times
    except ImportError:  # before times had a module of their own
        from harness.gate.against_baseline import _judge_times as judge_times
else:

    def judge_times(case_id: str, now: dict, then: dict, medians: tuple[float, float], effect: float):
        return decide(samples_of(now), None, samples_of(then), effect, case_id)


CASE = IDS[0]
FAST, SLOW = ([base + i / 10 for i in range(12)] for base in (20.0, 40.0))
THEN = [20.0 + (7 * i % 12) / 10 + (i % 5) / 25 for i in range(12)]  # of a measurement of its own


@pytest.fixture
def gate(tmp_path: Path, command: Command):
    """Judges a run by a baseline, of as much time unless something else is asked for."""

    def header(**changes: Any) -> dict[str, Any]:
        return HEADER | {"sources": sources()[:16], "commit": commit(), "machine": GPU} | changes

    def gate(
        *options: str,
        times: list[float] = FAST,
        base: list[float] = THEN,
        then: str = "2025-01-01T00:00:00Z",
        code: str = "c",
        **changes: Any,
    ):
        baseline, stored = tmp_path / "bench.jsonl", passed(CASE, base)
        stored["times"]["code"] = code  # of the baseline; "c" is the run's
        baseline.write_text("".join(json.dumps(line) + "\n" for line in (header() | {"date": then}, stored)))
        first = about([CASE], [CASE], **{"timed": True, "device": GPU} | changes.pop("first", {}))
        run = write_run(tmp_path / "run", first, passed(CASE, times), header=header(**changes))
        return command("gate", run, "--baseline", baseline, *options)

    return gate


def test_the_gate_that_is_deceived_here_is_green_by_itself(gate):
    """No way to green: as much time of the same tree is SAME."""
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


def reported(tmp_path: Path, command: Command, line: dict[str, Any], /, **header: Any):
    """What `harness report` makes of a gate of this line."""
    file = tmp_path / "gate.jsonl"
    lines = (GATE_HEADER | header, line, {"end": HEADER["roofline"][1]})
    file.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return command("report", file)


def test_a_verdict_that_its_interval_does_not_give(tmp_path: Path, command: Command):
    """Call a slower case SAME in the file of a gate, and publish its page."""
    line = gate_line(CASE, "SLOWER", 1.5) | {"verdict": "SAME"}
    must_be_red(reported(tmp_path, command, line), "is SAME, and its changes are SLOWER")


@pytest.mark.parametrize(
    "changes",
    [{"head_us": 1.0}, {"time": [1.0, 0.999, 1.001]}, {"samples_us": {}}, {"verified": "MISMATCH"}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_comparison_that_is_not_its_samples(tmp_path: Path, command: Command, changes: dict[str, Any]):
    """Write another median, change or verification beside the samples of a gate, and publish its page."""
    line = gate_line(CASE, "SLOWER", 1.5) | changes
    must_be_red(reported(tmp_path, command, line), "is not what a run writes: line 2")


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
        ({"verdict": "INVALID"}, "line 2: an INVALID has samples, and no times"),
        ({"verdict": "AMBIGUOUS", "recurs": False, "reason": "noise"}, "its reason does not say what another found"),
        ({"dropped": 3}, "has dropped 3 rounds, and by its clocks 0 are to be dropped"),
        ({"verdict": "SAME"} | UNTIMED, "line 2: a timed case that is SAME needs medians"),
        ({"verdict": "AMBIGUOUS"} | UNTIMED, "has the head_us None, and that of its samples is "),
        ({"verdict": "NO_BASELINE"} | UNTIMED, "line 2: a case that is NO_BASELINE has no samples"),
        ({"verdict": "SAME"} | WITHOUT_SAMPLES, "line 2: a verified case that is SAME needs samples"),
        ({"verdict": "AMBIGUOUS"} | WITHOUT_SAMPLES, "a verified case that is AMBIGUOUS needs samples"),
        ({"verdict": "SAME", "verified": None}, "by its machine code alone, and has no samples"),
        ({"verdict": "SAME", "verified": None} | WITHOUT_SAMPLES, "was not timed, has no memory, and says so"),
        ({"verdict": "SAME", "verified": None} | WITHOUT_SAMPLES | NO_MEMORY, "says so: machine code, grids and lib"),
        ({"mhz": [1980.0]}, "line 2: there are 30 rounds, and the clocks of 1"),
    ],
)  # fmt: skip
def test_a_slower_case_that_is_edited_into_another(
    tmp_path: Path, command: Command, changes: dict[str, Any], sentence: str
):
    """Edit the verdict of a slower case and some of what it follows from, and publish its page."""
    must_be_red(reported(tmp_path, command, gate_line(CASE, "SLOWER", 1.5) | changes), sentence)


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
    tmp_path: Path, command: Command, option: str, changes: dict[str, Any], sentence: str
):
    """Claim unchanged machine code of a gate that times it all, or a second process of one that asks none."""
    line = gate_line(CASE, "SLOWER", 1.5) | changes
    assert reported(tmp_path, command, line).returncode == 0
    must_be_red(reported(tmp_path, command, line, command=f"harness gate --base main {option}"), sentence)


def test_what_a_gate_writes_is_read_as_what_it_decided(tmp_path: Path, command: Command):
    """No way to green: samples at every edge of a verdict, unchanged machine code, and what was too short to judge."""
    rng = np.random.default_rng(0)
    case = find_case("swizzle/default/128x256/normal/graph")
    verified = Result(case.id, case.recipe, Verdict.PASS)
    bench = RevisionBench(None, None, None)
    bench._same[case.id] = True
    found = [bench.compare(case)]
    for us in (0.7, 300.0):
        for change in (1.0, 1.01, 1.013):
            clocks = list(rng.choice([1980.0, 1782.04, 1000.0, 0.0], 30, p=(0.5, 0.3, 0.15, 0.05)))
            sides = {
                name: Samples(list(us * factor * rng.normal(1, 0.001, 30)), clocks)
                for name, factor in (("head", change), ("again", change), ("base", 1.0))
            }
            found.append(Comparison(case, decide(*sides.values()), verified, sides, 4, 8, 1000))
    assert {*(one.judgement.verdict for one in found)} >= {"SAME", "AMBIGUOUS", "SLOWER"}
    for one in found:
        line = json.loads(json.dumps(revision_run.record(one)))
        done = reported(tmp_path, command, line)
        assert done.returncode == 0, done.stderr
        assert not one.samples or Samples(line["samples_us"]["head"], line["mhz"]) == one.samples["head"].written


THREE = tuple(f"swizzle/default/{shape}/normal/graph" for shape in ("128x256", "128x512", "256x256"))
LINES = [gate_line(case_id, "SAME") for case_id in THREE]
END = {"end": HEADER["roofline"][1]}
NAMED = {"command": "harness gate --base main " + " ".join(f"--case {case_id}" for case_id in THREE)}


def page(tmp_path: Path, command: Command, /, *lines: dict[str, Any], cut: int = 0, **header: Any):
    """What `harness report` makes of these lines behind a header, the last so many bytes cut off, and the title."""
    file, made = tmp_path / "gate.jsonl", tmp_path / "gate.md"
    made.unlink(missing_ok=True)
    text = "".join(json.dumps(each) + "\n" for each in (GATE_HEADER | header, *lines))
    file.write_text(text[: len(text) - cut])
    done = command("report", file)
    return done, made.read_text().partition("\n")[0] if made.exists() else ""


@pytest.mark.parametrize("header", [{}, NAMED, {"chosen": 3}], ids=["", "ids", "number"])
def test_a_gate_that_was_killed_is_not_clean(tmp_path: Path, command: Command, header: dict[str, Any]):
    """Kill a gate before its slow cases, in the middle of a line, too, and publish the page of the rest."""
    of = " of 3" if header else ""
    for lines, cut, count in (
        ([*LINES, END], 0, None), (LINES[:2], 0, 2), ([], 0, 0), (LINES[:2], 20, 1), ([*LINES, END], 9, 3),
    ):  # fmt: skip
        done, title = page(tmp_path, command, *lines, cut=cut, **header)
        assert done.returncode == 0, done.stderr
        unfinished = f"unfinished, {count}{of} cases; exit 3, noisy"
        assert title == f"# Gate: {'exit 0, clean' if count is None else unfinished}"
    _, title = page(tmp_path, command, LINES[0], gate_line(THREE[1], "SLOWER", 1.5), **header)
    assert title == f"# Gate: unfinished, 2{of} cases; exit 2, slower"


OTHER_LINES = {
    "two ends": ([END, *LINES, END], {}, "line 2: a gate has one line 'end', its last, and more lines follow"),
    "lines behind the end": ([*LINES[:2], END, LINES[2]], {}, "line 4: a gate has one line 'end'"),
    "one is gone": ([*LINES[:2], END], {"chosen": 3}, "came to its end with 2 cases, and 3 were chosen"),
    "one that is named is gone": ([*LINES[:2], END], NAMED, "came to its end with 2 cases, and 3 were chosen"),
    "one too many": ([*LINES, END], {"chosen": 2}, "the gate has 3 cases, and 2 were chosen"),
    "one exchanged": ([*LINES[:2], gate_line(CASE, "SAME"), END], NAMED, "is not among the cases that the gate's"),
    "of another recipe": ([*LINES, END], {"command": "harness gate --base main --recipe gemm"}, "is not among the"),
    "fewer chosen than named": (LINES[:2], NAMED | {"chosen": 2}, "2 cases chosen, and its command names 3"),
    "none chosen": ([*LINES, END], {"chosen": 0}, "chosen: Input should be greater than or equal to 1"),
    "a number left out": ([*LINES, END], {"sources": sources()[:16]}, "does not say how many cases were chosen"),
    "no roofline": ([*LINES, END], {"roofline": []}, "line 1: roofline: List should have at least 1 item"),
    "a case that there is not": (
        [LINES[0] | {"case_id": "swizzle/nonsense=3/1x1/normal/graph"}, END], {}, "swizzle has no flag 'nonsense'",
    ),
    "a case under another name": (
        [LINES[0] | {"case_id": "swizzle/direction=rowwise/128x256/normal/graph"}, END], {}, "that case is called swiz",
    ),
    "no copies": ([LINES[0] | {"copies": 0}, END], {}, "there are 0 copies of 1000 bytes and 8 calls"),
    "no calls": ([LINES[0] | {"calls": 0}, END], {}, "there are 4 copies of 1000 bytes and 0 calls"),
    "no bytes": ([LINES[0] | {"bytes": 0}, END], {}, "there are 4 copies of 0 bytes"),
    "a petabyte": ([LINES[0] | {"bytes": 10**15}, END], {}, "more than the memory of any GPU"),
    "other memory": (
        [*LINES, END], {"sources": sources()[:16], "chosen": 3}, "bytes is 1000, and a copy of its memory has 4096",
    ),
    "no time": (
        [gate_line("swizzle/default/32768x8192/normal/graph", "SAME", us=1.0), END], {}, "us cannot be: 33,554,432",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "header", "sentence"), OTHER_LINES.values(), ids=OTHER_LINES)
def test_a_gate_of_other_cases_than_were_chosen(
    tmp_path: Path, command: Command, lines: list[dict[str, Any]], header: dict[str, Any], sentence: str
):
    """Thin the file of a gate, or write into it a case that was not chosen or times that it cannot have."""
    must_be_red(page(tmp_path, command, *lines, **header)[0], sentence)


def test_a_gate_whose_machine_became_another(tmp_path: Path, command: Command):
    """Write the roofline of another machine at the end of a gate; one of both sides in turns moves by 15 %, or more."""
    for gbps, title in (
        (3500.0, "exit 0, clean"),
        (100.0, "the copy roofline moved from 100 to 4,200 GB/s; exit 3, noisy"),
    ):
        assert page(tmp_path, command, *LINES, {"end": END["end"] | {"gbps": gbps}})[1] == f"# Gate: {title}"


@pytest.mark.parametrize("folder", ["clean", "planted"])
def test_the_gates_that_are_committed_are_read(tmp_path: Path, folder: str):
    """No way to green: they were decided by samples that were rounded since."""
    gated = from_lines(*read_bench_or_gate(ROOT / "results" / "gate" / folder / "gate.jsonl"))
    assert not gated.flaw
    assert {each.verdict for each in gated.judgements} == {"SAME" if folder == "clean" else "SLOWER"}


@pytest.mark.parametrize("effect", [1e9, 0.6])
def test_a_gate_whose_header_has_an_effect_without_bound(tmp_path: Path, command: Command, effect: float):
    """Write a huge effect into the header of a gate, under which every case is the SAME."""
    file = tmp_path / "gate.jsonl"
    file.write_text(json.dumps(GATE_HEADER | {"effect": effect}) + "\n")
    must_be_red(command("report", file), "effect")


DISGUISED = {
    "slower": lambda us: us * 1.01,
    "twice as slow": lambda us: us * 2.0,
    "shifted": lambda us: us + 3.0,
    "reordered": lambda us: us[::-1],
    "scaled, shifted, reordered and rounded": lambda us: np.round(np.roll(us * 1.005 + 1, 5), 2),
}


@pytest.mark.parametrize("disguise", DISGUISED.values(), ids=DISGUISED)
def test_a_baseline_made_of_the_run_s_own_samples(gate, disguise):
    """Make a baseline of the run's own samples, so that it is as slow as the run, or slower."""
    run = 200 + np.random.default_rng(1).gamma(1.5, 5.0, 30).round(3)
    done = gate(times=run.tolist(), base=np.round(disguise(run), 3).tolist(), code="another")
    must_be_red(done, "these are the baseline's own times, scaled, shifted")


def test_measurements_of_a_coarse_clock_are_not_taken_for_one(gate):
    """No way to green: two measurements that share most of their values are two all the same."""
    for seed in range(5):
        first, other = (20 + np.random.default_rng([seed, n]).binomial(9, 0.5, 30) * 0.032 for n in range(2))
        if not seed:
            assert gate(times=first.round(3).tolist(), base=other.round(3).tolist()).returncode == 0
        assert not statistics.same_origin(first, other)


TAILS = {
    "now and then": lambda rng: rng.random(60) < 0.15,
    "at the end": lambda rng: np.arange(60) >= 51,
    "every sixth": lambda rng: np.arange(60) % 6 == 5,
    "three times as long": lambda rng: 6 * (rng.random(60) < 0.15),
}


@pytest.mark.parametrize("slow", TAILS.values(), ids=TAILS)
def test_a_kernel_that_is_slow_in_some_of_its_rounds(slow):
    """Slow a kernel in one round of six or seven: its median and its slowest fifth do not move."""
    found: Counter[str] = Counter()
    for seed in range(100):
        rng = np.random.default_rng(seed)
        head, again, base = (50 * (1 + 0.002 * rng.gamma(1.5, size=30)) for _ in range(3))
        longer = 1 + 0.32 * slow(rng)
        mhz = [1980.0] * 30
        sides = Samples(head * longer[::2], mhz), Samples(again * longer[1::2], mhz), Samples(base, mhz)
        found[decide(*sides).verdict] += 1
    still_green_if(found["SAME"] > 2, f"{found['SAME']} of 100 are SAME")
    assert {*found} <= {"SAME", "AMBIGUOUS"}  # more rounds are taken, and none is accused


@pytest.mark.parametrize("rounds", [10, 15, 20, 26, 30, 50])
def test_a_tail_in_few_rounds_against_a_stored_baseline(rounds: int):
    """Slow a kernel in 15 % of its rounds, and take so few that two processes may hold none that is slow."""
    rng, missed = np.random.default_rng(0), 0

    def times(code: str, tail: float = 0.0) -> dict[str, Any]:
        us = 100 * (1 + 0.002 * rng.gamma(1.5, size=rounds)) * (1 + 0.3 * (rng.random(rounds) < tail))
        clock = {"mhz": 1980.0, "samples_mhz": [1980.0] * rounds}
        return {"samples_us": us, "median_us": float(np.median(us)), "roofline_gbps": 4200.0, "code": code} | clock

    for _ in range(100):
        then = times("then")
        first, second = (
            judge_times(CASE, now, then, (now["median_us"], then["median_us"]), 0.03)
            for now in (times("now", 0.15), times("now", 0.15))
        )
        missed += recurring([first], [second])[0].verdict == "SAME"
    still_green_if(missed > 2, f"{missed} of 100 are SAME")


def test_a_tail_that_the_base_has_too_is_the_same():
    """No way to green: a host that is busy now and then slows both sides."""
    same = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        sides = [50 * (1 + 0.002 * rng.gamma(1.5, size=120)) * (1 + 0.4 * (rng.random(120) < 0.1)) for _ in range(3)]
        same += decide(*(Samples(us, [1980.0] * 120) for us in sides)).verdict == "SAME"
    assert same >= 95


SPEEDS = {
    "half": lambda rng: 0.5,
    "a third": lambda rng: 0.33,
    "most": lambda rng: 0.7,
    "any share": lambda rng: rng.random(),
    "a whole process": lambda rng: rng.integers(2),
}


@pytest.mark.sweep
@pytest.mark.parametrize("share", SPEEDS.values(), ids=SPEEDS)
def test_a_clock_of_two_speeds_that_nobody_recorded_accuses_no_kernel(share):
    """No way to green, nor to red: a clock has two speeds, which no samples_mhz show, and the median is of either."""
    from harness.gate.second_process import APART

    rng = np.random.default_rng(0)

    def times(factor: float, rounds: int) -> dict[str, Any]:
        us = 100 * factor * (1 + APART * rng.normal()) * (1 + 0.002 * rng.gamma(1.5, size=rounds))
        us *= 1 + 0.1 * (rng.random(rounds) < share(rng))
        unread = {"samples_mhz": [0.0] * rounds} if rounds > 20 else {}
        return {
            "samples_us": us,
            "median_us": float(np.median(us)),
            "roofline_gbps": 4200.0,
            "code": f"{factor}",
        } | unread

    def verdicts(factor: float, rounds: int) -> Counter[str]:
        """The verdicts of 100 gates after the second process."""
        found: Counter[str] = Counter()
        for _ in range(100):
            then = times(1.0, rounds) | {"code": "then"}
            first, second = (
                judge_times(CASE, now, then, (now["median_us"], then["median_us"]), 0.03)
                for now in (times(factor, rounds), times(factor, rounds))
            )
            found[recurring([first], [second])[0].verdict] += 1
        return found

    for rounds in (10, 20, 50):
        clean = verdicts(1.0, rounds)
        assert clean["SLOWER"] + clean["FASTER"] <= 2
        assert verdicts(1.5, rounds)["SLOWER"] >= 95
