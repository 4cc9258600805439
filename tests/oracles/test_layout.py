"""Padding and the 128x4 order by both libraries, against the offset formula, and the recipes that move scale bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from quantized import agree, run

from harness.errors import ContractError
from harness.expected.expected import make_inputs
from harness.oracles import layout, swizzle, swizzle_grouped, torch_layout
from harness.suite.suite import find_case


@pytest.mark.parametrize("shape", [(128, 4), (256, 4), (128, 12), (384, 20)])
def test_swizzle_is_the_formula(shape):
    compact = np.random.default_rng(0).permutation(shape[0] * shape[1]).reshape(shape)
    r, c = np.indices(shape)
    offset = ((r // 128) * (shape[1] // 4) + c // 4) * 512 + (r % 32) * 16 + ((r % 128) // 32) * 4 + c % 4
    flat = np.empty(compact.size, compact.dtype)
    flat[offset] = compact
    given, theirs = layout.swizzle(compact), torch_layout.swizzle(torch.from_numpy(compact))
    np.testing.assert_array_equal(given.ravel(), flat)
    np.testing.assert_array_equal(theirs.numpy(), given)
    np.testing.assert_array_equal(layout.unswizzle(given), compact)
    np.testing.assert_array_equal(torch_layout.unswizzle(theirs).numpy(), compact)


@pytest.mark.parametrize("scale_layout", ["compact", "swizzled"])
@pytest.mark.parametrize("shape", [(48, 5), (304, 17), (16, 1), (128, 4)])
def test_arrange_pads_with_zero_and_gather_takes_it_back(shape, scale_layout):
    scale_inv = np.random.default_rng(1).integers(1, 256, shape, np.uint8)
    allocation = layout.arrange(scale_inv, scale_layout)
    assert allocation.shape == torch_layout.padded_shape(*shape) == (-(-shape[0] // 128) * 128, -(-shape[1] // 4) * 4)
    assert np.count_nonzero(allocation) == scale_inv.size
    assert allocation.flags.c_contiguous
    np.testing.assert_array_equal(layout.gather(allocation, shape, scale_layout), scale_inv)
    if scale_layout == "swizzled":
        np.testing.assert_array_equal(torch_layout.swizzle(torch.from_numpy(scale_inv)).numpy(), allocation)


def test_slabs_cover_everything_once_and_cut_no_tile(monkeypatch):
    monkeypatch.setattr(layout, "SLAB_ELEMENTS", 33 * 80)
    parts = list(layout.slabs(112, 80))
    assert [(p.start, p.stop) for p in parts] == [(0, 32), (32, 64), (64, 96), (96, 112)]
    seen, slabs = np.zeros((400, 272)), list(torch_layout.slabs(400, 272, 128 * 128))
    for slab in slabs:
        seen[slab] += 1
    assert (seen == 1).all() and len(slabs) == 12
    assert list(torch_layout.slabs(0, 128, 100)) == []


# --- the recipes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["rowwise", "columnwise"])
@pytest.mark.parametrize("shape", [(48, 80), (304, 272), (16, 16)], ids=str)
def test_swizzle_agrees_with_the_swizzled_quantizer_and_goes_back(make_case, tensor, shape, direction):
    x = tensor(*shape)
    there, back = (make_case("swizzle", *shape, direction=direction, to=to) for to in ("swizzled", "compact"))
    compact, swizzled = swizzle.inputs(there, x), swizzle.inputs(back, x)
    given, again = agree(there, compact)["swizzled_scale_inv"], agree(back, swizzled)["scale_inv"]
    quantizer = make_case("per_tensor", *shape, outputs=direction, scale_layout="swizzled")
    np.testing.assert_array_equal(given, run("numpy", quantizer, x)[f"{direction}_scale_inv"])
    np.testing.assert_array_equal(given, swizzled["swizzled_scale_inv"])
    np.testing.assert_array_equal(again, compact["scale_inv"])
    assert (given != again).any()
    np.testing.assert_array_equal(np.sort(given, axis=None), np.sort(again, axis=None))
    fields = swizzle.outputs(there)["swizzled_scale_inv"], swizzle.outputs(back)["scale_inv"]
    assert [field.swizzled for field in fields] == [True, False]
    assert {field.transposed for field in fields} == {direction == "columnwise"}


SHAPES = {
    "varying_first_dim": "0+128+0+256x144",
    "same_both_dims": "3*144x272",
    "varying_last_dim": "80x0+128+256",
    "varying_both_dims": "128+0+384x256+128+128",
}


@pytest.mark.parametrize("to", ["swizzled", "compact"])
@pytest.mark.parametrize("direction", ["rowwise", "columnwise"])
@pytest.mark.parametrize("representation", SHAPES)
def test_every_tensor_of_a_group_moves_as_it_does_alone(representation, direction, to):
    case = find_case(f"swizzle_grouped/shape_representation={representation}/{SHAPES[representation]}/normal/eager")
    case = replace(case, flags=case.flags.replace(direction=direction, to=to))
    tensors = make_inputs(case)
    ((name, field),) = swizzle_grouped.outputs(case).items()
    given = agree(case, tensors)[name]
    for g, extents in enumerate(case.problem.tensors):
        if 0 not in extents:
            alone = swizzle.numpy_oracle(case.part(g), swizzle_grouped.inputs_of(case, tensors, g))[name]
            np.testing.assert_array_equal(field.part(given, g), alone)


def test_refusals(make_case):
    with pytest.raises(ContractError, match="40x80"):
        swizzle.outputs(make_case("swizzle", 40, 80))
    case = find_case("swizzle_grouped/default/0+128x80/normal/eager")
    with pytest.raises(ContractError, match="recipe must be swizzle, not casts"):
        swizzle_grouped.outputs(replace(case, flags=case.flags.replace(recipe="casts")))
    uneven = replace(case, problem=replace(case.problem, tensors=((0, 80), (120, 80))))
    with pytest.raises(ContractError, match="tensor 1 has rows = 120.*nearest is 128"):
        swizzle_grouped.outputs(uneven)
