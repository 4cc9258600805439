"""Stochastic rounding as statistics, each with the power it has: no bias, two neighbours, fair midpoints, no streams
that know of each other.

What a draw is made of is known exactly: a value f of the way from one code to the next goes up for floor(256 f) of the
256 random bytes, so the mean falls short by step/512, and a test can ask for it. What each test can see is said beside
it, in steps between codes or in standard errors of its own sample. Draws differ by their seed or their offset.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

from harness.contract.case import Case, Flags
from harness.oracles import nvfp4, per_tensor, per_token

F32 = np.float32
BF16 = nvfp4.DTYPES["bf16"]
SIZE = 256
DRAWS = 64
SIGMAS = 5  # one false alarm in 1.7 million comparisons; the bytes are deterministic, so it would be a lasting one
MODULES = {"per_tensor": per_tensor, "per_token": per_token}
RECIPES = [
    ("per_tensor", {}),
    ("per_tensor", {"rht": True}),
    ("per_token", {}),
    ("per_token", {"rht": True}),
    ("per_token", {"weight_2d": True}),
]
CODES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
SIDES = ["rowwise", "columnwise"]


@dataclass(frozen=True)
class Draw(Case):
    """A case whose seed and offset are chosen, not hashed."""

    key: int = 0

    @property
    def seed(self):
        return self.key

    @property
    def offset(self):
        return self.philox_offset


@pytest.fixture
def quantize(make_case):
    """`quantize(recipe, x, key, offset, **flags)`: every field by the NumPy oracle; `key` None rounds to nearest."""

    def run(recipe, x, key=None, offset=0, **flags):
        flags = {"rounding": "rne" if key is None else "sr", **flags}
        case = make_case(recipe, *x.shape, **flags)
        draw = Draw(recipe, Flags(case.flags), case.problem, key=key or 0, philox_offset=offset)
        return MODULES[recipe].numpy_oracle(draw, {"input": x})

    return run


def values_of(tensors, side):
    return nvfp4.decode_e2m1(nvfp4.unpack(tensors[f"{side}_data"])).astype(np.float64)


def products(recipe, x, tensors, side, flags):
    """RN(x * m) of every element, before its rounding to e2m1."""
    v = np.ascontiguousarray(x.astype(F32) if side == "rowwise" else x.astype(F32).T)
    scale_inv = tensors[f"{side}_scale_inv"][: len(v), : v.shape[1] // 16]
    s_enc = nvfp4.global_encode_scale(tensors[f"{side}_amax"])
    if recipe == "per_token":
        s_enc = s_enc[:, None]
    if recipe == "per_tensor" or flags.get("weight_2d"):
        m = nvfp4.multiplier_reciprocal(scale_inv, nvfp4.global_decode_scale(s_enc))
    else:
        m = nvfp4.multiplier_direct(scale_inv, s_enc)
    if flags.get("rht") and side == "columnwise":
        v = nvfp4.rht(v, 0xD7E8) if recipe == "per_tensor" else nvfp4.hadamard(v, 0xACE1) * F32(0.25)
    return nvfp4.scaled(v, m).astype(np.float64)


def neighbours(v):
    """The largest code value not above |v| and the next one, with the sign of v; both are 6 from 6 on."""
    below = np.searchsorted(CODES, np.abs(v), side="right") - 1
    low, high = CODES[below], CODES[np.minimum(below + 1, 7)]
    return np.copysign(low, v), np.copysign(high, v)


@pytest.fixture(scope="module")
def normal():
    return np.random.default_rng(11).standard_normal((SIZE, SIZE)).astype(BF16)


@pytest.mark.slow
@pytest.mark.parametrize("recipe, flags", RECIPES, ids=str)
def test_draws_are_neighbours_and_their_mean_is_the_value(quantize, normal, recipe, flags):
    """64 draws of 65,536 normal values in each direction.

    Every draw of every value is one of its two neighbours, and an exact code stays. A draw errs by step/sqrt(6), their
    mean by an eighth of it, and nearest by step/sqrt(12): a ratio of sqrt(2)/8 = 0.177. At most 0.2 is accepted, which
    a bias of 0.03 step breaks. The mean error of all draws, in steps away from zero, is -1/512 within five standard
    errors of 0.0002: that sees a bias of 0.0015 step, be it of random bytes that are centred, or cut to 7 bits.
    """
    nearest = quantize(recipe, normal, **flags)
    v = {side: products(recipe, normal, nearest, side, flags) for side in SIDES}
    total = {side: np.zeros(v[side].shape) for side in SIDES}
    for draw in range(DRAWS):
        given = quantize(recipe, normal, key=0x1234_5678_9ABC_DEF0 + draw // 8, offset=draw % 8, **flags)
        for side in SIDES:
            np.testing.assert_array_equal(given[f"{side}_scale_inv"], nearest[f"{side}_scale_inv"])
            q, (low, high) = values_of(given, side), neighbours(v[side])
            assert ((q == low) | ((q == high) & (v[side] != low))).all()
            total[side] += q
    for side in SIDES:
        low, high = neighbours(v[side])
        between = low != high
        step = np.abs(high - low)[between]
        mean_error = ((total[side] / DRAWS - v[side])[between]) / step
        nearest_error = ((values_of(nearest, side) - v[side])[between]) / step
        assert np.sqrt(np.mean(mean_error**2)) < 0.2 * np.sqrt(np.mean(nearest_error**2))
        outwards = mean_error * np.sign(v[side][between])
        standard_error = np.sqrt(1 / 6 / DRAWS / step.size)
        assert abs(outwards.mean() + 1 / 512) < SIGMAS * standard_error < 0.0015


@pytest.mark.parametrize("recipe, flags", [case for case in RECIPES if not case[1].get("rht")], ids=str)
def test_exact_midpoints_go_up_half_of_the_time(quantize, recipe, flags):
    """40 to 60 % of at least 8,000 draws of each midpoint and sign, whose standard error is 0.6 %.

    A midpoint that went up 38 % or 62 % of the time would be told with 99.9 % certainty. In a band of five standard
    errors around one half, the same is asked of one that rounds half away from zero, half to even, or by 1 bit.
    """
    rng = np.random.default_rng(12)
    midpoints = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5]) * 256
    x = rng.choice(np.concatenate([midpoints, -midpoints]), (SIZE, SIZE))
    i, j = np.indices(x.shape)
    x[(i + j) % 16 == 0] = 6 * 256  # the amax of its block in both directions, so that the block's scale is 256 ...
    np.fill_diagonal(x, 2688)  # ... and that of its row, column and tensor, so that S_enc is 1
    x = x.astype(BF16)
    nearest = quantize(recipe, x, **flags)
    plain = {side: (nearest[f"{side}_scale_inv"][:SIZE, : SIZE // 16] == 0x78).repeat(16, axis=1) for side in SIDES}
    draws = [quantize(recipe, x, key=99, offset=offset, **flags) for offset in range(4)]
    for side, midpoint, sign in itertools.product(SIDES, midpoints / 256, (1, -1)):
        v = products(recipe, x, nearest, side, flags)
        here = (v == sign * midpoint) & plain[side]
        drawn = np.abs(np.concatenate([values_of(draw, side)[here] for draw in draws]))
        assert drawn.size >= 8000
        up = np.mean(drawn > midpoint)
        assert 0.4 < up < 0.6
        assert abs(up - 0.5) < SIGMAS * 0.5 / np.sqrt(drawn.size)


@pytest.mark.parametrize("recipe, flags", [case for case in RECIPES if not case[1].get("rht")], ids=str)
def test_streams_know_nothing_of_each_other(quantize, recipe, flags):
    """Correlations of rounding errors, over some 60,000 values between codes: none above five standard errors, 0.02.

    A stream that two outputs share has 1, one that they share in every 16th element 0.06. The tensor is symmetric, so
    the two directions round the same values at the same place of their outputs, and under the same block number.
    """
    square = np.random.default_rng(13).standard_normal((SIZE, SIZE))
    x = (square + square.T).astype(BF16)
    nearest = quantize(recipe, x, **flags)
    v = products(recipe, x, nearest, "rowwise", flags)
    np.testing.assert_array_equal(v, products(recipe, x, nearest, "columnwise", flags))
    low, high = neighbours(v)

    def error(side, key, offset):
        q = values_of(quantize(recipe, x, key=key, offset=offset, **flags), side)
        outwards = (q - v) * np.sign(v)  # with the sign of v, values under the same random byte would cancel
        return np.where(low == high, 0, outwards / np.where(low == high, 1, np.abs(high - low)))

    def correlation(a, b):
        return np.mean(a * b) / np.sqrt(np.mean(a * a) * np.mean(b * b))

    key = 0xFEDC_BA98_7654_3210
    one = error("rowwise", key, 0)
    others = {
        "the other direction": error("columnwise", key, 0),
        "the other direction, at the same element": error("columnwise", key, 0).T,
        "the next offset": error("rowwise", key, 1),
        "the next seed": error("rowwise", key + 1, 0),
        "a seed with another high word": error("rowwise", key ^ 1 << 40, 0),
        "the next offset, other direction": error("columnwise", key, 1),
    }
    for shift in (1, 2, 4, 15, 16, 64):
        others[f"{shift} elements on"] = np.roll(one, shift, axis=1)
        others[f"{shift} lines on"] = np.roll(one, shift, axis=0)
    found = {name: correlation(one, other) for name, other in others.items()}
    bound = SIGMAS / np.sqrt(np.count_nonzero(low != high))
    assert bound < 0.022
    assert {name: rho for name, rho in found.items() if abs(rho) > bound} == {}
    assert correlation(one, error("rowwise", key, 0)) == pytest.approx(1)
