"""Sums in the order of Hopper's matrix unit: both oracles against the published model, taken step by step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from products import BOTH, by, drawn

from evidence.matrix_sums.model import fused_sum
from harness.contract.interval import Interval, order
from harness.device.emulator import EmulatorDevice
from harness.expected.expected import expect
from harness.files import KERNELS
from harness.oracles import gemm, gemm_grouped, gemm_hopper, gemm_ordered, torch_gemm_bounds
from harness.suite.suite import find_case
from harness.verdict import Verdict
from harness.verify.verify import verify

F32 = np.float32
CASES = [  # a part of a stage, several stages in each part of K, rows of either kernel, each epilogue's sum
    "gemm/dtype=fp32/16x48x16/wide_sum/eager",
    "gemm/dtype=fp32/8x1296x16/wide_sum/eager",
    "gemm/dtype=fp32/80x400x16/wide_sum/eager",
    "gemm/epilogue=row_scaled,dtype=fp32,bias=true,accumulate=true/65x272x32/wide_sum/eager",
    "gemm/epilogue=windows,dtype=fp32/20x192x64/wide_sum/eager",
    "gemm/dtype=fp32/17x144x16/row_scales/eager",
    "gemm/dtype=fp32/16x144x16/specials_nan/eager",
]


def summed(a: np.ndarray, b: np.ndarray, steps: list[list[int]]) -> np.ndarray:
    """(M, N) float32: what the unit has after these steps, from +0 on. a, b: codes times scales"""
    shape = len(a), len(b)
    acc = np.zeros(shape[0] * shape[1], F32)
    for step in steps:
        left, right = ((x[:, step] / 128).astype(np.float16) for x in (a, b))
        pairs = (np.broadcast_to(x, (*shape, 16)).reshape(-1, 16) for x in (left[:, None], right[None]))
        acc = fused_sum(*pairs, acc).view(F32)
    return acc.reshape(shape)


def output(case, tensors) -> np.ndarray:
    a, b = (gemm._values(case, tensors, name) for name in "ab")
    if case.flags.epilogue == "windows":
        acc = np.zeros((len(a), len(b)), F32)
        for w in range(case.cols // 64):
            of_window = [[64 * w + 16 * t + 8 * h + p + 2 * i for t in range(4) for i in range(4)]
                         for h in range(2) for p in range(2)]  # fmt: skip
            own = summed(a, b, of_window) * F32(16384)
            acc += (tensors["a_amax"][:, w, None] * tensors["b_amax"][:, w]) * own
    else:
        filled = [np.pad(x, ((0, 0), (0, -case.cols % 128))) for x in (a, b)]
        splits, acc = 4 if case.rows <= 64 else 1, np.zeros((len(a), len(b)), F32)
        for part in range(splits):
            acc += summed(*filled, [
                [128 * stage + 16 * (2 * t + half) + 8 * word + parity + 2 * i for t in range(4) for i in range(4)]
                for stage in range(part, filled[0].shape[1] // 128, splits)
                for half in range(2) for word in range(2) for parity in range(2)
            ])  # fmt: skip
        acc *= F32(16384)
    return gemm_ordered.epilogue(case, tensors, slice(None), acc)


@BOTH
@pytest.mark.parametrize("case_id", CASES)
def test_the_order_is_the_contracts_and_inside_the_interval(case_id, ask):
    case = find_case(case_id)
    tensors = drawn(case)
    found = by(ask, case, tensors)
    with np.errstate(all="ignore"):
        right = output(case, tensors)
    np.testing.assert_array_equal(order(found.ordered), order(right))
    assert ((order(found.low) <= order(right)) & (order(right) <= order(found.high))).all()


@BOTH
def test_other_orders_are_others(ask, monkeypatch):
    """24 bits in place of 25, and K in two parts in place of four."""
    case = find_case("gemm/dtype=fp32/8x1296x16/wide_sum/eager")
    tensors = drawn(case)
    right = by(ask, case, tensors).ordered
    with monkeypatch.context() as patch:
        patch.setattr(gemm_hopper, "FRACTION", 24)
        patch.setattr(torch_gemm_bounds, "_KEPT", 24)
        assert (by(ask, case, tensors).ordered != right).any()
    monkeypatch.setattr(gemm, "SKINNY_SPLITS", 2)
    monkeypatch.setattr(torch_gemm_bounds, "parts_of_k", lambda case: 2)
    assert (by(ask, case, tensors).ordered != right).any()


@BOTH
@pytest.mark.parametrize("flags", ["layout=nt,shape_representation=varying_last_dim", "default"])
def test_a_group_has_the_order_of_the_kernel_that_splits_nothing(flags, ask):
    shape = "16x0+384+48x32" if "nt" in flags else "33+0+5x400x16"
    case = find_case(f"gemm_grouped/{flags}/{shape}/wide_sum/eager")
    tensors = drawn(case)
    found, start = by(ask, case, tensors).ordered, 0
    for g, part in enumerate(case.parts):
        rows = slice(start, start + part.rows)
        start += part.rows
        if part.rows and part.cols:
            own = gemm.numpy_answer(part, gemm_grouped.inputs_of(case, tensors, g), 1)["output"]
            np.testing.assert_array_equal(order(found[rows]), order(own.ordered))


@pytest.mark.parametrize(
    ("case_id", "known"),
    [
        ("gemm/default/1024x512x512/normal/eager", True),
        ("gemm/default/1040x512x512/normal/eager", False),
        ("gemm/route=library/128x128x128/normal/eager", False),
        ("gemm/route=fastest/512x128x128/normal/eager", True),
        ("gemm/route=fastest/513x128x128/normal/eager", False),
    ],
)
def test_where_an_order_is_stated(case_id, known):
    assert gemm.has_order(find_case(case_id)) == known


@BOTH
def test_a_library_has_an_interval_alone(ask):
    case = find_case("gemm/route=library/16x48x16/wide_sum/eager")
    assert by(ask, case, drawn(case)).ordered is None


@BOTH
@pytest.mark.parametrize("drawing", ["exact_sum", "zeros"])
def test_a_zero_that_a_library_scaled_has_either_sign(ask, drawing):
    case = find_case(f"gemm/route=library,dtype=fp32/112x128x96/{drawing}/eager")
    given = by(ask, case, drawn(case))
    zeros = np.asarray(given.low) == 0
    assert zeros.any() and np.signbit(given.low[zeros]).all() and not np.signbit(given.high[zeros]).any()
    assert (np.asarray(given.low)[~zeros] == np.asarray(given.high)[~zeros]).all()
    with_a_bias = find_case("gemm/route=library,dtype=fp32,bias=true/112x128x96/exact_sum/eager")
    assert isinstance(by(ask, with_a_bias, drawn(with_a_bias)), np.ndarray)


def test_oracles_that_differ_in_the_order_disagree():
    one = np.array([1, 2], F32)
    both = Interval(one, one + 1, one, one, one)
    assert both.disagreement(both) == ""
    assert "only one of them" in both.disagreement(replace(both, ordered=None))
    wrong = replace(both, ordered=np.array([1, 3], F32))
    assert both.disagreement(wrong) == "1 bytes in the order of a matrix unit, first at [1]"


def test_hopper_is_held_to_bytes_and_other_chips_to_the_interval():
    expected = expect(find_case("gemm/default/80x48x16/wide_sum/eager"))
    assert isinstance(expected.on("sm_90a").values["output"], np.ndarray)
    assert isinstance(expected.on("sm_100a").values["output"], Interval)


@pytest.mark.slow
def test_a_kernel_that_sums_in_another_order_is_told(tmp_path):
    """The kernel's products are right, but it adds those of a block's upper half first."""
    kernels = tmp_path / "kernels"
    for path in KERNELS.rglob("*.cu*"):
        copy = kernels / path.relative_to(KERNELS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text().replace("[step / 2]", "[step / 2 ^ 1]"))
    found = verify(find_case("gemm/default/80x48x16/wide_sum/eager"), EmulatorDevice(kernels=kernels))
    assert found.verdict is Verdict.MISMATCH and found.reason == "sm_90a: bytes differ in output"
