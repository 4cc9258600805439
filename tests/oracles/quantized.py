"""Helpers of the oracle tests: both oracles asked alike, fields compared, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from harness.errors import ContractError
from harness.expected.expected import oracle_of
from harness.expected.torch_calls import ask_torch, to_torch
from harness.oracles import layout, nvfp4

BOTH = pytest.mark.parametrize("ask", ["numpy", "torch"])
SIDES = ("rowwise", "columnwise")


def by(ask, case, tensors):
    """Every field that one oracle expects."""
    oracle = oracle_of(case.recipe)
    return oracle.numpy_oracle(case, tensors) if ask == "numpy" else ask_torch(oracle, case, tensors)


def run(ask, case, x):
    return by(ask, case, oracle_of(case.recipe).inputs(case, x))


def with_flags(case, **flags):
    """The case with other flags and the seed of the first, to compare bytes across flags."""
    return replace(case, flags=case.flags.replace(**flags), seed_of=case.seed_of or case.data_id)


def assert_same(given, expected):
    assert given.keys() == expected.keys()
    for name, array in expected.items():
        assert (given[name].shape, given[name].dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(given[name], array, err_msg=name)


def agree(case, tensors, device="cpu"):
    """Both oracles write what `outputs` says, in its order, byte for byte alike, and 0 into padding; the fields."""
    oracle = oracle_of(case.recipe)
    expected, fields = oracle.numpy_oracle(case, tensors), oracle.outputs(case)
    on_device = {name: to_torch(array).to(device) for name, array in tensors.items()}
    actual = {name: tensor.cpu() for name, tensor in oracle.torch_oracle(case, on_device).items()}
    assert list(actual) == list(expected) == list(fields)
    for name, array in expected.items():
        got, field = actual[name], fields[name]
        assert tuple(got.shape) == array.shape == field.shape and array.dtype == field.dtype
        assert got.dtype == to_torch(array).dtype and got.is_contiguous() and array.flags.c_contiguous
        wrong = np.argwhere(got.view(torch.uint8).numpy() != np.atleast_1d(array).view(np.uint8))
        assert not len(wrong), f"{case.id} {name}: {len(wrong)} bytes differ, first at {wrong[0].tolist()}"
        if field.valid:
            inside = layout.gather(array, field.valid, "swizzled" if field.swizzled else "compact")
            assert np.count_nonzero(array) == np.count_nonzero(inside)
    return expected


def codes(tensors, direction="rowwise"):
    """The e2m1 codes of a direction, one to an element."""
    return nvfp4.unpack(tensors[f"{direction}_data"])


def assert_refused(oracle, case, sentence, *arrays):
    """Every function of the oracle refuses the case with this sentence. arrays: what `inputs` takes, unless one x"""
    x = arrays or (np.zeros((case.rows, case.cols), nvfp4.DTYPES[case.flags.dtype]),)
    for call in (
        lambda: oracle.outputs(case),
        lambda: oracle.inputs(case, *x),
        lambda: oracle.numpy_oracle(case, {"input": x[0]}),
        lambda: oracle.torch_oracle(case, {}),
    ):
        with pytest.raises(ContractError, match=sentence):
            call()


def assert_arrays_refused(case, tensors, sentence):
    """Both oracles refuse the arrays with this sentence."""
    for ask in ("numpy", "torch"):
        with pytest.raises(ContractError, match=sentence):
            by(ask, case, tensors)
