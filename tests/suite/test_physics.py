"""Times that physics does not allow are refused; those of honest kernels, however fast, are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.expected.expected import fields_of, make_inputs
from harness.suite.launch_plan import plan
from harness.suite.physics import (
    MEMORY,
    Needs,
    arrays_moved,
    bytes_moved,
    impossible,
    least_us,
    operations,
    peak_tflops,
)
from harness.suite.suite import find_case, suite_of

L2, COPY, MIB = 60 << 20, 4200.0, 1 << 20


def test_what_comes_from_memory_takes_its_bytes_at_a_little_more_than_the_copy():
    behind_a_flush = Needs(read=512 * MIB)
    least = 512 * MIB / (MEMORY * COPY * 1e3)
    assert least_us(behind_a_flush, L2, COPY, 0) == pytest.approx(least)
    # An H200 reads 4.8 TB/s by its data sheet, and copies 4.2.
    assert impossible(512 * MIB / 4.8e6, behind_a_flush, L2, COPY, 0) == ""
    assert impossible(0.99 * least, behind_a_flush, L2, COPY, 0).startswith("101.2")


def test_outputs_may_stay_in_the_l2_once_a_round():
    needs = Needs(read=0, written=200 * MIB)
    once, seven_times = (least_us(replace(needs, calls=calls), L2, COPY, 0) for calls in (1, 7))
    assert once == pytest.approx(140 * MIB / (MEMORY * COPY * 1e3))
    assert seven_times == pytest.approx((200 * MIB - L2 / 7) / (MEMORY * COPY * 1e3))


def test_what_may_stay_in_the_l2_has_a_floor_of_its_own():
    needs = Needs(read=8 * MIB, written=MIB // 2, filled=0.5, calls=100)
    least = least_us(needs, L2, COPY, 0)
    assert least == pytest.approx(8.5 * MIB / 4 / COPY / 1e3)
    assert impossible(least / 2, needs, L2, COPY, 0)


def test_products_have_a_floor_of_operations():
    needs = Needs(read=MIB, written=MIB, operations=2 * 8192**3)
    peak = peak_tflops("sm_90a", 132, 1980.0)
    assert peak == pytest.approx(2141, rel=0.001)  # the 1,979 of the data sheet are at a lower clock
    assert "operations" in impossible(500.0, needs, L2, COPY, peak)
    assert impossible(600.0, needs, L2, COPY, peak) == ""


@pytest.mark.parametrize(
    ("target", "per_clock"), [("sm_80", 4096), ("sm_86", 4096), ("sm_100a", 32768), ("sm_120a", 32768), ("host", 0)]
)
def test_the_peak_of_a_chip(target: str, per_clock: int):
    assert peak_tflops(target, 1, 1e6) == per_clock


@pytest.mark.parametrize(
    "case_id",
    [
        "per_tensor/default/48x80/normal/graph",
        "per_tensor/outputs=rowwise,stage=amax/48x80/normal/graph",
        "per_token/default/48x80/normal/graph",
        "grouped/default/128+0+128x128/normal/graph",
        "gemm/default/112x128x96/normal/graph",
        "dequantize/default/48x80/normal/graph",
    ],
)
def test_no_array_is_needed_that_no_launch_moves(case_id: str):
    case = find_case(case_id)
    inputs, fields = make_inputs(case), fields_of(case)
    read, written = arrays_moved(plan(case), inputs, fields)
    assert 0 < read <= sum(array.nbytes for array in inputs.values())
    assert written == sum(field.nbytes for field in fields.values())
    assert read + written <= bytes_moved(plan(case), inputs, fields)
    assert bool(operations(case)) == case.is_gemm


def test_a_product_needs_both_operands_and_two_operations_for_each_term():
    case = find_case("gemm/default/112x128x96/normal/graph")
    inputs, fields = make_inputs(case), fields_of(case)
    read, written = arrays_moved(plan(case), inputs, fields)
    assert (read, written) == (sum(array.nbytes for array in inputs.values()), 2 * 112 * 96)
    assert operations(case) == 2 * 112 * 128 * 96


def test_every_case_of_the_bench_could_be_as_fast_as_its_bytes_at_the_data_sheet():
    for case in suite_of("swizzle").cases("bench")[:4]:
        inputs, fields = make_inputs(case), fields_of(case)
        moved = bytes_moved(plan(case), inputs, fields)
        needs = Needs(*arrays_moved(plan(case), inputs, fields), calls=64)
        assert impossible(moved / 4.8e6, needs, L2, COPY, 0) == "" or np.isnan(moved)
