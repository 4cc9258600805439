"""One case of head and base, from machine code to verdict; two sides that are made up stand in for a GPU's."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

import harness.gate.revision_bench
import harness.gate.revision_run
from harness.bench.rounds import BETWEEN_CLOCKS
from harness.bench.statistics import Samples
from harness.device.device import Outcome
from harness.errors import CompileError, Exit, LaunchError, UsageError
from harness.gate.revision_bench import RevisionBench
from harness.suite.suite import find_case
from harness.verdict import Performance, Result, Verdict, failures_of

CASE = find_case("swizzle/default/256x256/normal/graph")


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

    def __init__(self, us=100.0, digest="a", byte=7, writes=(0, 1, 2), trespass=""):
        self.us, self.byte, self.writes, self.trespass = us, byte, writes, trespass
        self.outputs = [np.zeros(4, np.uint8) for _ in range(3)]
        kernel = SimpleNamespace(code_digest=digest)
        self.programs = [
            SimpleNamespace(
                kernels=[kernel], grids=[(1,)], early=(), libraries=(), steps=(), memory=SimpleNamespace(nbytes=8)
            )
        ] * 3
        self.launches = [self]
        self.shares = None
        self.filled = 3.2

    def share(self, other):
        self.shares = other

    def poison(self, byte):
        for memory in self.outputs:
            memory[:] = byte

    def outcomes(self, poison, order):
        return [
            (f"copy {n + 1} of 3", Outcome({"data": memory.copy()}, self.trespass))
            for n, memory in enumerate(self.outputs)
        ]

    def coldness(self, clock, calls, us):
        return "cold"


@pytest.fixture
def meet(monkeypatch):
    """Comparison a head with a base: sides, or an error that preparing them raises."""

    def match(head, base, verdict=Verdict.PASS, unchanged_too=False, noise=0.002, capture=None, effect=0.01, nbytes=0):
        waiting = [head, base]
        sides = {}

        def prepare(device, case, memories):
            side = waiting.pop(0)
            assert device.side is side
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
            us = {name: graph.graph.side.us * rng.normal(1, noise, rounds) for name, graph in graphs.items()}
            return {name: Samples(list(series), [1980.0] * rounds) for name, series in us.items()}

        def accepts(ours, want):
            return bool((ours == want).all())

        clock = SimpleNamespace(stream=nullcontext(SimpleNamespace(synchronize=lambda: None)))
        expected = SimpleNamespace(
            inputs={}, fields={"data": SimpleNamespace(nbytes=nbytes)}, values={"data": np.full(4, 7, np.uint8)}
        )
        known = {"targets": ("sm_90a",), "identity": lambda: {"l2_bytes": "50"}}
        devices = [SimpleNamespace(side=side, accepts=accepts, **known) for side in waiting]
        result = Result(CASE.id, CASE.recipe, verdict, "" if verdict is Verdict.PASS else "wrong")
        fakes = {
            "verify": lambda *_: result, "same_sources": lambda *_: False, "launches_of": launches_of,
            "expect": lambda *_: expected, "CaseMemory": SimpleNamespace(upload=lambda *_: None),
            "memories": lambda *_: [None] * 3, "Rotation": prepare, "take": take,
            "rotate": lambda clock, launches: (Graph(launches[0], 3), 3),
            "capture": capture or (lambda clock, launches, calls: Graph(launches[0], calls)),
        }  # fmt: skip
        for name, fake in fakes.items():
            monkeypatch.setattr(harness.gate.revision_bench, name, fake)
        bench = RevisionBench(*devices, clock, effect, unchanged_too)
        bench.roofline_gbps = 4200.0 if nbytes else 0.0
        return bench.compare(CASE)

    return match


@pytest.mark.parametrize("us, verdict", [(100, Performance.SAME), (103, Performance.SLOWER), (97, Performance.FASTER)])
def test_a_change_of_the_code_is_timed(meet, us, verdict):
    found = meet(Side(us, "b"), Side(100))
    assert found.judgement.verdict is verdict
    assert found.judgement.candidate_us == pytest.approx(us, rel=0.005)
    assert set(found.samples) == {"head", "again", "base"}


def test_a_time_that_physics_does_not_allow_is_invalid(meet):
    """Else a side whose launches did nothing in a replay that nobody looks at would be FASTER, or the other SLOWER."""
    allowed = 2 << 20  # bytes
    assert meet(Side(50, "b"), Side(100), nbytes=allowed).judgement.verdict is Performance.FASTER
    for head, base, name in ((50, 100, "head"), (100, 50, "base")):
        found = meet(Side(head, "b"), Side(base), nbytes=300_000_000).judgement
        assert (found.verdict, found.candidate_us) == (Performance.INVALID, None)
        assert found.reason.startswith(f"the time of the {name} is none: ")
        assert "us cannot be: 300,000,000 bytes take 57" in found.reason


def test_what_counts_is_what_was_asked_for(meet):
    assert meet(Side(103, "b"), Side(100), effect=0.05).judgement.verdict is Performance.SAME


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
    assert Graph.made - before == 3 + 3 * rounds // BETWEEN_CLOCKS
    assert {len(samples.us) for samples in found.samples.values()} == {rounds}


def test_graphs_of_the_base_must_be_right_to_the_end(meet, monkeypatch):
    base = Side()

    def capture(clock, launches, calls):
        if launches[0] is base and Graph.made % 7 == 0:
            base.byte = 8
        return Graph(launches[0], calls)

    monkeypatch.setattr(Graph, "made", 1)
    found = meet(Side(digest="b"), base, capture=capture)
    assert found.judgement.verdict is Performance.INVALID
    assert "after timing, the graph of the base wrote other bytes" in found.judgement.reason


def test_the_same_machine_code_is_not_timed_unless_that_is_asked_for(meet):
    found = meet(Side(), Side())
    assert (found.judgement.verdict, found.samples) == (Performance.SAME, {})
    assert "not timed" in found.judgement.reason
    assert found.verified is None  # its bytes are the base's, too
    assert harness.gate.revision_run.record(found)["verified"] is None
    assert len(meet(Side(), Side(), unchanged_too=True).samples["base"].us) >= 30


def test_only_what_is_ambiguous_gets_more_rounds(meet):
    assert len(meet(Side(100, "b"), Side(100)).samples["head"].us) == harness.gate.revision_bench.FEWEST
    noisy = meet(Side(101, "b"), Side(100), noise=0.2)
    assert noisy.judgement.verdict is Performance.AMBIGUOUS
    assert len(noisy.samples["head"].us) == harness.gate.revision_bench.MOST


GRAPH = "the timed graph of the"


@pytest.mark.parametrize(
    "head, base, verdict, reason",
    [
        (Side(digest="b", writes=()), Side(), "INVALID", f"{GRAPH} head wrote nothing to data of copy 1"),
        (Side(digest="b", writes=(0,)), Side(), "INVALID", f"{GRAPH} head wrote nothing to data of copy 2"),
        (Side(digest="b", byte=8), Side(), "INVALID", f"{GRAPH} head wrote other bytes to data of copy 1"),
        (Side(digest="b"), Side(byte=8), "INVALID", f"{GRAPH} base wrote other bytes"),
        (Side(digest="b", trespass="a write behind data"), Side(), "INVALID",
         f"{GRAPH} head does wrong on copy 1 of 3: a write behind data"),
        (Side(), CompileError("toy.cu has no kernel 'x'"), "NO_BASELINE", "toy.cu has no kernel 'x'"),
        (Side(), UsageError("there is no recipe 'swizzle'"), "NO_BASELINE", "no recipe 'swizzle'"),
        (CompileError("bad"), Side(), "NOT_MEASURED", "bad"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_has_a_state_of_its_own(meet, head, base, verdict, reason):
    judgement = meet(head, base).judgement
    assert (judgement.verdict, reason in judgement.reason) == (verdict, True), judgement.reason


@pytest.mark.parametrize("verdict", [Verdict.MISMATCH, Verdict.CONVENTION])
def test_other_bytes_are_never_timed(meet, verdict):
    found = meet(Side(digest="b"), Side(), verdict=verdict)
    assert (found.judgement.verdict, found.samples) == (Performance.NOT_MEASURED, {})
    wrong = [record["case_id"] for record in failures_of([found.verified.to_record()])]
    assert wrong == ([CASE.id] if verdict is Verdict.MISMATCH else [])


def test_a_launch_that_fails_costs_its_own_case_only(meet, monkeypatch):
    def fail(clock, launches):
        raise LaunchError("an illegal memory access")

    side = Side(digest="b")
    monkeypatch.setattr(Side, "poison", lambda self, byte: fail(None, None))
    assert meet(side, Side()).judgement.verdict is Performance.INVALID


def test_a_record_is_one_line_that_holds_every_sample(meet):
    record = json.loads(json.dumps(harness.gate.revision_run.record(meet(Side(110, "b"), Side(100)))))
    assert (record["case_id"], record["verdict"]) == (CASE.id, "SLOWER")
    assert len(record["samples_us"]["head"]) == len(record["samples_us"]["base"]) == len(record["mhz"])
    assert record["time"][1] > 1.08


# The command


@pytest.mark.parametrize(
    "options, sentence",
    [
        (["--base", "HEAD", "--save"], "it goes with neither --baseline nor --save"),
        (["--case", CASE.id], "--case and --all go with --base"),
        (["--base", "HEAD", "--case", "swizle/default/16x16/normal/eager"], "did you mean 'swizzle'"),
        (["--base", "HEAD", "swizle"], "did you mean 'swizzle'"),
        (["--base", "HEAD", "swizzle", "--case", CASE.id], "give one of the two"),
    ],
)
def test_a_mistake_on_the_command_line(capsys, options, sentence):
    from harness.cli import main

    with pytest.raises(SystemExit) as stop:
        main(["gate", *options])
    assert stop.value.code == Exit.USAGE
    assert sentence in capsys.readouterr().err
