"""Every ratio is to something that does the same work, and names it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace

import fake_clock
import numpy as np
import pytest
from fake_clock import in_turns
from timed_runs import times_of

import harness.bench.baseline
import harness.bench.bench
import harness.bench.timed
from harness.bench import cold_copies
from harness.bench.baseline import (
    against_copy,
    against_library,
    baseline_id,
    baseline_of,
    loop_of,
    opponents,
    second_id,
    second_of,
)
from harness.bench.bench import Bench
from harness.bench.rounds import Baseline, InterleavedRounds
from harness.bench.timed import POISON, Timed, TimedLoop
from harness.contract.case import Case
from harness.records.records import Times
from harness.suite.stages import is_pipeline
from harness.suite.suite import find_case, load_suites
from harness.verdict import Result, Verdict


class FakeClock(fake_clock.FakeClock):
    def pass_time(self, seconds: float) -> None:
        self.now += seconds


@cache  # which takes seconds: not while tests are collected, by each process
def benched() -> list[Case]:
    return [case for suite in load_suites() for case in suite.cases("bench")]


def variant(case: Case | None) -> str:
    return f"{case.recipe}/{case.variant}" if case else ""


@pytest.mark.parametrize(
    ("case_id", "opponent"),
    [
        ("per_token/default/48x80", "per_tensor/rht=true,rounding=sr/48x80"),
        ("per_token/stage=amax/48x80", "per_tensor/rht=true,stage=amax/48x80"),
        ("per_token/rounding=sr,stage=encode/48x80", "per_tensor/rht=true,rounding=sr,stage=encode/48x80"),
        ("per_tensor/dtype=fp16,outputs=rowwise,rounding=sr/48x80",
         "per_tensor/dtype=fp16,outputs=rowwise,rounding=sr/48x80"),
        ("row_scaled/default/48x80", "per_tensor/outputs=rowwise/48x80"),
        ("row_scaled/stage=amax/48x80", "per_tensor/outputs=rowwise,stage=amax/48x80"),
        ("four_over_six/dtype=fp16/48x80", "per_tensor/rht=true,rounding=sr/48x80"),
        ("local_1x64/outputs=columnwise/64x64", "per_tensor/outputs=columnwise,rht=true,rounding=sr/64x64"),
        ("grouped/recipe=per_token/128+0+128x128", "grouped/rht=true,rounding=sr/128+0+128x128"),
        ("grouped/recipe=row_scaled,outputs=rowwise,stage=amax/128+0+128x128",
         "grouped/outputs=rowwise,stage=amax/128+0+128x128"),
        ("grouped/recipe=row_scaled/48+0+80x128", "grouped/rht=true,rounding=sr/48+0+80x128"),
        ("gemm/epilogue=per_token/112x128x96", "cublas/bf16/112x128x96"),
        ("forward/epilogue=per_token,route=library/128x128x128", "forward/route=library/128x128x128"),
        ("swizzle/direction=columnwise/128x64", "copy/swizzle/direction=columnwise/128x64"),
        ("dequantize/dtype=fp32/48x80", "copy/dequantize/dtype=fp32/48x80"),
    ],
)  # fmt: skip
def test_the_opponent_of(case_id: str, opponent: str):
    assert baseline_id(find_case(f"{case_id}/normal/graph")) == f"{opponent}/normal/graph"


def test_a_quantizer_of_the_bench_is_compared_with_the_same_stage_outputs_and_shape():
    seen, others = 0, set()
    for case in benched():
        if against_library(case) or against_copy(case) or is_pipeline(case):
            continue
        other = baseline_of(case)
        seen += 1
        assert (other.recipe, other.flags.get("recipe", "per_tensor")) in (
            ("grouped" if case.is_group else "per_tensor", "per_tensor"),
        ), case.id
        assert (other.shape, other.input, other.mode) == (case.shape, case.input, case.mode)
        for flag, default in (("outputs", "both"), ("stage", "full")):
            assert other.flags[flag] == case.flags.get(flag, default), case.id
        assert other.flags.rht is (other.flags.outputs != "rowwise")
        others.add(other)
    assert seen > 600
    for other in others:
        assert find_case(other.id) == other  # no flags that the suites refuse
        assert baseline_of(other) == other


def test_a_group_is_compared_with_a_loop_of_dense_cases_that_the_suites_have():
    looped = [case for case in benched() if loop_of(case)]
    assert {case.recipe for case in looped} == {"grouped", "gemm_grouped", "forward_grouped", "backward_grouped"}
    for case in looped:
        extents = [each for each in case.problem.tensors if 0 not in each]
        assert [(part.rows, part.cols) for part in loop_of(case)] == extents, case.id
        assert second_id(case) == f"loop/{case.id}"
        for part in dict.fromkeys(loop_of(case)):
            assert find_case(part.id) == part and not part.is_group and part.seed == find_case(part.id).seed
        if is_pipeline(case):
            shared = case.flags.keys() & part.flags.keys()
            assert {name: part.flags[name] for name in shared} == {name: case.flags[name] for name in shared}


@pytest.mark.parametrize(
    ("case_id", "flags"),
    [
        ("grouped/rht=true,rounding=sr/128+0+256x128", "per_tensor/rht=true,rounding=sr"),
        ("gemm_grouped/default/128+0+1024x128x64", "gemm/route=fastest"),
        ("gemm_grouped/shape_representation=varying_both_dims/128+16x128+32x0+64", "gemm/route=fastest"),
        ("forward_grouped/recipe=per_token,bias=true/128+0+256x128x64",
         "forward/epilogue=per_token_fused,weight_2d=false,bias=true"),
        ("backward_grouped/weight_2d=true,accumulate=true/128+0+256x128x64", "backward/accumulate=true"),
        ("grouped/default/128+0+256x128", ""),  # another quantizer than production's has that for an opponent
        ("grouped/rht=true,rounding=sr,stage=encode/128+0+256x128", ""),
        ("grouped/rht=true,rounding=sr,activation=dsilu/128+0+256x128", ""),  # no dense quantizer has one
        ("backward_grouped/dbias=true/128+0+256x128x64", ""),  # nor sums this
        ("gemm_grouped/epilogue=row_scaled/128+0+256x128x64", ""),
        ("per_tensor/rht=true,rounding=sr/128x128", ""),
    ],
)  # fmt: skip
def test_the_loop_of(case_id: str, flags: str):
    case = find_case(f"{case_id}/normal/graph")
    assert all(part.elements for part in loop_of(case))
    assert all(part.terms for part in loop_of(case) if case.is_gemm)
    assert {f"{part.recipe}/{part.variant}" for part in loop_of(case)} == ({flags} if flags else set())


def test_a_loop_launches_every_dense_case_as_often_as_the_group_has_it_each_on_memory_of_its_own(monkeypatch):
    case = find_case("grouped/rht=true,rounding=sr/128+0+256+128x128/normal/graph")
    log: list[tuple[str, int]] = []
    wrong: list[str] = []

    class Made:
        def __init__(self, device, case, memories):
            assert len({id(memory) for memory in memories}) == len(memories)
            self.name, self.programs = case.shape, [SimpleNamespace(steps=("amax", "encode"))] * len(memories)
            self.launches = [lambda n=n: log.append((case.shape, n)) for n in range(len(memories))]

        def poison(self, byte):
            log.append((f"poison {self.name}", byte))

        def outcomes(self, poison, order):
            return self.name

    class Memory:
        nbytes = 1 << 20

        def twin(self):
            return Memory()

    for name, fake in {
        "CaseMemory": SimpleNamespace(upload=lambda *_: Memory()),
        "Rotation": Made,
        "bytes_moved": lambda *_: 1000,
        "rotate": lambda clock, loops: (SimpleNamespace(launch=lambda stream: [loop() for loop in loops]), len(loops)),
        "require_right": lambda device, outcomes, expected: wrong.append(outcomes) if outcomes != expected.name else 0,
    }.items():
        monkeypatch.setattr(harness.bench.timed, name, fake)
    expected = {part.id: SimpleNamespace(inputs={}, fields={}, name=part.shape) for part in loop_of(case)}
    device = SimpleNamespace(properties={"l2CacheSize": 1 << 20})
    timed = TimedLoop(device, loop_of(case), expected, FakeClock())
    assert (timed.calls, timed.launches, timed.moved) == (2, 6, 3000)
    timed.begin()
    assert log == [("poison 128x128", POISON), ("poison 256x128", POISON)]
    log.clear()
    with timed.current():
        timed.enqueue()
    order = [("128x128", 0), ("256x128", 0), ("128x128", 1), ("128x128", 2), ("256x128", 1), ("128x128", 3)]
    assert log == order
    timed.check()
    assert wrong == []
    parts = [replace(part, mode="eager") for part in loop_of(case)]
    named = {part.id: expected[loop.id] for part, loop in zip(parts, loop_of(case), strict=True)}
    eager = TimedLoop(device, parts, named, FakeClock())
    log.clear()
    eager.enqueue()
    assert log == order[:3] and eager.calls == 1


def test_a_product_of_another_epilogue_is_compared_with_that_of_per_tensor_too():
    for case in benched():
        second = second_of(case)
        if not against_library(case) or case.flags.epilogue == "per_tensor" or case.flags.accumulate:
            assert second is None, case.id
            continue
        assert second.flags == case.flags.replace(epilogue="per_tensor")
        assert (second.recipe, second.shape, second.mode) == (case.recipe, case.shape, case.mode)
        assert second in opponents(case)


def test_what_moves_bytes_is_compared_with_a_copy_of_as_many(monkeypatch):
    clock, made = FakeClock(), []
    monkeypatch.setattr(cold_copies, "capture", lambda clock, launches, calls: SimpleNamespace(
        calls=calls, launch=lambda stream: clock.pass_time(calls * 20e-6)))  # fmt: skip
    monkeypatch.setattr(cold_copies, "graph_us", lambda clock, graph: 20.0 * graph.calls)
    monkeypatch.setattr(
        harness.bench.roofline, "copier", lambda nbytes: made.append(nbytes) or (lambda: clock.pass_time(30e-6))
    )
    device = SimpleNamespace(identity=lambda: {"l2_bytes": str(1 << 20)})
    case = find_case("swizzle/default/1024x2048/normal/graph")
    scales = np.zeros(1024 * 128, np.uint8)
    monkeypatch.setattr(harness.bench.bench, "bytes_moved", lambda *_: 2 * scales.nbytes)
    monkeypatch.setattr(harness.bench.bench, "expect", lambda *_: SimpleNamespace(inputs={}, fields={}))
    bench = Bench(device, clock, 4000.0)
    found = bench._baseline(case)
    assert (found.moved, found.calls) == (2 * scales.nbytes, 13)
    assert made == [scales.nbytes] * 13  # each copy reads and writes this; three times the L2, and one more
    made.clear()
    eager = bench._baseline(find_case("swizzle/default/1024x2048/normal/eager"))
    assert (eager.calls, made) == (1, [scales.nbytes])


class Ours(Timed):
    program = SimpleNamespace(kernels=(), grids=(), early=(), libraries=())
    calls, launches, moved = 1, 0, 4_000_000

    def __init__(self, clock: FakeClock):
        self.clock = clock

    def current(self):
        return self.clock.stream

    def enqueue(self):
        self.clock.pass_time(100e-6)

    def method(self, us):
        return ""


def test_a_round_has_a_reading_of_each_opponent_and_the_clock_of_its_own():
    clock = FakeClock()
    opponents = [Baseline(lambda us=us: clock.pass_time(us)) for us in (250e-6, 50e-6)]
    turns = InterleavedRounds(clock, Ours(clock), opponents[0], in_turns(clock), opponents[1])
    rounds = turns.take(4)
    assert [round(1e6 * each.seconds) for each in rounds] == [100] * 4
    assert [round(1e6 * each.baseline) for each in rounds] == [250] * 4
    assert [round(1e6 * each.second) for each in rounds] == [50] * 4
    clock.clocks = {2: 1200.0, 4: 1000.0}  # of the first round, and of an opponent in the second
    assert [each.mhz for each in turns.take(3)] == [1200.0, 1980.0, 1980.0]


class HostClock(FakeClock):
    """A clock that notes a round when its reading ends, as a GPU's clock does: late if the target says so."""

    def __call__(self) -> Reading:
        return Reading(self, self.now / self.calls)


@dataclass
class Reading:
    clock: HostClock
    at: float

    def __sub__(self, start: Reading) -> float:
        self.clock.exposed.append(self.clock.late)
        return self.at - start.at


@pytest.mark.parametrize("whose", ["case", "baseline", "second"])
def test_a_late_host_counts_in_rounds_of_the_case_alone(whose: str):
    clock = HostClock()

    def target(name: str) -> Callable[[], None]:
        def enqueue() -> None:
            clock.late = name == whose
            clock.pass_time(100e-6)

        return enqueue

    timed = Ours(clock)
    timed.enqueue = target("case")
    rounds = InterleavedRounds(
        clock, timed, Baseline(target("baseline")), in_turns(clock), Baseline(target("second"))
    ).take(4)
    assert [each.exposed for each in rounds] == [whose == "case"] * 4


def test_both_ratios_of_a_product_are_in_its_record(monkeypatch):
    clock = FakeClock()
    device = SimpleNamespace(identity=lambda: {"l2_bytes": "1"}, condition=dict, targets=("sm_90a",))
    monkeypatch.setattr(harness.bench.bench, "TimedKernels", lambda *_: Ours(clock))
    monkeypatch.setattr(harness.bench.bench, "expect", lambda *_: SimpleNamespace(on=lambda target: None))
    bench = Bench(device, clock, 4000.0)
    verified: list[str] = []
    monkeypatch.setattr(harness.bench.bench, "product", lambda *_: (lambda: clock.pass_time(300e-6), 1))

    def ready(case: Case) -> Baseline:
        verified.append(case.id)
        return Baseline(lambda: clock.pass_time(50e-6))

    monkeypatch.setattr(bench, "ready", ready)
    case = find_case("gemm/epilogue=per_token/1024x1024x1024/normal/eager")
    for _ in range(2):
        times = bench.time(case, Result(case.id, case.recipe, Verdict.PASS), in_turns(clock)).times
    assert (times["baseline"], times["baseline_ratio"]) == ("cublas/bf16/1024x1024x1024/normal/eager", 3.0)
    assert (times["second"], times["second_us"], times["second_ratio"]) == (
        "gemm/default/1024x1024x1024/normal/eager", 50.0, 0.5,
    )  # fmt: skip
    library = find_case("gemm/route=library,epilogue=per_token/1024x1024x1024/normal/eager")
    for each in (library, find_case("gemm/default/1024x1024x1024/normal/eager"), case, library):
        bench.prepare(each)
    first, second = (f"gemm/{flags}/1024x1024x1024/normal/eager" for flags in ("default", "route=library"))
    assert verified == [first, second]  # each once, while the shape is the same
    bench.prepare(find_case("gemm/epilogue=per_token/2048x2048x2048/normal/eager"))
    assert {name.split("/")[2] for name in bench._baselines} == {"2048x2048x2048"}
    monkeypatch.setattr(bench, "ready", lambda case: Baseline(why_not="MISMATCH wrong"))
    bench._baselines.clear()
    times = bench.time(case, Result(case.id, case.recipe, Verdict.PASS), in_turns(clock)).times
    assert times["second"] == "gemm/default/1024x1024x1024/normal/eager, which has no time: MISMATCH wrong"
    assert "second_ratio" not in times


def test_a_second_ratio_that_does_not_follow_is_no_record():
    times = times_of([100.0] * 3) | {
        "second": "gemm/default/1x2x3/normal/eager",
        "second_us": 50.0,
        "second_ratio": 0.5,
    }
    assert Times.model_validate(times).second_ratio == 0.5
    for change in ({"second_ratio": 0.6}, {"second_ratio": None}, {"second": ""}):
        with pytest.raises(ValueError, match="second"):
            Times.model_validate(times | change)
