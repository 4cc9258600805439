"""Calls of GPU libraries: how cuBLAS is called, by a stand-in that computes what it is asked for, and the suites'."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from contextlib import nullcontext
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from fake_clock import FakeClock, in_turns
from suite_files import assert_mistake, written

import harness.bench.baseline
import harness.bench.bench
from harness.bench import baseline, cold_copies, roofline
from harness.bench.baseline import product
from harness.bench.bench import Bench
from harness.bench.timed import Timed
from harness.device import cublas
from harness.errors import LaunchError
from harness.suite.instantiations import instantiations
from harness.suite.launch_plan import bind, plan, scratch_and_workspace
from harness.suite.suite import find_case, suite_of
from harness.verdict import Result, Verdict

CASE = find_case("gemm/route=library,epilogue=per_token/128x128x256/normal/eager")
WITH_C = find_case("gemm/route=library,beta=0.5/128x128x256/normal/eager")
BF16 = np.dtype(ml_dtypes.bfloat16)
KINDS = {0: np.dtype(np.float32), 14: BF16}


class FakeCublas:
    """cublasGemmEx on host memory, columns first, as its manual says. `calls` in their order; `status` of all."""

    def __init__(self):
        self.calls: list[str] = []
        self.status = 0

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append(name)
            return self.status

        return call

    def cublasGemmEx(  # noqa: N802 - as the library calls it
        self,
        handle,
        transa,
        transb,
        m,
        n,
        k,
        alpha,
        a,
        a_kind,
        lda,
        b,
        b_kind,
        ldb,
        beta,
        c,
        c_kind,
        ldc,
        compute,
        algo,
    ):
        """C (m, n) = alpha * op(A) * op(B) + beta * C"""
        self.calls.append("cublasGemmEx")
        scale, nothing = (ctypes.c_float.from_address(pointer.value).value for pointer in (alpha, beta))
        assert (compute, algo, nothing) == (68, -1, 0)

        def matrix(pointer, kind, leading, columns):
            kind = KINDS[kind]
            memory = (ctypes.c_char * (leading * columns * kind.itemsize)).from_address(pointer.value)
            return np.frombuffer(memory, kind).reshape(columns, leading).T

        op_a = matrix(a, a_kind, lda, m if transa else k)[: k if transa else m]
        op_b = matrix(b, b_kind, ldb, k if transb else n)[: n if transb else k]
        op_a, op_b = (x.T if flag else x for x, flag in ((op_a, transa), (op_b, transb)))
        result = np.float32(0) + np.float32(scale) * (op_a.astype(np.float32) @ op_b.astype(np.float32))
        matrix(c, c_kind, ldc, n)[:m] = result
        return self.status


@pytest.fixture
def stand_in(monkeypatch):
    fake = FakeCublas()
    memory = SimpleNamespace(data=SimpleNamespace(ptr=4096))
    cuda = SimpleNamespace(Device=lambda: SimpleNamespace(id=0), get_current_stream=lambda: SimpleNamespace(ptr=77))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, empty=lambda *_: memory, uint8=np.uint8))
    monkeypatch.setattr(cublas, "_load", lambda: fake)
    cublas._opened.cache_clear()
    yield fake
    cublas._opened.cache_clear()


@pytest.mark.parametrize(("m", "k", "n"), [(1, 16, 48), (5, 32, 16), (64, 16, 32)])
def test_the_product_is_that_of_rows_by_rows(stand_in, m, k, n):
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-8, 8, shape).astype(BF16) for shape in ((m, k), (n, k)))
    for kind, dtype in KINDS.items():
        out = np.full((m, n), np.nan, dtype)
        cublas.gemm(a.ctypes.data, b.ctypes.data, out.ctypes.data, kind, m, k, n)
        expected = a.astype(np.float32) @ b.astype(np.float32).T
        np.testing.assert_array_equal(out.astype(np.float32), expected.astype(dtype).astype(np.float32))


def test_the_stream_comes_before_its_workspace_and_a_handle_is_made_once(stand_in):
    x = np.zeros((16, 16), np.float32)
    for _ in range(2):
        cublas.gemm(x.ctypes.data, x.ctypes.data, x.ctypes.data, 0, 1, 16, 16)
    once = ["cublasSetStream_v2", "cublasSetWorkspace_v2", "cublasSetPointerMode_v2", "cublasGemmEx"]
    assert stand_in.calls == ["cublasCreate_v2", *once, *once]


def test_a_status_is_a_launch_error(stand_in):
    stand_in.status = 13
    with pytest.raises(LaunchError, match="cublasCreate returned status 13"):
        cublas.gemm(0, 0, 0, 0, 1, 16, 16)


def test_a_launch_binds_the_library_by_the_names_of_its_arguments(stand_in):
    for case, names in ((WITH_C, ["acc"]), (CASE, ["factor", "output"])):
        step = plan(case)[1]
        arrays = {name: f"<{name}>" for name in (*scratch_and_workspace(plan(case))[1], "output")}
        bound = [f"<{name}>" for name in ("a_decoded", "b_decoded", *names)]
        assert step.library
        assert [value for _, value in bind(step, arrays)] == [*bound, 128, 128, 256]
    a, b, acc = np.ones((128, 128), BF16), np.full((256, 128), 2, BF16), np.zeros((128, 256), np.float32)
    cublas.call_of("cublas_gemm", "bf16")(*(x.ctypes.data for x in (a, b, acc)), 128, 128, 256)
    assert (acc == 256).all()


@pytest.mark.parametrize("dtype", [BF16, np.dtype(np.float32)])
def test_a_factor_is_read_where_it_lies_and_a_zero_is_positive(stand_in, dtype):
    a, b, factor = np.ones((16, 16), BF16), np.full((32, 16), 2, BF16), np.array([-0.5, 0], np.float32)
    a[1] = 0
    output = np.full((16, 32), np.nan, dtype)
    call = cublas.call_of("cublas_scaled_gemm", "bf16" if dtype == BF16 else "fp32")
    call(*(x.ctypes.data for x in (a, b, factor, output)), 16, 16, 32)
    expected = np.full((16, 32), -16, np.float32)
    expected[1] = 0
    assert output.astype(np.float32).tobytes() == expected.tobytes()


def test_the_launches_of_every_route_and_their_memory():
    def launched(case_id):
        return [step.signature.name for step in plan(find_case(case_id))]

    assert launched(CASE.id) == ["gemm_decode", "cublas_scaled_gemm", "gemm_post_scale"]
    assert launched("gemm/default/64x16x16/normal/eager") == ["gemm_skinny_decode", "gemm_skinny"]
    assert launched("gemm/default/65x16x16/normal/eager") == ["gemm"]
    per_token = ["gemm_skinny_decode", "gemm_skinny", "gemm_post_scale"]
    assert launched("gemm/epilogue=per_token/1x128x128/normal/eager") == per_token
    assert launched("gemm/route=fastest/64x16x16/normal/eager") == ["gemm_skinny_decode", "gemm_skinny"]
    assert launched("gemm/route=fastest/65x16x16/normal/eager") == ["gemm"]
    assert launched("gemm/route=fastest/512x16x16/normal/eager") == ["gemm"]
    assert launched("gemm/route=fastest/513x16x16/normal/eager") == ["gemm_decode", "cublas_scaled_gemm"]
    with_sums = ["gemm_decode", "cublas_gemm", "gemm_epilogue"]
    for flags in ("beta=0.5", "bias=true", "epilogue=row_scaled", "epilogue=per_token_fused"):
        for route in ("library", "fastest"):
            assert launched(f"gemm/route={route},{flags}/528x16x16/normal/eager") == with_sums
    decoded = {"a_decoded": 2 * 128 * 128, "b_decoded": 2 * 256 * 128, "factor": 8}
    assert scratch_and_workspace(plan(CASE))[1] == decoded
    assert scratch_and_workspace(plan(WITH_C))[1] == {**decoded, "acc": 4 * 128 * 256}


def test_a_library_is_not_compiled():
    assert {job.signature.path.suffix for job in instantiations(("bench",), ("sm_90a",))} == {".cu"}


# Suites

TEXT = """\
recipe: routed
contract: NUMERICS 0
gemm: true
axes: {dtype: [bf16]}
launches:
  - library: cublas_gemm
  - kernel: small
    rows_at_most: 4
  - kernel: large
    rows_above: 4
sets: {smoke: &one [{shapes: [[4, 16, 16], [5, 16, 16]], inputs: [normal]}], full: *one, bench: *one}
"""


def test_launches_by_rows(tmp_path):
    suite = written(tmp_path, TEXT)
    names = [[launch.name for launch in suite.launches(case)] for case in suite.cases("smoke")]
    assert names == [["cublas_gemm", "small"], ["cublas_gemm", "large"]]


@pytest.mark.parametrize(
    ("old", "new", "line", "sentence"),
    [
        ("library: cublas_gemm", "library: cublas_gem", 6, "no library call 'cublas_gem'; did you mean 'cublas_gemm'?"),
        ("- kernel: small", "- kernel: small\n    library: cublas_gemm", 7, "either the key 'kernel' or the key 'lib"),
        ("- kernel: small\n   ", "-", 7, "a launch has either the key 'kernel' or the key 'library'"),
        ("rows_above: 4", "rows_above: none", 10, "rows_above has 'none' where a positive integer belongs"),
        ("rows_above", "rows_over", 10, "unknown key 'rows_over'; did you mean 'rows_above'?"),
    ],
)
def test_a_mistake_in_a_launch(tmp_path, old, new, line, sentence):
    assert_mistake(tmp_path, TEXT, (old, new), sentence, line)


# The baseline of a GEMM


class CapturingClock(FakeClock):
    """One whose stream captures a graph, which takes its own time to launch."""

    def __init__(self):
        super().__init__()
        self.stream = nullcontext(SimpleNamespace(begin_capture=self.begin, end_capture=self.end))
        self.captured = None

    def begin(self):
        self.captured = []

    def end(self):
        calls, self.captured = len(self.captured), None
        return SimpleNamespace(calls=calls, launch=lambda stream: self.pass_time(50e-6 * calls))

    def pass_time(self, seconds):
        if self.captured is not None:
            self.captured.append(seconds)
        else:
            self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    fake = CapturingClock()
    monkeypatch.setattr(cublas, "bf16_product", lambda m, k, n: lambda: fake.pass_time(60e-6))
    monkeypatch.setattr(cold_copies, "graph_us", lambda clock, graph: 50.0 * graph.graph.calls)
    return fake


@pytest.mark.parametrize(("mode", "microseconds"), [("eager", 60), ("graph", 50)])
def test_a_gemm_is_held_against_a_product_launched_alike(clock, monkeypatch, mode, microseconds):
    case = find_case(f"gemm/default/1024x1024x1024/normal/{mode}")

    class TimedCase(Timed):
        program = SimpleNamespace(kernels=(), grids=(), early=(), libraries=())
        calls, launches, moved = 1, 0, 0

        def current(self):
            return nullcontext()

        def enqueue(self):
            clock.pass_time(100e-6)

        def method(self, us):
            return ""

    device = SimpleNamespace(identity=lambda: {"l2_bytes": "52428800"}, condition=dict, targets=("sm_90a",))
    monkeypatch.setattr(harness.bench.bench, "expect", lambda *_: SimpleNamespace(on=lambda target: None))
    monkeypatch.setattr(harness.bench.bench, "TimedKernels", lambda *_: TimedCase())

    bench = Bench(device, clock, 4000.0)
    times = bench.time(case, Result(case.id, case.recipe, Verdict.PASS), in_turns(clock)).times
    assert times["baseline"] == f"cublas/bf16/1024x1024x1024/normal/{mode}"
    assert times["baseline_us"] == pytest.approx(microseconds)
    assert times["baseline_ratio"] == pytest.approx(microseconds / 100)
    assert times["tflops"] == pytest.approx(2 * 1024**3 / 100e-6 / 1e12, rel=0.01)
    assert times["baseline_percent"] == pytest.approx(3 * 2 * 1024**2 / microseconds / 1e3 / 4000 * 100, rel=0.01)


class Lent:
    """Stands for memory on the GPU."""


@pytest.mark.parametrize("opponent", ["copy", "product"])
def test_a_graph_keeps_the_memory_that_it_writes(clock, monkeypatch, opponent):
    lent = []

    def call(*_):
        memory = Lent()
        lent.append(weakref.ref(memory))
        return lambda: (clock.pass_time(50e-6), memory)

    monkeypatch.setattr(roofline, "copier", call)
    monkeypatch.setattr(cublas, "bf16_product", call)
    if opponent == "copy":
        enqueue, _ = baseline.copy_of(1 << 20, clock, 50 << 20, "graph")
    else:
        enqueue, _ = baseline.product(find_case("gemm/default/1024x1024x1024/normal/graph"), clock, 50 << 20)
    gc.collect()
    assert len(lent) > 1
    assert all(memory() is not None for memory in lent)
    del enqueue
    gc.collect()
    assert not any(memory() for memory in lent)


def test_without_the_library_there_is_no_ratio_and_a_reason(clock, monkeypatch):
    def fail(case, clock, l2_bytes):
        raise LaunchError("cuBLAS cannot be loaded")

    monkeypatch.setattr(harness.bench.bench, "product", fail)
    baseline = Bench(SimpleNamespace(identity=lambda: {"l2_bytes": "1"}), clock, 4000.0)._baseline(
        find_case("gemm/default/64x64x64/normal/eager")
    )
    assert (baseline.enqueue, baseline.why_not) == (None, "cuBLAS cannot be loaded")


def test_a_graph_of_products_is_of_as_many_operands_as_it_takes_to_come_from_memory(clock, monkeypatch):
    made = []
    monkeypatch.setattr(
        cublas, "bf16_product", lambda *extents: made.append(extents) or (lambda: clock.pass_time(1e-3))
    )
    enqueue, calls = product(find_case("gemm/default/1024x1024x1024/normal/graph"), clock, l2_bytes=50 << 20)
    assert made == [(1024, 1024, 1024)] * 26  # of 6 MiB each, and one more than fill three times the L2
    assert calls == 26
    assert clock.now == pytest.approx(1e-3)  # a first call, and not the captured ones
    enqueue()
    assert clock.now == pytest.approx(1e-3 + 26 * 50e-6)


def test_other_recipes_keep_their_baseline():
    case = suite_of("per_token").cases("bench")[0]
    assert harness.bench.baseline.baseline_id(case).startswith("per_tensor/rht=true,rounding=sr/")
