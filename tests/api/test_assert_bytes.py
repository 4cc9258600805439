"""`assert_bytes` in other people's pytest suites: nothing for right bytes, and the screen for wrong ones."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import pytest
import torch

import harness
from harness.errors import UsageError
from harness.expected import expected
from harness.testing import assert_bytes

X = torch.randn(64, 128, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
FLAGS = {"outputs": "rowwise"}


def made(**other) -> dict:
    """What a right quantizer of somebody's returns, with other arrays in place of some."""
    return {**harness.quantize(X, **FLAGS), **other}


@pytest.mark.parametrize(
    ("recipe", "flags"),
    [
        ("per_tensor", {"rht": True, "rounding": "sr", "seed": 7, "offset": 3}),
        pytest.param("per_tensor", {"scale_layout": "swizzled"}, marks=pytest.mark.slow),
        pytest.param("row_scaled", {"outputs": "both"}, marks=pytest.mark.slow),
        pytest.param("local_1x64", {}, marks=pytest.mark.slow),
        pytest.param("four_over_six", {"error": "mse"}, marks=pytest.mark.slow),
        ("grouped", {"shape": "128+0+128x128"}),
    ],
)
def test_right_bytes_pass_and_one_wrong_bit_of_any_field_does_not(recipe, flags):
    x = X if recipe != "grouped" else X.repeat(4, 1)
    right = harness.quantize(x, recipe, **flags)
    assert_bytes(right, x, recipe, **flags)
    for name, array in right.items():
        wrong = array.clone()
        wrong.view(torch.uint8).reshape(-1)[-1] ^= 1
        with pytest.raises(
            AssertionError, match=rf"(?s)^MISMATCH  {recipe}/.*field     {name} .*1 of \d+ entries differ"
        ):
            assert_bytes({**right, name: wrong}, x, recipe, **flags)


def test_the_message_is_the_screen_that_verify_prints():
    swapped = made()["rowwise_data"] >> 4 | made()["rowwise_data"] << 4
    with pytest.raises(AssertionError) as caught:
        assert_bytes(made(rowwise_data=swapped), X, **FLAGS)
    story = str(caught.value)
    assert story.startswith("MISMATCH  per_tensor/outputs=rowwise/64x128  in your arrays\nfield     rowwise_data uint8")
    assert "cause     nibble swap: the two codes of a byte changed places" in story
    assert [label in story for label in ("first     [", "expected  0x", "actual    0x")] == [True] * 3
    assert "normal" not in story and "reproduce" not in story  # no input of the harness was drawn


def test_types_of_packed_codes_and_scales_are_their_bytes():
    own = made()
    assert_bytes({**own, "rowwise_scale_inv": own["rowwise_scale_inv"].view(torch.float8_e4m3fn)}, X, **FLAGS)
    if hasattr(torch, "float4_e2m1fn_x2"):
        assert_bytes(made(rowwise_data=own["rowwise_data"].view(torch.float4_e2m1fn_x2)), X, **FLAGS)
    arrays = {name: array.numpy() for name, array in own.items()}
    arrays["rowwise_scale_inv"] = arrays["rowwise_scale_inv"].view(ml_dtypes.float8_e4m3fn)
    assert_bytes(arrays, X, **FLAGS)  # of another library than x is


@pytest.mark.parametrize(
    ("q", "x", "flags", "says"),
    [
        ({}, X, FLAGS, "q lacks the field 'rowwise_data'; it has none"),
        (
            made(more=X),
            X,
            FLAGS,
            "q has 'more', which nothing reads; there are rowwise_data, rowwise_scale_inv, rowwise",
        ),
        (
            made(rowwise_amax=torch.tensor(1.0)),
            X,
            FLAGS,
            r"q\['rowwise_amax'\] is float32 \(\); it must be float32 \(1,\)",
        ),
        (made(rowwise_data=X), X, FLAGS, r"q\['rowwise_data'\] is bfloat16 \(64, 128\); it must be uint8 \(64, 64\)"),
        (
            made(rowwise_data=None),
            X,
            FLAGS,
            r"q\['rowwise_data'\] is a NoneType; give an array of NumPy, torch or CuPy",
        ),
        (made(), X[:50], FLAGS, "rows = 50 is not a positive multiple of 16"),
        (made(), X, {"output": "rowwise"}, "per_tensor has no flag 'output'; did you mean 'outputs'?"),
        (made(), X, {"stage": "amax"}, "quantize makes amaxes and codes in one call; leave out stage"),
        ([1], X, FLAGS, "q is a list; it must have arrays by name, as a dict has"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(q, x, flags, says):
    with pytest.raises(UsageError, match=says) as caught:
        assert_bytes(q, x, **flags)
    assert "\n" not in str(caught.value)


def test_without_torch_numpy_judges_alone(monkeypatch):
    own = {name: array.numpy() for name, array in made().items()}
    x = X.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert_bytes(own, x, **FLAGS)
    with pytest.raises(AssertionError, match="MISMATCH"):
        assert_bytes({**own, "rowwise_amax": own["rowwise_amax"] + 1}, x, **FLAGS)


def test_both_oracles_are_asked(monkeypatch):
    oracle = expected.oracle_of("per_tensor")
    right = oracle.torch_oracle
    monkeypatch.setattr(oracle, "torch_oracle", lambda *given: {**right(*given), "rowwise_amax": torch.zeros(1)})
    with pytest.raises(
        UsageError, match="no array can be judged by this x: the oracles disagree on .* of rowwise_amax"
    ):
        assert_bytes(made(), X, **FLAGS)


def test_it_is_there_by_either_name():
    assert harness.testing.assert_bytes is assert_bytes
    empty = np.zeros((0, 32), np.float32)
    assert_bytes(harness.quantize(empty), empty)
