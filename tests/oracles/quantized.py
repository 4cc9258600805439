"""Assertions about the fields and the refusals of a quantizing oracle."""

from __future__ import annotations

import numpy as np
import pytest

from harness.errors import ContractError
from harness.oracles import nvfp4


def assert_same(given, expected):
    assert given.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(given[name], array, err_msg=name)


def codes(tensors, direction="rowwise"):
    """The e2m1 codes of a direction, one to an element."""
    return nvfp4.unpack(tensors[f"{direction}_data"])


def assert_refused(oracle, case, sentence):
    """Every function of the oracle refuses the case with this sentence."""
    x = np.zeros((case.rows, case.cols), nvfp4.DTYPES[case.flags.dtype])
    for call in (
        lambda: oracle.outputs(case),
        lambda: oracle.inputs(case, x),
        lambda: oracle.numpy_oracle(case, {"input": x}),
        lambda: oracle.torch_oracle(case, {}),
    ):
        with pytest.raises(ContractError, match=sentence):
            call()
