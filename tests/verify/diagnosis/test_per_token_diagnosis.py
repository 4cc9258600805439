"""The diagnosis knows the steps of per_token: a trace agrees with the oracles, a mistake has its name."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from harness.contract.case import Case, Flags
from harness.contract.problem import Dense
from harness.oracles import nvfp4, per_token
from harness.verify.diagnosis.classify import cause_of
from harness.verify.diagnosis.evidence import Evidence
from harness.verify.diagnosis.trace import trace

FLAGS = {
    "dtype": "bf16",
    "outputs": "both",
    "rht": False,
    "rounding": "rne",
    "scale_layout": "compact",
    "weight_2d": False,
    "stage": "full",
    "sign_mask": 0xACE1,
}


def case_of(**flags: object) -> Case:
    return Case("per_token", Flags({**FLAGS, **flags}), Dense(128, 256))


def tensor() -> np.ndarray:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((128, 256)) * np.exp2(rng.integers(-12, 4, (128, 1)))
    x[7], x[:, 9], x[40, 3:5] = 0, 0, (np.nan, np.inf)
    x[50] *= 1e-15  # below the floor of an amax
    return x.astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("side", ["rowwise", "columnwise"])
@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"rht": True},
        {"rht": True, "sign_mask": 0xFFFF, "rounding": "sr"},
        {"scale_layout": "swizzled"},
        {"weight_2d": True},
        {"weight_2d": True, "stage": "encode"},
        {"stage": "encode", "rht": True},
    ],
    ids=str,
)
def test_all_agree_where_nothing_is_wrong(flags: dict[str, object], side: str):
    case = case_of(**flags)
    inputs = per_token.inputs(case, tensor())
    kernel = per_token.numpy_oracle(case, inputs)
    for at in ((37, 65), (40, 9), (50, 9)):
        text = trace(case, f"{side}_data", at, kernel, inputs)
        assert "all agree on this block" in text and "2.4" in text


def test_an_amax_of_a_line():
    case = case_of(stage="amax", rht=True)
    inputs = per_token.inputs(case, tensor())
    assert "all agree" in trace(case, "columnwise_amax", (0, 70), per_token.numpy_oracle(case, inputs), inputs)


def reciprocal(scale_inv: np.ndarray, s_enc: np.ndarray) -> np.ndarray:
    return nvfp4.multiplier_reciprocal(scale_inv, nvfp4.global_decode_scale(s_enc))


def rounded(v: np.ndarray, sign_mask: int, exact=nvfp4.hadamard) -> np.ndarray:
    """Rotated and rounded to bf16 as in per_tensor, but four times too long still."""
    return nvfp4.bf16(exact(v, sign_mask))


@pytest.mark.parametrize(
    ("flags", "function", "mutant", "name"),
    [
        ({}, "multiplier_direct", reciprocal, "reciprocal instead of direct multiplier"),
        ({"rht": True}, "hadamard", rounded, "rht rounded to bf16"),
    ],
)
def test_a_mistake_has_its_name(monkeypatch: pytest.MonkeyPatch, flags: dict, function: str, mutant, name: str):
    case = case_of(**flags)
    x = np.random.default_rng(6).standard_normal((128, 256)).astype(ml_dtypes.bfloat16)
    tensors = per_token.inputs(case, x)
    right = per_token.numpy_oracle(case, tensors)
    with monkeypatch.context() as patch:
        patch.setattr(nvfp4, function, mutant)
        actual = per_token.numpy_oracle(case, tensors)
    found = cause_of(Evidence(case, tensors, per_token.outputs(case), right, (actual,)))
    assert name in str(found)  # of one choice for another few codes are wrong, and each rounding fits some
