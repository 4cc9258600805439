"""per_token: NumPy and torch give the same bytes, under every flag and on every distribution."""

from __future__ import annotations

import itertools

import pytest

from harness.inputs import draw
from harness.oracles import nvfp4, per_token
from harness.verify.torch_calls import to_torch

BF16 = nvfp4.DTYPES["bf16"]


def all_flags():
    axes = {
        "outputs": ("both", "rowwise", "columnwise"),
        "rht": (False, True),
        "rounding": ("rne", "sr"),
        "scale_layout": ("compact", "swizzled"),
        "weight_2d": (False, True),
        "stage": ("full", "amax", "encode"),
        "sign_mask": (0xACE1, 0xFFFF),
    }
    for row in itertools.product(*axes.values()):
        flags = dict(zip(axes, row, strict=True))
        if not (flags["rht"] and flags["weight_2d"]):
            yield flags


def agree(case, x):
    tensors = per_token.inputs(case, x)
    expected = per_token.numpy_oracle(case, tensors)
    given = per_token.torch_oracle(case, {name: to_torch(array) for name, array in tensors.items()})
    assert list(given) == list(expected)
    for name, array in expected.items():
        assert given[name].is_contiguous()
        assert given[name].numpy().tobytes() == array.tobytes(), f"{case.id} {name}"


def test_the_oracles_agree_on_every_flag(make_case):
    for flags in all_flags():
        for name in ("normal", "specials_nan", "row_scales"):
            case = make_case("per_token", 128, 256, name, **flags)
            agree(case, draw.make(name, 128, 256, "bf16", 1))


@pytest.mark.parametrize("name", [name for name, _ in draw.names()])
def test_the_oracles_agree_on_every_distribution(make_case, name):
    for flags in ({}, {"rht": True}, {"rounding": "sr"}, {"rht": True, "rounding": "sr"}, {"weight_2d": True}):
        agree(make_case("per_token", 256, 256, name, **flags), draw.make(name, 256, 256, "bf16", 2))
