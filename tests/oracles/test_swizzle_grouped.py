"""swizzle_grouped: each tensor's scales move as they move alone, and both oracles agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from harness.errors import ContractError
from harness.oracles import swizzle, swizzle_grouped
from harness.suite.suite import find_case
from harness.verify.expected import make_inputs

SHAPES = {
    "varying_first_dim": "0+128+0+256x144",
    "same_both_dims": "3*144x272",
    "varying_last_dim": "80x0+128+256",
    "varying_both_dims": "128+0+384x256+128+128",
}


@pytest.mark.parametrize("to", ["swizzled", "compact"])
@pytest.mark.parametrize("direction", ["rowwise", "columnwise"])
@pytest.mark.parametrize("representation", SHAPES)
def test_every_tensor_moves_as_it_does_alone(representation, direction, to):
    case = find_case(f"swizzle_grouped/shape_representation={representation}/{SHAPES[representation]}/normal/eager")
    case = replace(case, flags=case.flags.replace(direction=direction, to=to))
    tensors = make_inputs(case)
    ((name, field),) = swizzle_grouped.outputs(case).items()
    given = swizzle_grouped.numpy_oracle(case, tensors)[name]
    for g, extents in enumerate(case.problem.tensors):
        alone = swizzle_grouped.inputs_of(case, tensors, g)
        if 0 not in extents:
            expected = swizzle.numpy_oracle(case.part(g), alone)[name]
            np.testing.assert_array_equal(field.part(given, g), expected)
    by_torch = swizzle_grouped.torch_oracle(case, {key: torch.from_numpy(value) for key, value in tensors.items()})
    np.testing.assert_array_equal(by_torch[name].numpy(), given)


def test_refuses_another_recipe_and_extents():
    case = find_case("swizzle_grouped/default/0+128x80/normal/eager")
    with pytest.raises(ContractError, match="recipe must be swizzle, not casts"):
        swizzle_grouped.outputs(replace(case, flags=case.flags.replace(recipe="casts")))
    uneven = replace(case, problem=replace(case.problem, tensors=((0, 80), (120, 80))))
    with pytest.raises(ContractError, match="tensor 1 has rows = 120.*nearest is 128"):
        swizzle_grouped.outputs(uneven)
