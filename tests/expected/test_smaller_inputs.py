"""The other input of a case: every amax is smaller, and what is expected of it is what the oracles say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from harness.contract.case import Case
from harness.contract.dtypes import DTYPES
from harness.contract.interval import Demand, Interval
from harness.device.emulator import EmulatorDevice
from harness.expected.expected import Expected, expect, fields_of, make_inputs, oracle_of
from harness.expected.other_input import WORDS, follow, other_expected, other_inputs, smaller
from harness.expected.prepared import SOURCE
from harness.inputs.draw import make
from harness.oracles import nvfp4, powers_of_two
from harness.suite.suite import find_case, suite_of
from harness.verify.verify import verify

FOLLOWING = (
    "per_tensor", "row_scaled", "local_1x64", "four_over_six", "per_token", "grouped", "dequantize", "gemm",
    "gemm_ordered", "gemm_grouped", "forward", "backward", "forward_grouped", "backward_grouped",
)  # fmt: skip
MOST = 12  # combinations; with more, which take the test minutes on a busy machine, all flags of all recipes hold


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["normal", "outliers_cols", "huge", "subnormal", "rht_adversarial", "specials_inf"])
def test_every_amax_is_smaller(name: str, dtype: str):
    x = make(name, 64, 96, dtype, 5)
    y = smaller(x)
    assert (y.shape, y.dtype) == (x.shape, x.dtype) and np.isfinite(y.astype(np.float32)).all()
    x, y = (np.nan_to_num(np.abs(each.astype(np.float64)), nan=0.0, posinf=np.inf) for each in (x, y))
    for axis in (None, 0, 1):
        own, other = x.max(axis), y.max(axis)
        assert ((other < own) | (own == 0)).all()


def test_amaxes_of_rotated_values_are_smaller():
    x = np.random.default_rng(0).normal(size=(64, 16)).astype(np.float32)
    x[0], x[1, 1:] = 1, 0
    own, other = (np.abs(nvfp4.rht(each, 0xD7E8).astype(np.float32)).reshape(64, 16).max(1) for each in (x, smaller(x)))
    assert (other < own).all()


def test_what_cannot_be_smaller_has_no_other_input():
    case = find_case("per_tensor/default/16x16/zeros/eager")
    assert other_expected(case, expect(case), "cpu") is None


def test_bytes_of_operands_are_drawn_again():
    case = find_case("gemm/default/16x144x48/exact_sum/eager")
    own, other = make_inputs(case), other_inputs(case)
    assert other["a_data"].tobytes() != own["a_data"].tobytes()


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_operands_with_infinite_amaxes_have_another_input_that_a_product_takes(mode: str):
    case = find_case(f"gemm/alpha=-2/304x48x304/exhaustive/{mode}")
    own, other = make_inputs(case), other_inputs(case)
    for name in ("a_amax", "b_amax"):
        assert np.isinf(own[name]).all() or own[name].max() > other[name].max() > 0
        assert np.isfinite(other[name]).all()


def test_a_large_case_asks_nobody():
    case = find_case("row_scaled/default/512x1024/normal/eager")
    own = expect(case)
    other = other_expected(case, own, "cpu")
    assert other.values["rowwise_data"] is own.values["rowwise_data"]
    assert (other.values["rowwise_amax"] * 8 == own.values["rowwise_amax"]).all()


def combinations() -> list[Case]:
    """The smallest case on normal tensors with each combination of flags in the smoke sets, about MOST of a recipe.

    Each value of each flag that the smoke sets have is in one of them.
    """
    found: dict[tuple[str, str], Case] = {}
    for recipe in FOLLOWING:
        for case in suite_of(recipe).cases("smoke"):
            normal = replace(case, input="normal", mode="eager")
            known = found.setdefault((recipe, normal.variant), normal)
            if 0 < normal.work < known.work or not known.work:
                found[recipe, normal.variant] = normal
    chosen, seen = [], set()
    for recipe in FOLLOWING:
        cases = [case for (of, _), case in found.items() if of == recipe]
        step = -(-len(cases) // MOST)
        for case in (*cases[::step], *cases):
            values = {(recipe, *flag) for flag in case.flags.items()}
            if case in cases[::step] or not values <= seen:
                chosen.append(case)
                seen |= values
    return list(dict.fromkeys(chosen))


@pytest.mark.slow
def test_what_follows_is_what_the_oracles_say():
    followed = dict.fromkeys(FOLLOWING, 0)
    for case in combinations():
        if case.work > 1 << 15:
            continue
        found = follow(case, by_numpy(case, make_inputs(case)))
        if found is None:
            continue
        followed[case.recipe] += 1
        for name, value in by_numpy(case, found.inputs).values.items():
            for one, another in zip(_arrays(value), _arrays(found.values[name]), strict=True):
                assert one.tobytes() == another.tobytes(), (case.id, name)
    assert min(followed.values()) >= 2, followed


def test_a_bench_makes_it_once_for_both_modes_of_a_case(monkeypatch):
    case, another = (find_case(f"per_tensor/default/304x{cols}/normal/eager") for cols in (272, 288))
    expected = by_numpy(case, make_inputs(case))

    def found(mode: str, of: Expected = expected) -> Expected:
        return other_expected(replace(case, mode=mode), of, "cpu")

    assert found("eager") is not found("graph")
    monkeypatch.setattr(SOURCE, "recent", 2)
    assert found("eager") is found("graph")
    assert found("graph", by_numpy(another, make_inputs(another))) is not found("graph")


def by_numpy(case: Case, inputs: Mapping[str, np.ndarray]) -> Expected:
    """Both oracles agree on these contracts, and this one is the faster."""
    values = oracle_of(case.recipe).numpy_oracle(case, dict(inputs))
    bounds = {name: value.bounds if isinstance(value, Interval) else value for name, value in values.items()}
    return Expected(dict(inputs), fields_of(case), bounds, ("numpy",))


def _arrays(value: Demand) -> list[np.ndarray]:
    arrays = (value.low, value.high, value.ordered) if isinstance(value, Interval) else (value,)
    return [array for array in arrays if array is not None]


@pytest.mark.parametrize(
    "case_id",
    [
        "per_tensor/default/48x80/tiny_amax/eager",  # S_enc is FLT_MAX
        "per_tensor/default/48x80/specials_inf/eager",  # S_enc is 1
        "local_1x64/default/64x64/tiny_amax/eager",  # the floor of an amax
        "per_tensor/dtype=fp16/48x80/normal/eager",  # fp16 has no room below
        "casts/default/16x16/normal/eager",
        "per_tensor/global_scale=false/48x80/normal/eager",  # other block scales
        "dequantize/global_scale=false/48x80/normal/eager",
        "gemm_ordered/a_global_scale=false/48x80x32/normal/eager",
        "swizzle/default/48x80/normal/eager",
        "grouped/activation=dgelu/128+0+256x128/normal/eager",
        "per_tensor/scale_format=ue5m3,global_scale=false/48x80/normal/eager",
        "dequantize/scale_format=ue5m3,global_scale=false/48x80/normal/eager",
    ],
)
def test_where_it_does_not_follow_the_oracles_are_asked(case_id: str):
    case = find_case(case_id)
    assert follow(case, expect(case)) is None
    other = other_expected(case, expect(case), "cpu")
    assert other.oracles == ("numpy",) and other.doubt() == ""


def test_a_power_of_two_is_exact_or_refused():
    x = np.array([0.0, -0.0, 1.5, -(2.0**-36), 2.0**36], DTYPES["bf16"])
    assert powers_of_two.divided(x, 3).astype(np.float64).tolist() == [0.0, -0.0, 0.1875, -(2.0**-39), 2.0**33]
    for value in (2.0**-37, 2.0**37, np.inf, np.nan):
        assert powers_of_two.divided(np.array([1, value], np.float32), 3) is None
    assert powers_of_two.divided(np.array([2.0**-12], np.float16), 3) is None
    assert powers_of_two.divided(np.array([2.0**-11], np.float16), 3)[0] == 2.0**-14


def test_no_kernel_is_called_wrong_where_the_oracles_disagree(monkeypatch: pytest.MonkeyPatch):
    case = find_case("row_scaled/outputs=rowwise/48x80/normal/eager")
    own, oracle = expect(case), oracle_of(case.recipe)
    ask = oracle.numpy_oracle

    def differs(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = ask(case, tensors)
        found["rowwise_data"][3, 4] ^= 1
        return found

    monkeypatch.setattr(oracle, "numpy_oracle", differs)
    monkeypatch.setattr("harness.verify.verify.expect", lambda *_: own)
    found = verify(case, EmulatorDevice())
    assert found.reason.startswith(f"on {WORDS}: the oracles disagree on 1 bytes of rowwise_data")


def test_what_follows_is_doubted_as_well():
    case = find_case("row_scaled/default/512x1024/normal/eager")
    own = expect(case)
    wrong = replace(own, values={**own.values, "rowwise_amax": own.values["rowwise_amax"] * np.float32(2)})
    assert other_expected(case, own, "cpu").doubt() == ""
    assert "bytes of rowwise_amax, first at byte 2: entry [0] is" in other_expected(case, wrong, "cpu").doubt()
