"""swizzle: the recipe turns the quantizer's compact scales into its swizzled ones."""

from __future__ import annotations

import numpy as np
import pytest

from harness.errors import ContractError
from harness.oracles import per_tensor, swizzle


@pytest.mark.parametrize("direction", ["rowwise", "columnwise"])
@pytest.mark.parametrize("shape", [(48, 80), (304, 272), (16, 16)], ids=str)
def test_agrees_with_the_swizzled_quantizer(make_case, tensor, shape, direction):
    x = tensor(*shape)
    case = make_case("swizzle", *shape, direction=direction)
    given = swizzle.numpy_oracle(case, swizzle.inputs(case, x))
    quantizer = make_case("per_tensor", *shape, outputs=direction, scale_layout="swizzled")
    expected = per_tensor.numpy_oracle(quantizer, {"input": x})[f"{direction}_scale_inv"]
    field = swizzle.outputs(case)["swizzled_scale_inv"]
    assert list(given) == ["swizzled_scale_inv"]
    assert given["swizzled_scale_inv"].shape == field.shape
    assert field.swizzled
    assert field.transposed == (direction == "columnwise")
    np.testing.assert_array_equal(given["swizzled_scale_inv"], expected)


def test_moves_bytes(make_case, tensor):
    case = make_case("swizzle", 304, 272)
    tensors = swizzle.inputs(case, tensor(304, 272))
    given = swizzle.numpy_oracle(case, tensors)["swizzled_scale_inv"]
    assert (given != tensors["scale_inv"]).any()
    np.testing.assert_array_equal(np.sort(given, axis=None), np.sort(tensors["scale_inv"], axis=None))


@pytest.mark.parametrize("direction", ["rowwise", "columnwise"])
def test_goes_back(make_case, tensor, direction):
    x = tensor(304, 272)
    there, back = (make_case("swizzle", 304, 272, direction=direction, to=to) for to in ("swizzled", "compact"))
    compact, swizzled = swizzle.inputs(there, x), swizzle.inputs(back, x)
    np.testing.assert_array_equal(swizzle.numpy_oracle(there, compact)["swizzled_scale_inv"], *swizzled.values())
    given = swizzle.numpy_oracle(back, swizzled)
    assert list(given) == list(swizzle.outputs(back)) == ["scale_inv"]
    assert not swizzle.outputs(back)["scale_inv"].swizzled
    np.testing.assert_array_equal(given["scale_inv"], compact["scale_inv"])


def test_refuses_a_partial_block(make_case):
    with pytest.raises(ContractError, match="40x80"):
        swizzle.outputs(make_case("swizzle", 40, 80))
