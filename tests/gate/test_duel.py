"""A gate against a base revision, from its files to its verdicts; two sides that are made up stand in for a GPU's."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

import harness.gate.revision_bench
import harness.gate.revision_run
from harness.bench import cold_copies
from harness.bench.baseline import baseline_first
from harness.bench.cold_copies import LEAST_US, MOST_COPIES, Rotation, calls_for, copies_for
from harness.bench.timed import POISON
from harness.device.device import Outcome
from harness.errors import CompileError, DeviceUnavailable, Exit, LaunchError, UsageError
from harness.gate import checkout, interleave
from harness.gate.decision import Decision, Samples
from harness.gate.revision_bench import Comparison, RevisionBench
from harness.suite.suite import find_case
from harness.verdict import Performance, Result, Verdict, failures_of

CASE = find_case("swizzle/default/256x256/normal/graph")
MIB = 1 << 20


# Files of the other revision


@pytest.fixture
def repository(tmp_path):
    def git(*words):
        subprocess.run(
            ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e", *words],
            check=True,
            capture_output=True,
        )

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "nothing yet")
    for name in ("harness/kernels/toy.cu", "suites/toy.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("first\n")
    git("add", "-A")
    git("commit", "-q", "-m", "a kernel")
    (tmp_path / "harness/kernels/toy.cu").write_text("edited\n")
    return tmp_path


def test_a_revision_is_fetched_beside_and_nothing_is_changed(repository, tmp_path):
    fetched = checkout.fetch("HEAD", tmp_path / "beside", repository)
    assert (fetched.kernels / "toy.cu").read_text() == (fetched.suites / "toy.yaml").read_text() == "first\n"
    assert len(fetched.commit) == 40
    assert (repository / "harness/kernels/toy.cu").read_text() == "edited\n"


@pytest.mark.parametrize(
    "name, sentence",
    [
        ("nosuch", "--base nosuch names no commit of this repository"),
        ("HEAD~1", "--base HEAD~1 has no harness/kernels and no suites"),
        ("--output=x", "--base --output=x names no commit of this repository"),
    ],
)
def test_a_revision_that_cannot_be_a_base(repository, tmp_path, name, sentence):
    with pytest.raises(UsageError, match=sentence):
        checkout.fetch(name, tmp_path / "beside", repository)
    assert not (tmp_path / "beside").exists()


# Matches


class Graph:
    """Takes `us` a call, writes `byte` to the copies that `writes` names, and lets the clock know."""

    made = 0

    def __init__(self, side, calls):
        self.side, self.calls = side, calls
        Graph.made += 1

    def launch(self, stream):
        for number, memory in enumerate(self.side.outputs):
            if number in self.side.writes:
                memory[:] = self.side.byte


class Side:
    """In place of a Rotation over three copies."""

    def __init__(self, us=100.0, digest="a", byte=7, writes=(0, 1, 2)):
        self.us, self.byte, self.writes = us, byte, writes
        self.outputs = [np.zeros(4, np.uint8) for _ in range(3)]
        kernel = SimpleNamespace(code_digest=digest)
        self.programs = [
            SimpleNamespace(kernels=[kernel], grids=[(1,)], early=(), libraries=(), memory=SimpleNamespace(nbytes=8))
        ] * 3
        self.launches = [self]
        self.shares = None

    def share(self, other):
        self.shares = other

    def poison(self, byte):
        for memory in self.outputs:
            memory[:] = byte

    def outcomes(self, poison, order):
        return [(f"copy {n + 1} of 3", Outcome({"data": memory.copy()})) for n, memory in enumerate(self.outputs)]

    def coldness(self, clock, calls, us):
        return "cold"


@pytest.fixture
def meet(monkeypatch):
    """Comparison a head with a base: sides, or an error that preparing them raises."""

    def match(head, base, verdict=Verdict.PASS, again=False, noise=0.002, capture=None):
        waiting = [head, base]
        sides = {}

        def prepare(device, case, memories):
            side = waiting.pop(0)
            if isinstance(side, Exception):
                raise side
            return side

        def launches_of(device, case, target):
            side = device.side
            if isinstance(side, Exception):
                raise side
            return side.programs[0]

        def take(clock, graphs, rounds, order):
            rng = np.random.default_rng(len(sides))
            return {
                name: Samples(list(graph.graph.side.us * rng.normal(1, noise, rounds)), [1980.0] * rounds)
                for name, graph in graphs.items()
            }

        clock = SimpleNamespace(stream=nullcontext(SimpleNamespace(synchronize=lambda: None)))
        expected = SimpleNamespace(inputs={}, fields={"data": None}, values={"data": np.full(4, 7, np.uint8)})
        devices = [
            SimpleNamespace(
                side=side,
                targets=("sm_90a",),
                identity=lambda: {"l2_bytes": "50"},
                accepts=lambda ours, want: bool((ours == want).all()),
            )
            for side in waiting
        ]
        module = harness.gate.revision_bench
        result = Result(CASE.id, CASE.recipe, verdict, "" if verdict is Verdict.PASS else "wrong")
        monkeypatch.setattr(module, "verify", lambda *_: result)
        monkeypatch.setattr(module, "same_sources", lambda *_: False)
        monkeypatch.setattr(module, "launches_of", launches_of)
        monkeypatch.setattr(module, "expect", lambda *_: expected)
        monkeypatch.setattr(module, "Memory", SimpleNamespace(upload=lambda *_: None))
        monkeypatch.setattr(module, "memories", lambda *_: [None] * 3)
        monkeypatch.setattr(module, "Rotation", prepare)
        monkeypatch.setattr(module, "rotate", lambda clock, launches: (Graph(launches[0], 3), 3))
        monkeypatch.setattr(module, "capture", capture or (lambda clock, launches, calls: Graph(launches[0], calls)))
        monkeypatch.setattr(interleave, "take", take)
        return RevisionBench(*devices, clock, again=again).compare(CASE)

    return match


@pytest.mark.parametrize("us, verdict", [(100, Performance.SAME), (103, Performance.SLOWER), (97, Performance.FASTER)])
def test_a_change_of_the_code_is_timed(meet, us, verdict):
    found = meet(Side(us, "b"), Side(100))
    assert found.decision.verdict is verdict
    assert found.decision.head_us == pytest.approx(us, rel=0.005)
    assert set(found.samples) == {"head", "again", "base"}


def test_the_base_works_in_the_scratch_of_the_head(meet):
    """Elsewhere the same machine code was up to 3 % slower, in each process anew: nothing but the code may differ."""
    head, base = Side(), Side(digest="b")
    meet(head, base)
    assert (head.shares, base.shares) == (None, head)


@pytest.mark.parametrize("us, rounds", [(100, 30), (103, 120), (97, 120)])
def test_every_ten_rounds_have_graphs_of_their_own(meet, us, rounds):
    """One graph of the same launches may be 2 % slower than another, in all of its rounds."""
    before = Graph.made
    found = meet(Side(us, "b"), Side(100))
    assert Graph.made - before == 3 + 3 * rounds // interleave.BLOCK
    assert {len(samples.us) for samples in found.samples.values()} == {rounds}


def test_graphs_of_the_base_must_be_right_to_the_end(meet, monkeypatch):
    base = Side()

    def capture(clock, launches, calls):
        if launches[0] is base and Graph.made % 7 == 0:
            base.byte = 8
        return Graph(launches[0], calls)

    monkeypatch.setattr(Graph, "made", 1)
    found = meet(Side(digest="b"), base, capture=capture)
    assert found.decision.verdict is Performance.INVALID
    assert "after timing, the graph of the base wrote other bytes" in found.decision.reason


def test_the_same_machine_code_is_not_timed_unless_that_is_asked_for(meet):
    found = meet(Side(), Side())
    assert (found.decision.verdict, found.samples) == (Performance.SAME, {})
    assert "not timed" in found.decision.reason
    assert found.verified is None  # its bytes are the base's, too
    assert harness.gate.revision_run.record(found)["verified"] is None
    assert len(meet(Side(), Side(), again=True).samples["base"].us) >= 30


def test_only_what_is_ambiguous_gets_more_rounds(meet):
    assert len(meet(Side(100, "b"), Side(100)).samples["head"].us) == harness.gate.revision_bench.FEWEST
    noisy = meet(Side(101, "b"), Side(100), noise=0.2)
    assert noisy.decision.verdict is Performance.AMBIGUOUS
    assert len(noisy.samples["head"].us) == harness.gate.revision_bench.MOST


@pytest.mark.parametrize(
    "head, base, verdict, reason",
    [
        (Side(digest="b", writes=()), Side(), Performance.INVALID, "graph of the head wrote nothing to data of copy 1"),
        (
            Side(digest="b", writes=(0,)),
            Side(),
            Performance.INVALID,
            "graph of the head wrote nothing to data of copy 2",
        ),
        (
            Side(digest="b", byte=8),
            Side(),
            Performance.INVALID,
            "graph of the head wrote other bytes to data of copy 1",
        ),
        (Side(digest="b"), Side(byte=8), Performance.INVALID, "the timed graph of the base wrote other bytes"),
        (Side(), CompileError("toy.cu has no kernel 'x'"), Performance.NO_BASELINE, "toy.cu has no kernel 'x'"),
        (Side(), UsageError("there is no recipe 'swizzle'"), Performance.NO_BASELINE, "no recipe 'swizzle'"),
        (CompileError("bad"), Side(), Performance.NOT_MEASURED, "bad"),
    ],
)
def test_what_cannot_be_compared_has_a_state_of_its_own(meet, head, base, verdict, reason):
    decision = meet(head, base).decision
    assert decision.verdict is verdict
    assert reason in decision.reason


def test_wrong_bytes_are_never_timed(meet):
    found = meet(Side(digest="b"), Side(), verdict=Verdict.MISMATCH)
    assert (found.decision.verdict, found.samples) == (Performance.NOT_MEASURED, {})
    assert [record["case_id"] for record in failures_of([found.verified.to_record()])] == [CASE.id]


def test_a_launch_that_fails_costs_its_own_case_only(meet, monkeypatch):
    def fail(clock, launches):
        raise LaunchError("an illegal memory access")

    side = Side(digest="b")
    monkeypatch.setattr(Side, "poison", lambda self, byte: fail(None, None))
    assert meet(side, Side()).decision.verdict is Performance.INVALID


def test_a_record_is_one_line_that_holds_every_sample(meet):
    record = json.loads(json.dumps(harness.gate.revision_run.record(meet(Side(110, "b"), Side(100)))))
    assert (record["case_id"], record["verdict"]) == (CASE.id, "SLOWER")
    assert len(record["samples_us"]["head"]) == len(record["samples_us"]["base"]) == len(record["mhz"])
    assert record["time"][1] > 1.08


# A run


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """What a run asks of the processes that prepare cases, and of the bench; one case is the base's machine code."""
    module, found = harness.gate.revision_run, SimpleNamespace(prepared=[], begun=[], compared=[], closed=0)

    class Ahead:
        def __init__(self, cases, processes, opponents):
            assert not found.devices and not opponents  # forked before a GPU is in use
            found.prepared += [case.id for case in cases]

        def begin(self, target, done):
            found.begun.append((target, list(done)))

        def close(self):
            found.closed += 1

    class Device:
        targets = ("sm_90a",)

        def __init__(self, **_):
            found.devices += 1

        def identity(self):
            return {"gpu": "none"}

        def release(self):
            pass

    class Bench:
        def __init__(self, head, base, clock, effect, again):
            self.base, self.clock = base, clock

        def same(self, case):
            return case.id == SAME.id

        def compare(self, case):
            found.compared.append(case.id)
            return Comparison(case, Decision(Performance.SAME, "as before"), None)

    found.devices = 0
    monkeypatch.setattr(module, "Ahead", Ahead)
    monkeypatch.setattr(module, "CudaDevice", Device)
    monkeypatch.setattr(module, "RevisionBench", Bench)
    monkeypatch.setattr(module, "clock_of", lambda device: SimpleNamespace(method="none"))
    monkeypatch.setattr(module.roofline, "copy_gbps", lambda clock: 4000.0)
    monkeypatch.setattr(module, "compile_changed", lambda *_: [])
    revision = SimpleNamespace(kernels=tmp_path, suites=tmp_path, commit="0" * 40)
    monkeypatch.setattr(module.checkout, "fetch", lambda *_: revision)
    return found


SAME = find_case("per_token/default/48x80/normal/graph")
SMALLER = find_case("swizzle/default/128x64/normal/graph")


def test_cases_are_prepared_ahead_but_for_those_that_need_no_time(asked, tmp_path):
    path, done = harness.gate.revision_run.run("HEAD", [CASE, SAME, SMALLER], "gate", 0.01, folder=tmp_path / "new")
    assert asked.begun == [("sm_90a", [SAME.id])]
    assert set(asked.prepared) == {CASE.id, SAME.id, SMALLER.id}
    # In the order in which they are prepared, because what stands before a case is no longer expected to be asked for.
    assert asked.compared == [case.id for case in sorted([CASE, SAME, SMALLER], key=baseline_first)]
    assert [found.case.id for found in done] == asked.compared and asked.compared != [CASE.id, SAME.id, SMALLER.id]
    assert asked.closed == 1
    assert len(path.read_text().splitlines()) == 5


def test_without_a_gpu_nothing_is_left_running(asked, tmp_path, monkeypatch):
    def none(**_):
        raise DeviceUnavailable("there is no GPU")

    monkeypatch.setattr(harness.gate.revision_run, "CudaDevice", none)
    with pytest.raises(DeviceUnavailable):
        harness.gate.revision_run.run("HEAD", [CASE], "gate", 0.01, folder=tmp_path / "new")
    assert asked.closed == 1


# Copies that come from memory


@pytest.mark.parametrize(
    "nbytes, copies", [(1 << 30, 2), (60 * MIB, 4), (MIB, 181), (1, MOST_COPIES), (0, MOST_COPIES)]
)
def test_copies_fill_three_times_the_l2(nbytes, copies):
    assert copies_for(nbytes, 60 * MIB) == copies


@pytest.mark.parametrize("copies, us, calls", [(2, 1000.0, 2), (7, 10.0, 21), (2, 0.1, 512), (181, 1.5, 181)])
def test_a_graph_has_every_copy_as_often_and_lasts(copies, us, calls):
    assert calls_for(copies, us) == calls
    assert calls % copies == 0
    assert calls * us >= LEAST_US or calls >= 512


@pytest.mark.parametrize(
    "nbytes, copies, alone_us, words",
    [
        (MIB, 20, 50.0, "warm: 20 copies fill 0.4x L2"),
        (MIB, 181, 50.0, "cold: 181 copies fill 3.6x L2; 50.00 us on one copy alone"),
        (MIB, 181, 99.0, "cold by construction, not shown: 181 copies fill 3.6x L2; one copy alone takes 99.00 us"),
        (60 * MIB, 4, 0.0, "cold: 4 copies fill 4.8x L2, one alone more than all of it"),
    ],
)
def test_cold_is_shown_or_not_said(monkeypatch, nbytes, copies, alone_us, words):
    made = object.__new__(Rotation)
    made.l2_bytes = 50 * MIB
    program = SimpleNamespace(memory=SimpleNamespace(nbytes=nbytes), launch=None, load_libraries=lambda: None)
    made.programs = [program] * copies
    stream = SimpleNamespace(synchronize=lambda: None)
    cupy = SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda: stream))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(cold_copies, "capture", lambda clock, launches, calls: calls if len(launches) == 1 else None)
    monkeypatch.setattr(cold_copies, "graph_us", lambda clock, graph: graph * alone_us)
    assert made.coldness(None, 4, 100.0).startswith(words)


def test_the_first_the_last_and_another_copy_are_looked_at():
    made = object.__new__(Rotation)
    made.programs = [SimpleNamespace(outcome=lambda poison, n=n: (n, poison)) for n in range(9)]
    looked = [made.outcomes(POISON, random.Random(seed)) for seed in range(20)]
    assert all(words[0][0] == "copy 1 of 9" and words[-1][0] == "copy 9 of 9" for words in looked)
    assert len({words[1][0] for words in looked}) > 3


# The command


@pytest.mark.parametrize(
    "options, sentence",
    [
        (["--base", "HEAD", "--save"], "it goes with neither --baseline nor --save"),
        (["--case", CASE.id], "--case and --all go with --base"),
        (["--base", "HEAD", "--case", "swizle/default/16x16/normal/eager"], "did you mean 'swizzle'"),
        (["--base", "HEAD", "-R", "swizle"], "did you mean 'swizzle'"),
        (["--base", "HEAD", "-R", "swizzle", "--case", CASE.id], "give one of the two"),
    ],
)
def test_a_mistake_on_the_command_line(capsys, options, sentence):
    from harness.cli import main

    with pytest.raises(SystemExit) as stop:
        main(["gate", *options])
    assert stop.value.code == Exit.USAGE
    assert sentence in capsys.readouterr().err
