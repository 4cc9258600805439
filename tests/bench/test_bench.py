"""A bench from the command line to its files. Device and clock are fakes whose time is counted, so it is known.

`harness.report.tables` is imported here because pytester forgets the modules that an inner run imports first, and
pandas cannot be imported twice.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import pytest_benchmark.session
from fake_clock import FakeClock, in_turns

import harness.bench.bench
import harness.bench.roofline
import harness.bench.timed
import harness.device
import harness.report
import harness.report.tables
import harness.runner.bench_plugin
import harness.runner.process
import harness.verify
from harness.bench.baseline import baseline_first, baseline_id, baseline_of
from harness.bench.bench import Bench
from harness.bench.cold_copies import Rotation
from harness.bench.energy import Energy, Meter
from harness.bench.roofline import COPY_BYTES
from harness.bench.rounds import FEWEST, MOST, PILOT, WARM_UP, Round, steady
from harness.bench.timed import POISON, Timed, TimedKernels, require_right
from harness.contract.problem import Dense
from harness.device.device import Outcome
from harness.errors import Exit, LaunchError
from harness.oracles import per_tensor
from harness.suite.launch_plan import plan
from harness.suite.physics import Needs, bytes_moved
from harness.suite.suite import find_case, suite_of
from harness.verdict import Result, Verdict

CASE_US, BASELINE_US, MOVED = 100.0, 250.0, 200_000_000
EXPECTED = SimpleNamespace(fields={"rowwise_data": None}, values={"rowwise_data": np.full(4, 7, np.uint8)})
EXPECTED.on = lambda target: EXPECTED  # bytes that no target decides
COPY_SECONDS = 2 * COPY_BYTES / 4e12  # 4,000 GB/s


class FakeProgram(Timed):
    """Takes the time its case is given, with a spread of `noise`, and writes what the fake expectation demands."""

    kernels = (SimpleNamespace(code_digest="abc", expression="toy<bf16>"),)
    grids = ((1, 1, 1),)
    early = ()
    libraries = ()
    launches, moved = 0, MOVED

    def __init__(self, gpu: FakeGpu, case_id: str):
        self.gpu = gpu
        self.program, self.calls = self, 1
        self.case_id = case_id
        self.data = np.full(4, 7, np.uint8)  # the right bytes, as memory that was just freed may hold them

    def current(self):
        return self.gpu.clock.stream

    def begin(self) -> None:
        self.data[:] = POISON

    def enqueue(self) -> None:
        if self.gpu.failure:
            raise LaunchError(self.gpu.failure)
        self.gpu.launches += 1
        microseconds = BASELINE_US if self.case_id.startswith("per_tensor/rht=true,rounding=sr/") else CASE_US
        self.gpu.clock.now += 1e-6 * microseconds * (1 + self.gpu.noise * self.gpu.rng.normal())
        if not self.gpu.lazy:
            self.data[:] = 7

    def check(self) -> None:
        require_right(self.gpu, [("copy 1 of 1", Outcome({"rowwise_data": self.data.copy()}))], EXPECTED)

    def method(self, us: float) -> str:
        return self.gpu.clock.method


class FakeGpu:
    """A device named `cuda`. lazy: its kernels write nothing; failure: what its launches raise."""

    name, targets, modes, subject_label = "cuda", ("sm_90a",), frozenset({"eager", "graph"}), ""
    memory = 1 << 30

    def __init__(self, clock: FakeClock):
        self.clock = clock
        self.lazy = False
        self.failure = ""
        self.noise = 0.0
        self.launches = 0
        self.verified: list[str] = []
        self.wrong = ""
        self.rng = np.random.default_rng(0)

    def identity(self) -> dict[str, str]:
        return {"device": "cuda", "gpu": "Fake H1", "l2_bytes": "1048576", "driver": "1", "nvrtc": "13.0"}

    def lost(self) -> str:
        return ""

    def condition(self) -> dict:
        return {"power_w": 321.0, "throttle": "power cap"}

    def accepts(self, ours: np.ndarray, demanded: np.ndarray) -> bool:
        return ours.tobytes() == demanded.tobytes()

    def verify(self, case, device, numpy_largest=0) -> Result:
        self.verified.append(case.id)
        wrong = bool(self.wrong) and self.wrong in case.id
        if wrong:
            return Result(case.id, case.recipe, Verdict.MISMATCH, "wrong")
        ran = ("sm_90a toy<bf16>",)
        return Result(
            case.id, case.recipe, Verdict.PASS, "", "", case.input, self.name, self.targets, ran, ("torch",), 12
        )


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    clock = FakeClock()
    fake = FakeGpu(clock)

    def pass_time(seconds: float) -> Callable[[], None]:
        def target() -> None:
            clock.now += seconds

        return target

    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # by which pytest-benchmark would disable inner runs
    monkeypatch.setattr(harness.runner.process, "select_device", lambda name, index: fake)
    monkeypatch.setattr(harness.runner.process, "verify", fake.verify)
    monkeypatch.setattr(harness.bench.bench, "verify", fake.verify)
    monkeypatch.setattr(harness.bench.bench, "expect", lambda case, where, numpy_largest: EXPECTED)
    monkeypatch.setattr(harness.bench.bench, "TimedKernels", lambda gpu, case, *_: FakeProgram(gpu, case.id))
    monkeypatch.setattr(harness.runner.bench_plugin, "clock_of", lambda device: clock)
    monkeypatch.setattr(harness.bench.roofline, "copier", lambda: pass_time(COPY_SECONDS))
    monkeypatch.setattr(harness.bench.roofline, "tiny", lambda clock: (pass_time(3e-6), pass_time(2e-6)))
    monkeypatch.setattr(harness.bench.roofline, "empty_kernels", lambda clock, count: pass_time(count * 1.5e-6))
    yield fake


class Benches:
    """Runs the toy suite's bench set in a folder of its own."""

    def __init__(self, pytester: pytest.Pytester):
        self.pytester = pytester
        self.run_dir = pytester.path / "out"

    def __call__(self, *arguments: str) -> pytest.RunResult:
        return self.pytester.runpytest_inprocess(
            "-p", "harness.plugin", "-p", "no:hypothesispytest", "--run-dir", "out", "--bench", *arguments, "suites"
        )

    def records(self) -> list[dict]:
        return [json.loads(line) for line in (self.run_dir / "journal.jsonl").read_text().splitlines()][1:]

    def header(self) -> dict:
        return json.loads((self.run_dir / "bench_header.json").read_text())

    def benchmarks(self) -> list[dict]:
        return json.loads((self.run_dir / "benchmark.json").read_text())["benchmarks"]


@pytest.fixture
def bench(pytester: pytest.Pytester, gpu: FakeGpu, suite_text: str) -> Benches:
    folder = pytester.mkdir("suites")
    (folder / "toy.yaml").write_text(suite_text)
    (folder / "schema.json").write_text("{}")
    return Benches(pytester)


def test_a_bench_times_every_case_that_passes(bench: Benches):
    result = bench("--set", "full", "--ahead", "1")  # as without it where there are enough cores
    assert result.ret == Exit.CLEAN
    records = bench.records()
    assert len(records) == 16
    times = records[0]["times"]
    assert times["median_us"] == pytest.approx(CASE_US)
    assert times["gbps"] == pytest.approx(2000, rel=1e-3)
    assert times["roofline_percent"] == pytest.approx(50, rel=1e-3)
    assert times["baseline_ratio"] == pytest.approx(BASELINE_US / CASE_US)
    assert len(times["samples_us"]) == times["rounds"] == FEWEST
    assert times["measured"] == f"eager; a fake clock; median of {FEWEST}"


def test_every_round_is_flushed(bench: Benches, gpu: FakeGpu):
    bench("--case", "toy/default/32x32/normal/eager")
    # One flush a launch, one a round of the roofline (twice) and of each of the four floors; some are timed themselves.
    warm_up = harness.bench.roofline.WARM_UP
    rounds = harness.bench.roofline.ROUNDS + warm_up
    assert gpu.clock.flushes == gpu.launches + 2 * rounds + 4 * rounds + 2 * warm_up


def test_a_bench_says_each_time_where_its_tables_lie_and_where_its_seconds_went(bench: Benches):
    result = bench()
    seconds = "* s a case, * for 1: compile *, inputs *, oracles *, upload *, verify *, warm-up *, rounds *, other *; *"
    result.stdout.fnmatch_lines(["suites/toy.yaml::toy/* 100.0 us, 50 % of copy, 2.50x baseline *%?", seconds])
    for name in ("bench.jsonl", "bench.md", "bench.csv", "bench.html", "verify.md", "verify.csv", "verify.html"):
        assert (bench.run_dir / name).stat().st_size > 0
    assert any(line.endswith("/bench.html, with tables and journal beside it") for line in result.outlines[-3:])
    spent = bench.header()["seconds"]
    assert spent["cases"] == 1
    assert sum(spent.values()) - 1 - spent["all"] - spent["flush"] == pytest.approx(spent["all"], abs=0.1)


def test_the_run_records_its_roofline_twice_floors_and_clocks_and_what_held_these_back(bench: Benches):
    bench()
    header = bench.header()
    assert [(entry["point"], entry["gbps"]) for entry in header["roofline"]] == [("start", 4000.0), ("end", 4000.0)]
    assert header["floors_us"] == {"events": 0.0, "eager": 3.0, "graph": 2.0, "two kernels": 3.0}
    assert header["machine"]["gpu"] == "Fake H1"
    assert "-ftz=false" in header["compile_flags"]
    assert "--bench" in header["command"]
    times = bench.records()[0]["times"]
    assert times["samples_mhz"] == [1980.0] * times["rounds"]
    assert (times["power_w"], times["throttle"]) == (321.0, "power cap")


def test_the_tables_are_written_where_another_plugin_fails_at_the_end(bench: Benches, monkeypatch):
    def fail(*_) -> None:
        raise RuntimeError("the recorder's disk is on fire")

    monkeypatch.setattr(pytest_benchmark.session.BenchmarkSession, "save_json", fail)
    assert bench().ret != Exit.CLEAN
    for name in ("bench.jsonl", "bench.md", "bench.csv", "bench.html"):
        assert (bench.run_dir / name).stat().st_size > 0
    assert [entry["point"] for entry in bench.header()["roofline"]] == ["start", "end"]


def test_pytest_benchmark_can_read_the_recording(bench: Benches):
    bench()
    recorded = bench.benchmarks()
    assert {entry["extra_info"]["case_id"] for entry in recorded} == {record["case_id"] for record in bench.records()}
    assert recorded[0]["stats"]["median"] == pytest.approx(1e-6 * CASE_US)
    assert recorded[0]["options"]["timer"] == "fake_clock"
    assert recorded[0]["extra_info"]["roofline_percent"] == pytest.approx(50, rel=1e-3)
    path = bench.run_dir / "benchmark.json"
    assert json.loads(path.read_text())["machine_info"]["device"]["gpu"] == "Fake H1"
    compared = subprocess.run(
        [sys.executable, "-m", "pytest_benchmark", "compare", str(path)], capture_output=True, text=True
    )
    assert compared.returncode == 0, compared.stderr
    assert "toy/rht=true/16x32/normal/eager" in compared.stdout


def test_a_mismatch_gets_no_time(bench: Benches, gpu: FakeGpu):
    gpu.wrong = "toy/"
    assert bench().ret == Exit.BYTES_DIFFER
    assert gpu.launches == WARM_UP + PILOT  # of the baseline, which is ready before
    assert all(record["times"] == {} for record in bench.records())


def test_timed_launches_that_write_nothing_are_found_out(bench: Benches, gpu: FakeGpu):
    gpu.lazy = True
    result = bench()
    assert result.ret == Exit.BYTES_DIFFER
    result.stdout.fnmatch_lines(["*after timing, bytes differ in rowwise_data of copy 1 of 1"])
    (record, *_) = bench.records()
    assert (record["verdict"], record["times"]) == ("NONDETERMINISTIC", {})
    assert bench.benchmarks() == []


def test_a_launch_that_fails_while_timed_is_a_verdict(bench: Benches, gpu: FakeGpu):
    gpu.failure = "an illegal memory access was encountered"
    assert bench().ret == Exit.BYTES_DIFFER
    assert {record["verdict"] for record in bench.records()} == {"LAUNCH_ERROR"}


def test_a_roofline_that_cannot_be_measured_at_the_end_is_missing_and_said_so(bench: Benches, monkeypatch):
    rates = iter([4000.0])

    def copy_gbps(clock: FakeClock) -> float:
        rate = next(rates, None)
        if rate is None:
            raise LaunchError("the context is broken")
        return rate

    monkeypatch.setattr(harness.bench.roofline, "copy_gbps", copy_gbps)
    bench()
    assert [entry["point"] for entry in bench.header()["roofline"]] == ["start"]
    assert bench.header()["note"] == "the context is broken"


def test_the_baseline_is_verified_and_measured_once_a_shape_and_mode(bench: Benches, gpu: FakeGpu):
    bench("--set", "full")
    extra = [case_id for case_id in gpu.verified if case_id.startswith("per_tensor/")]
    assert sorted(extra) == [f"per_tensor/rht=true,rounding=sr/32x32/normal/{mode}" for mode in ("eager", "graph")]


def test_without_a_right_baseline_there_is_no_ratio_and_a_reason(bench: Benches, gpu: FakeGpu):
    gpu.wrong = "per_tensor/"
    assert bench().ret == Exit.CLEAN
    times = bench.records()[0]["times"]
    assert times["baseline_ratio"] is None
    assert times["measured"].endswith("no ratio, because the baseline has no time: MISMATCH wrong")


def test_rounds_in_which_the_gpu_waited_are_counted_and_told(bench: Benches, gpu: FakeGpu):
    gpu.clock.late = True
    bench()
    times = bench.records()[0]["times"]
    assert times["exposed"] == times["rounds"]
    assert f"the GPU waited for the host in {FEWEST} of {FEWEST} rounds" in times["measured"]


@pytest.mark.slow
@pytest.mark.parametrize("short", [{1}, {1, 2}])
def test_rounds_in_which_the_gpu_waited_are_taken_again_behind_a_longer_flush(bench: Benches, gpu: FakeGpu, short):
    gpu.clock.late_behind = frozenset(short)
    bench()
    times = bench.records()[0]["times"]
    assert (times["exposed"], times["rounds"]) == (0, FEWEST) and "waited" not in times["measured"]


@pytest.mark.parametrize(("noise", "rounds"), [(0.0001, FEWEST), (0.2, MOST)])
def test_noise_asks_for_more_rounds(bench: Benches, gpu: FakeGpu, noise: float, rounds: int):
    gpu.noise = noise
    bench()
    assert bench.records()[0]["times"]["rounds"] == rounds


def test_a_resumed_bench_goes_on_in_the_same_files(bench: Benches):
    drop = "def pytest_collection_modifyitems(items): items[:] = [item for item in items if 'eager' in item.name]"
    conftest = bench.pytester.makeconftest(drop)
    assert bench("--set", "full").ret == Exit.BYTES_DIFFER
    conftest.unlink()
    bench("--set", "full", "--resume")
    assert len(bench.records()) == 16
    assert [entry["point"] for entry in bench.header()["roofline"]] == ["start", "end", "start", "end"]
    assert len(bench.benchmarks()) == 8
    assert (bench.run_dir / "benchmark-2.json").exists()


@pytest.mark.parametrize(("events", "ends"), [(0.1, Exit.CLEAN), (1.6, Exit.USAGE)])
def test_a_bench_is_not_resumed_on_a_host_whose_events_take_otherwise(bench: Benches, events: float, ends: Exit):
    """One header could not say what both took, and by it the gate compares eager times."""
    assert bench().ret == Exit.CLEAN
    path = bench.run_dir / "bench_header.json"
    path.write_text(json.dumps(began := bench.header() | {"floors_us": {"events": events, "two kernels": 9.0}}))
    result = bench("--resume")
    assert result.ret == ends
    assert bench.header()["floors_us"] == began["floors_us"]
    if ends:
        result.stderr.fnmatch_lines(["error: *cannot be resumed here: two events * took 1.60 us where it began and *"])
        assert bench.header() == began


def test_a_bench_does_not_resume_a_run_that_timed_nothing(bench: Benches, pytester: pytest.Pytester):
    pytester.runpytest_inprocess("-p", "harness.plugin", "--run-dir", "out", "--set", "bench", "suites")
    result = bench("--resume")
    assert result.ret == Exit.USAGE
    result.stderr.fnmatch_lines(["error: *because its timed differ*"])


def test_a_bench_without_a_gpu_ends_before_it_begins(bench: Benches, gpu: FakeGpu):
    gpu.name = "emulator"
    result = bench()
    assert result.ret == Exit.NO_DEVICE
    result.stderr.fnmatch_lines(["error: --bench needs a GPU; device 'emulator' verifies bytes and has no clock"])
    assert not bench.run_dir.exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(["-n", "2"], "--bench runs in one process*"), (["-p", "no:benchmark"], "--bench needs pytest-benchmark*")],
    ids=" ".join,
)
def test_what_would_spoil_times_is_refused(bench: Benches, arguments: list[str], sentence: str):
    result = bench(*arguments)
    assert result.ret == Exit.USAGE
    result.stderr.fnmatch_lines([f"error: {sentence}"])


@pytest.mark.slow
@pytest.mark.parametrize(("version", "ends"), [("5.2.3", Exit.USAGE), ("4.0", Exit.USAGE), ("5.10.0rc1", Exit.CLEAN)])
def test_a_recorder_that_would_fail_at_the_end_is_refused(bench: Benches, monkeypatch, version: str, ends: Exit):
    monkeypatch.setattr(pytest_benchmark, "__version__", version)
    result = bench()
    assert result.ret == ends
    if ends:
        result.stderr.fnmatch_lines([f"error: --bench needs pytest-benchmark 5.3 or newer; {version}, which*"])
        assert not bench.run_dir.exists()


def test_a_disabled_recorder_is_an_error_and_not_a_time(bench: Benches):
    result = bench("--benchmark-disable")
    assert result.ret == Exit.USAGE
    result.stdout.fnmatch_lines(["pytest-benchmark is disabled, so nothing can be timed; *"])


OTHER_THAN_ITS_BASELINE = find_case("per_tensor/default/1024x2048/normal/eager")


def test_cases_are_timed_in_the_order_that_puts_baselines_first(bench: Benches, gpu: FakeGpu, monkeypatch):
    monkeypatch.setattr(
        harness.runner.bench_plugin, "baseline_first", lambda case: [-ord(letter) for letter in case.id]
    )
    bench("--set", "full")
    ran = [case_id for case_id in gpu.verified if case_id.startswith("toy/")]
    assert ran == sorted(ran, key=lambda case_id: [-ord(letter) for letter in case_id])


def test_the_baseline_of_a_shape_is_timed_before_what_is_compared_with_it():
    cases = [case for name in ("per_tensor", "row_scaled", "swizzle", "gemm") for case in suite_of(name).cases("bench")]
    order = [case.id for case in sorted(cases, key=baseline_first)]
    opponents = [baseline_id(case) for case in sorted(cases, key=baseline_first)]
    first = {name: order.index(name) for name in {*opponents} & {*order}}
    assert len(first) > 30
    assert all(first[name] <= at for at, name in enumerate(opponents) if name in first)


def test_the_baseline_compared_with_itself_is_one_and_measured_once(gpu: FakeGpu):
    case = next(case for case in suite_of("per_tensor").cases("bench") if case.id == baseline_of(case).id)
    bench = Bench(gpu, gpu.clock, 4000.0)
    verified = Result(case.id, case.recipe, Verdict.PASS)
    timed = bench.time(case, verified, in_turns(gpu.clock))
    assert timed.times["baseline_ratio"] == 1.0
    assert gpu.verified == []


def test_an_opponent_whose_timed_launches_write_nothing_has_no_time(gpu: FakeGpu):
    bench = Bench(gpu, gpu.clock, 4000.0)
    assert bench.ready(OTHER_THAN_ITS_BASELINE).why_not == ""
    gpu.lazy = True
    found = bench.ready(OTHER_THAN_ITS_BASELINE)
    assert (found.enqueue, found.why_not) == (None, "after timing, bytes differ in rowwise_data of copy 1 of 1")


def test_timed_launches_must_write_what_their_target_does(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch):
    """Where the matrix unit of an architecture has an order of its own, the interval is narrower."""
    anywhere = SimpleNamespace(on=lambda target: f"as on {target}")
    monkeypatch.setattr(harness.bench.bench, "expect", lambda case, where, numpy_largest: anywhere)
    monkeypatch.setattr(harness.bench.bench, "TimedKernels", lambda gpu, case, expected, *_: expected)
    assert Bench(gpu, gpu.clock, 4000.0)._prepare(OTHER_THAN_ITS_BASELINE) == "as on sm_90a"


def test_a_round_of_the_baseline_comes_before_every_round_of_the_case(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch):
    case = OTHER_THAN_ITS_BASELINE
    order: list[str] = []
    enqueue = FakeProgram.enqueue

    def noted(program: FakeProgram) -> None:
        order.append("case" if program.case_id == case.id else "baseline")
        enqueue(program)

    monkeypatch.setattr(FakeProgram, "enqueue", noted)
    timed = Bench(gpu, gpu.clock, 4000.0).time(case, Result(case.id, case.recipe, Verdict.PASS), in_turns(gpu.clock))
    assert order[-2 * timed.times["rounds"] :] == ["baseline", "case"] * timed.times["rounds"]
    assert timed.times["exposed"] == 0
    assert timed.times["baseline_percent"] == pytest.approx(MOVED / BASELINE_US / 1e3 / 4000 * 100, rel=0.01)


def test_a_round_with_a_low_clock_is_dropped_and_its_baseline_too(gpu: FakeGpu):
    case = OTHER_THAN_ITS_BASELINE
    gpu.clock.clocks = {5: 1200.0, 8: 1200.0}  # of the third round of the case, and of a round of the baseline
    timed = Bench(gpu, gpu.clock, 4000.0).time(case, Result(case.id, case.recipe, Verdict.PASS), in_turns(gpu.clock))
    assert (timed.times["rounds"], timed.times["dropped"], timed.times["mhz"]) == (FEWEST - 1, 1, 1980.0)
    assert "1 more dropped for a clock below 90% of the best" in timed.times["measured"]


@pytest.mark.parametrize(("low", "kept"), [(0, 20), (3, 17), (10, 10), (13, 20), (19, 20)])
def test_a_low_clock_is_dropped_unless_it_is_what_the_case_has(low: int, kept: int):
    """Under the power limit most rounds of a large product have one; the few others would tell a gate nothing."""
    rounds = [Round(1.0, 1500.0 if number < low else 1980.0, False, None) for number in range(FEWEST)]
    assert len(steady(rounds)) == kept


def test_a_round_whose_clock_could_not_be_read_is_not_kept_for_want_of_others():
    rounds = [Round(1.0, 1980.0 if number < 7 else 0.0, False, None) for number in range(FEWEST)]
    assert len(steady(rounds)) == 7
    assert len(steady([Round(1.0, 0.0, False, None)] * FEWEST)) == FEWEST


@pytest.mark.parametrize(
    ("flags", "per_element"),
    [
        ({"stage": "amax"}, 2),
        ({"stage": "encode", "outputs": "rowwise"}, 2 + 0.5625),
        ({"stage": "encode"}, 2 + 1.125),
        ({"stage": "full"}, 2 + 2 + 1.125),
        ({"stage": "full", "rht": True, "rounding": "sr"}, 2 + 2 + 1.125),
        ({"stage": "full", "dtype": "fp32", "outputs": "rowwise"}, 4 + 4 + 0.5625),
    ],
    ids=str,
)
def test_the_bytes_of_a_case_are_those_its_launches_are_bound_to(flags: dict, per_element: float):
    case = baseline_of(suite_of("per_tensor").cases("bench")[0])
    case = type(case)("per_tensor", case.defaults.replace(**flags), Dense(1024, 2048), defaults=case.defaults)
    size = 4 if case.flags.dtype == "fp32" else 2
    x = np.lib.stride_tricks.as_strided(np.zeros(1, f"u{size}"), (1024, 2048), (0, 0))
    scalars = {f"{direction}wise_amax": np.zeros(1, np.float32) for direction in ("row", "column")}
    inputs = {"input": x, **(scalars if case.flags.stage == "encode" else {})}
    moved = bytes_moved(plan(case), inputs, per_tensor.outputs(case))
    assert 0 <= moved - per_element * 1024 * 2048 <= 16  # the amaxes


@pytest.mark.parametrize(
    ("mode", "in_passes", "calls", "ran", "method"),
    [
        ("eager", False, 1, ["launch"], "a fake clock"),
        ("graph", False, 6, ["graph of 6"], "graphs of 6 calls, cold"),
        ("graph", True, 9, ["passes of 9"], "graphs of 9 calls, cold"),
    ],
)
def test_our_kernels_are_timed_as_the_mode_says(monkeypatch, mode: str, in_passes: bool, calls: int, ran: list, method):
    log, looked = [], []
    program = SimpleNamespace(steps=("one", "two"), enqueue=lambda: log.append("launch"))
    right = Outcome({"rowwise_data": np.full(4, 7, np.uint8)})
    rotation = SimpleNamespace(
        programs=[program], launches=[None] * 3, poison=lambda byte: log.append(f"poison {byte:#x}"),
        outcomes=lambda poison, order: looked.append(poison) or [("copy 1 of 3", right)],
        coldness=lambda clock, calls, us: "cold", filled=4.0,
    )  # fmt: skip

    def graph(name: str) -> SimpleNamespace:
        return SimpleNamespace(launch=lambda stream: log.append(name), calls=9)

    copies: list[int] = []
    for name, fake in {
        "CaseMemory": SimpleNamespace(upload=lambda *_: "memory"),
        "memories": lambda first, l2_bytes: [first] * 3,
        "Rotation": lambda device, case, memories, first: copies.append(len(memories)) or rotation,
        "bytes_moved": lambda *_: MOVED,
        "needs_of": lambda case, steps, inputs, fields, *more: Needs(MOVED, 0, 0, *more),
        "rotate": lambda clock, launches: (graph("graph of 6"), 6),
        "capture": lambda clock, launches, calls: None,
        "Passes": lambda clock, captured, copies: graph("passes of 9"),
    }.items():
        monkeypatch.setattr(harness.bench.timed, name, fake)
    clock = FakeClock()
    device = SimpleNamespace(properties={"l2CacheSize": 1 << 20}, accepts=lambda ours, theirs: (ours == theirs).all())
    expected = SimpleNamespace(inputs={}, **vars(EXPECTED))
    case = replace(suite_of("per_tensor").cases("bench")[0], mode=mode)
    timed = TimedKernels(device, case, expected, clock, in_passes)
    with timed.current():
        timed.begin()
        timed.enqueue()
    timed.check()
    assert (timed.calls, timed.launches, timed.moved, copies) == (calls, 2, MOVED, [1 if mode == "eager" else 3])
    assert timed.needs == Needs(MOVED, 0, 0, inf if mode == "eager" else 4.0, calls)
    assert log == ["poison 0x5a", *ran]
    assert looked == [0x5A]
    assert timed.method(1.0) == method


def test_what_loads_a_library_has_ended_before_others_use_its_workspace(monkeypatch):
    log: list[str] = []
    stream = SimpleNamespace(synchronize=lambda: log.append("wait"))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda: stream)))
    rotation = object.__new__(Rotation)
    rotation.programs = [SimpleNamespace(load_libraries=lambda: log.append("call"), launch=log.clear)]
    assert rotation.launches == [log.clear]
    assert log == ["call", "wait"]


def test_the_measured_copy_rate_is_that_of_the_copy(gpu: FakeGpu):
    assert harness.bench.roofline.copy_gbps(gpu.clock) == pytest.approx(4000)


def test_files_of_an_earlier_bench_stay(bench: Benches, pytester: pytest.Pytester):
    bench()
    before = Path(bench.run_dir / "bench.jsonl").read_text()
    assert bench().ret == Exit.USAGE
    assert Path(bench.run_dir / "bench.jsonl").read_text() == before


def test_the_energy_of_graphs_is_measured_if_it_is_asked_for(bench: Benches, gpu: FakeGpu, monkeypatch):
    asked = []

    def energy(queue, meter):
        asked.append(meter())
        return Energy(50.0, 2.0, meter().celsius)

    monkeypatch.setattr(harness.bench.bench, "measure", energy)
    gpu.energy_mj, gpu.celsius = lambda: 7, lambda: 40
    assert bench("--energy", "--set", "full").ret == Exit.CLEAN
    modes = {"eager": None, "graph": 50.0}
    assert asked == [Meter(7, 40)] * sum(each["case_id"].endswith("graph") for each in bench.records())
    for each in bench.records():
        assert each["times"].get("energy_uj") == modes[each["case_id"].rpartition("/")[2]]


def test_energy_is_of_graphs_of_our_kernels(bench: Benches, pytester: pytest.Pytester):
    result = bench("--energy", "--subject", "cuda_fp4")
    assert result.ret == Exit.USAGE and "--energy is of our kernels" in result.stderr.str()
    result = pytester.runpytest_inprocess("-p", "harness.plugin", "-p", "no:hypothesispytest", "--energy", "suites")
    assert result.ret == Exit.USAGE and "--energy goes with --bench" in result.stderr.str()


def test_a_time_that_its_bytes_do_not_allow_is_refused(bench: Benches, gpu: FakeGpu, monkeypatch):
    monkeypatch.setattr(FakeProgram, "needs", Needs(read=10**9))
    result = bench()
    assert result.ret == Exit.BYTES_DIFFER
    (record, *_) = bench.records()
    assert (record["verdict"], record["times"]) == ("IMPOSSIBLE", {})
    assert record["reason"].startswith("100.000 us cannot be: 1,000,000,000 bytes take 200.000 us at the least")
    assert bench.benchmarks() == []
