"""Fields that are bounded and not named byte for byte: what passes, and the verdict and the story of what does not."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import harness.verify.verify
from harness.contract.field import Field
from harness.contract.interval import LARGEST_ORDERED, Interval, inside, may_be_ordered, order
from harness.device.device import Outcome
from harness.device.emulator import EmulatorDevice
from harness.expected.expected import Expected, expect
from harness.suite.suite import find_case
from harness.verdict import Verdict
from harness.verify.diagnosis.trace import trace
from harness.verify.judge import POISONS
from harness.verify.verify import verify

F32, BF16 = np.float32, np.dtype(ml_dtypes.bfloat16)
CASE = find_case("gemm/dtype=fp32/16x32x16/normal/eager")
SHAPE = (16, 16)
TYPES = pytest.mark.parametrize("dtype", [BF16, np.dtype(F32)], ids=lambda dtype: dtype.name)


def bits(array):
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def accepts(low, high, value, dtype):
    low, high, value = (np.array([x], dtype) for x in (low, high, value))
    return bool(inside(bits(value), bits(low), bits(high), dtype.itemsize)[0])


@TYPES
def test_the_order_is_that_of_numbers(dtype):
    ascending = [-np.inf, -3, -1e-30, -0.0, 0.0, 1e-30, 1, 1.0078125, np.inf, np.nan]
    assert (np.diff(order(np.array(ascending, dtype)).astype(np.int64)) > 0).all()
    assert order(np.copysign(np.array([np.nan], dtype), -1))[0] < order(np.array([-np.inf], dtype))[0]
    patterns = np.arange(1 << 16, dtype=np.uint16)
    every = patterns[patterns & 0x7F80 != 0x7F80].view(BF16)
    finite, keys = every.astype(np.float64), order(every)
    assert (np.diff(finite[np.argsort(keys, kind="stable")]) >= 0).all()
    assert len(np.unique(keys)) == len(keys)


@TYPES
@pytest.mark.parametrize(
    ("low", "high", "value", "right"),
    [
        (1, 2, 1, True),
        (1, 2, 2, True),
        (1, 2, 1.5, True),
        (1, 2, 0.99609375, False),
        (1, 2, 2.015625, False),
        (-2, -1, -1.5, True),
        (-2, -1, 1.5, False),
        (-1, 1, -0.0, True),
        (0.0, 1, -0.0, False),
        (0.0, 0.0, -0.0, False),
        (-0.0, 0.0, 0.0, True),
        (1, np.inf, np.inf, True),
        (1, np.inf, np.nan, False),
        (-np.inf, np.inf, np.nan, False),
        (np.nan, np.nan, np.nan, True),
        (np.nan, np.nan, np.inf, False),
    ],
)
def test_what_is_inside(dtype, low, high, value, right):
    assert accepts(low, high, value, dtype) is right
    interval = Interval(np.array([low], dtype), np.array([high], dtype))
    assert EmulatorDevice().accepts(bits(np.array([value], dtype)), interval) is right


@TYPES
def test_a_nan_without_a_demand_is_never_inside(dtype):
    value = np.array([np.nan], dtype)
    for negative in (value, -value):
        interval = Interval(np.array([-np.inf], dtype), np.array([np.inf], dtype))
        assert not EmulatorDevice().accepts(bits(negative), interval)


@TYPES
def test_the_nearest_permitted_value(dtype):
    interval = Interval(np.array([1, 1, 1, -0.0], dtype), np.array([2, 2, 2, 0], dtype))
    written = np.array([0.5, 1.5, np.nan, -3], dtype)
    assert bits(interval.nearest(written)).tolist() == bits(np.array([1, 1.5, 2, -0.0], dtype)).tolist()


# Oracles


def exact(change: str = "", by: float = 0.0) -> Interval:
    """Intervals of two rows and three columns, of whose arrays one has another last entry."""
    low = np.array([[-1, 0, 1], [2, 3, 4]], F32)
    arrays = {
        "low": low, "high": low + 1, "sums": low.astype(np.float64), "sizes": np.full((2, 3), 8.0), "ordered": low,
    }  # fmt: skip
    if change:
        arrays[change] = arrays[change].copy()
        arrays[change][-1, -1] += by
    return Interval(**arrays)


TOLERATED = 2.0**-37  # of sizes of 8
BEYOND = TOLERATED * (1 + 2.0**-8)
EXACT, ENDS, ORDERED = "exact values", "intervals", "bytes in the order of a matrix unit"


@pytest.mark.parametrize(
    ("change", "by", "what"),
    [
        ("", 0, ""), ("sums", TOLERATED, ""), ("sizes", TOLERATED, ""),
        ("sums", BEYOND, EXACT), ("sizes", BEYOND, EXACT), ("sums", np.nan, EXACT), ("sizes", np.nan, EXACT),
        ("low", 2.0**-20, ENDS), ("high", 2.0**-20, ENDS), ("ordered", 2.0**-20, ORDERED),
    ],
)  # fmt: skip
def test_the_last_entry_on_which_oracles_disagree_is_found(change, by, what):
    said = f"1 {what}, first at [1, 2]" if what else ""
    one, other = exact(), exact(change, by)
    assert one.disagreement(other) == other.disagreement(one) == said
    assert one.disagreement(exact(change, -by)) == said


def test_two_oracles_with_a_nan_at_one_place_agree_and_their_ends_are_compared():
    assert exact("sums", np.nan).disagreement(exact("sums", np.nan)) == ""
    wrong = replace(exact("high", 1), sums=exact("sums", np.nan).sums)
    assert exact("sums", np.nan).disagreement(wrong) == f"1 {ENDS}, first at [1, 2]"


def test_ends_differ_where_sums_were_rounded_another_way():
    assert exact().disagreement(replace(exact("high", 1), sums=exact("sums", TOLERATED).sums)) == ""


def test_one_oracle_alone_has_an_order():
    without = replace(exact(), ordered=None)
    said = "only one of them has bytes in the order of a matrix unit"
    assert exact().disagreement(without) == without.disagreement(exact()) == said
    assert without.disagreement(without) == ""


def test_each_array_keeps_its_place():
    names, whole = ("low", "high", "sums", "sizes", "ordered"), exact()
    for name in names:
        assert getattr(whole.map(lambda array: array), name) is getattr(whole, name)
    halves = [whole.map(lambda array, row=row: array[row : row + 1]) for row in (0, 1)]
    joined = Interval.joined(halves, np.concatenate)
    assert all(np.array_equal(getattr(joined, name), getattr(whole, name)) for name in names)
    part = Interval.joined([halves[0], halves[1].bounds], np.concatenate)
    assert (part.sums, part.sizes) == (None, None) and np.array_equal(part.ordered, whole.ordered)
    assert whole.on("sm_90a") is whole.ordered and whole.on("sm_100a") is whole
    assert whole.bounds.on("sm_90a") is whole.ordered and replace(whole, ordered=None).on("sm_90a").ordered is None
    assert LARGEST_ORDERED == 1024 * 512 * 512
    assert may_be_ordered(LARGEST_ORDERED) and not may_be_ordered(LARGEST_ORDERED + 1)


# Verdicts


class FakeDevice:
    """Writes what it is given, a run at a time; `eager` is what an eager launch of a graph case writes."""

    name, targets, modes, subject_label = "fake", ("sm_90a",), frozenset({"eager", "graph"}), ""
    accepts, to_host, reserve = EmulatorDevice.accepts, EmulatorDevice.to_host, EmulatorDevice.reserve

    def __init__(self, *runs, eager=None):
        self.runs, self.eager, self.trespass = runs, eager, ""
        self.ran = []  # mode, poison and number of each run

    def admit(self, case):
        """Everything."""

    def prepare(self, case, target, inputs, fields):
        runs = self.runs if self.eager is None or case.mode == "graph" else [self.eager]

        def run(poison, repeat):
            self.ran.append((case.mode, poison, repeat))
            return Outcome({"output": bits(runs[repeat % len(runs)])}, self.trespass)

        return SimpleNamespace(kernels=(), run=run, resplit=lambda inputs, fields: None)


@pytest.fixture
def demanded(monkeypatch):
    low = np.linspace(-1, 1, 256, dtype=F32).reshape(SHAPE)
    interval = Interval(low, low + F32(0.25))
    inputs = expect(CASE).inputs
    expected = Expected(inputs, {"output": Field(SHAPE, "float32")}, {"output": interval}, ("numpy", "torch"))
    monkeypatch.setattr(harness.verify.verify, "expect", lambda *_: expected)
    monkeypatch.setattr(harness.verify.verify, "other_expected", lambda *_: None)
    return interval


def between(interval, part):
    return interval.low + F32(part) * (interval.high - interval.low)


def test_what_is_inside_and_the_same_each_time_passes(demanded):
    for part in (0, 0.3, 1):
        result = verify(CASE, FakeDevice(between(demanded, part)))
        assert (result.verdict, result.bytes_compared) == (Verdict.PASS, len(POISONS) * 1024)


def test_what_is_inside_and_differs_between_runs_does_not(demanded):
    one, other = between(demanded, 0.3), between(demanded, 0.3)
    other[2, 5] = demanded.high[2, 5]
    result = verify(CASE, FakeDevice(one, one, other))
    assert result.verdict is Verdict.NONDETERMINISTIC
    assert "runs on the same input differ in output" in result.reason
    assert "1 of 256 entries differ" in result.story
    assert "first     [2, 5], row 2 of A by row 5 of B" in result.story
    assert "cause     differs between runs" in result.story
    assert [line.split()[0] for line in result.story.splitlines()[3:5]] == ["one", "another"]


def test_a_graph_must_write_what_an_eager_launch_writes(demanded):
    case = replace(CASE, mode="graph")
    one, other = between(demanded, 0.3), between(demanded, 0.3)
    other[2, 5] = demanded.high[2, 5]
    device = FakeDevice(one, eager=one)
    assert verify(case, device).verdict is Verdict.PASS
    assert device.ran[3:] == [("graph", 0xA5, 0), ("eager", 0xA5, 0)]  # in one order, and on one poison
    result = verify(case, FakeDevice(one, eager=other))
    assert result.verdict is Verdict.NONDETERMINISTIC
    assert result.reason == "sm_90a: the graph and an eager launch differ in output"
    assert "first     [2, 5]" in result.story


def test_what_is_outside_is_told_with_its_interval_and_by_how_much(demanded):
    wrong = between(demanded, 0.5)
    wrong[2, 5] = demanded.high[2, 5] + F32(0.125)
    wrong[9, 9] = demanded.low[9, 9] - F32(0.5)
    result = verify(CASE, FakeDevice(wrong))
    assert (result.verdict, result.times) == (Verdict.MISMATCH, {})
    assert result.reason == "sm_90a: values are outside their intervals in output"
    low, high = float(demanded.low[2, 5]), float(demanded.high[2, 5])
    assert "output float32 (16, 16): 2 of 256 entries are outside their intervals (0.781 %)" in result.story
    assert "first     [2, 5], row 2 of A by row 5 of B" in result.story
    assert f"= {low:.9g} at least, 0x" in result.story
    assert f"= {high:.9g} at most" in result.story
    assert f"= {float(wrong[2, 5]):.9g}\n" in result.story
    assert "beyond    0.125 above the highest, " in result.story
    assert "of float32, 0.5 times the interval\nfurthest  [9, 9], 0.5 below the lowest\n" in result.story
    assert all(len(line) <= 110 for line in result.story.splitlines())


def test_a_nan_is_outside(demanded):
    wrong = between(demanded, 0.5)
    wrong[3, 3] = np.nan
    result = verify(CASE, FakeDevice(wrong))
    assert result.verdict is Verdict.MISMATCH
    assert "beyond    a NaN where there may be none" in result.story


def test_what_was_not_written_is_unwritten(demanded):
    runs = []
    for poison in POISONS:
        run = between(demanded, 0.5)
        run[4:] = np.frombuffer(bytes([poison] * 4), F32)[0]
        runs.append(run)
    assert verify(CASE, FakeDevice(*runs)).verdict is Verdict.UNWRITTEN


def test_a_trespass_is_one(demanded):
    device = FakeDevice(between(demanded, 0.5))
    device.trespass = "input 'a_data' was changed by the kernel"
    assert verify(CASE, device).verdict is Verdict.OUT_OF_BOUNDS


# Traces


def test_a_trace_shows_the_interval_beside_the_kernel():
    expected = expect(CASE)
    interval = expected.values["output"]
    right = {"output": interval.low}
    wrong = {"output": np.nextafter(interval.low, F32(-np.inf))}
    text = " ".join(trace(CASE, "output", (3, 4), right, expected.inputs).split())
    assert f"{float(interval.low[3, 4]):.6g}" in text
    assert f"{float(interval.high[3, 4]):.6g}" in text
    assert "all agree on this block" in text
    assert "first difference from the steps: kernel at output" in trace(CASE, "output", (3, 4), wrong, expected.inputs)
