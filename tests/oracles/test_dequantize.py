"""dequantize by both oracles: every code under every scale byte, its order of roundings, its NaNs, and its refusals."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from quantized import BOTH, assert_arrays_refused, assert_refused, assert_same, by
from quantized import run as fields

from harness.oracles import dequantize, four_over_six, layout, local_1x64, nvfp4, per_tensor, row_scaled, torch_source

F32 = np.float32
DTYPES = ["bf16", "fp16", "fp32"]
LEGAL = [("tensor", 448), ("tensor", 256), ("tensor", 320), ("row", 448), ("row", 288), ("window", 448)]


def run(ask, case, x):
    return fields(ask, case, x)["output"]


@BOTH
@pytest.mark.parametrize("scale_layout", ["compact", "swizzled"])
@pytest.mark.parametrize(("granularity", "e4m3_max"), LEGAL)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_code_under_every_scale_byte(make_case, monkeypatch, ask, dtype, granularity, e4m3_max, scale_layout):
    flags, shape = {"granularity": granularity, "e4m3_max": e4m3_max, "scale_layout": scale_layout}, (192, 192)
    case = make_case("dequantize", *shape, "exhaustive", dtype=dtype, **flags)
    tensors = dequantize.inputs(case, np.zeros(shape, ml_dtypes.bfloat16))
    scale_inv = layout.gather(tensors["scale_inv"], (192, 12), scale_layout)
    assert set(scale_inv.ravel().tolist()) == set(range(256))
    given = by(ask, case, tensors)["output"]
    assert (given.shape, given.dtype) == (dequantize.outputs(case)["output"].shape, nvfp4.DTYPES[dtype])

    amax = tensors["amax"]
    assert amax.shape == {"tensor": (1,), "row": (192,), "window": (192, 3)}[granularity]
    assert np.unique(amax).size == amax.size
    if granularity != "tensor":
        amax = amax[:, None] if granularity == "row" else amax.repeat(4, axis=1)
    scales = scale_inv.view(ml_dtypes.float8_e4m3fn).astype(F32)
    codes = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(F32)
    f = (scales * amax) * (F32(1) / F32(6 * e4m3_max))
    expected = nvfp4.convert(codes * f[..., None], dtype).reshape(shape)
    unsigned = f"u{given.itemsize}"
    np.testing.assert_array_equal(given.view(unsigned), expected.view(unsigned))
    nan_blocks = np.repeat((scale_inv & 0x7F) == 0x7F, 16, axis=1)
    np.testing.assert_array_equal(np.isnan(given), nan_blocks)
    assert set(given.view(unsigned)[nan_blocks].tolist()) == {0x7FFFFFFF if dtype == "fp32" else 0x7FFF}
    monkeypatch.setattr(layout, "SLAB_ELEMENTS", 1)
    monkeypatch.setattr(torch_source, "SLAB_ELEMENTS", 1)
    assert by(ask, case, tensors)["output"].tobytes() == given.tobytes()


def test_exhaustive_tiles_share_their_byte(make_case):
    case = make_case("dequantize", 64, 1024, "exhaustive", block="block_16x16")
    scale_inv = dequantize.inputs(case, np.zeros((64, 1024), ml_dtypes.bfloat16))["scale_inv"][:64, :64]
    assert (scale_inv.reshape(4, 16, 64) == scale_inv[::16].reshape(4, 1, 64)).all()
    assert set(scale_inv.ravel().tolist()) == set(range(256))


@BOTH
@pytest.mark.parametrize(("granularity", "e4m3_max"), LEGAL)
@pytest.mark.parametrize("shape", [(64, 128), (320, 256), (64, 64)], ids=str)
def test_comes_back_within_half_a_step(make_case, tensor, ask, shape, granularity, e4m3_max):
    """A property, not a byte check: the largest element of a block is within an e4m3 half-step of its input."""
    x = tensor(*shape)
    case = make_case("dequantize", *shape, dtype="fp32", granularity=granularity, e4m3_max=e4m3_max)
    blocks = x.astype(F32).reshape(-1, 16)
    at = np.abs(blocks).argmax(1)[:, None]
    largest = np.take_along_axis(blocks, at, 1)
    back = np.take_along_axis(run(ask, case, x).reshape(-1, 16), at, 1)
    normal = np.abs(largest) * 64 * 6 > np.abs(blocks).max()  # its scale byte is not an e4m3 subnormal
    assert normal.mean() > 0.5
    assert (np.abs(back - largest)[normal] <= np.abs(largest)[normal] / 15).all()


@BOTH
def test_reduced_maximum_is_not_read_as_the_full_one(make_case, tensor, ask):
    x = tensor(48, 80)
    tensors = dequantize.inputs(make_case("dequantize", 48, 80, dtype="fp32", e4m3_max=256), x)
    assert nvfp4.decode_e4m3(tensors["scale_inv"]).max() in (256, 384)  # of the map to 6, or to 4
    right, wrong = (
        by(ask, make_case("dequantize", 48, 80, dtype="fp32", e4m3_max=m), tensors)["output"] for m in (256, 448)
    )
    assert (np.abs(right) > np.abs(wrong))[right != 0].all()


def test_reads_the_tensor_of_the_block_it_is_asked_for(make_case, tensor):
    case = make_case("dequantize", 48, 80, block="block_16x16")
    scale_inv = dequantize.inputs(case, tensor(48, 80))["scale_inv"][:48, :5].reshape(3, 16, 5)
    assert (scale_inv == scale_inv[:, :1]).all()


@pytest.mark.parametrize("scale_layout", ["compact", "swizzled"])
@pytest.mark.parametrize(("granularity", "e4m3_max"), LEGAL)
def test_reads_what_the_recipe_of_its_metadata_writes(make_case, tensor, granularity, e4m3_max, scale_layout):
    x = tensor(64, 128)
    flags = {"granularity": granularity, "e4m3_max": e4m3_max, "scale_layout": scale_layout}
    given = dequantize.inputs(make_case("dequantize", 64, 128, **flags), x)
    if e4m3_max != 448:
        recipe, oracle, flags = (
            "four_over_six",
            four_over_six,
            {"row_scaled": granularity == "row", "e4m3_max": e4m3_max},
        )
    else:
        oracle = {"tensor": per_tensor, "row": row_scaled, "window": local_1x64}[granularity]
        recipe, flags = oracle.__name__.rpartition(".")[2], {}
    written = oracle.numpy_oracle(make_case(recipe, 64, 128, outputs="rowwise", **flags), {"input": x})
    if scale_layout == "swizzled":
        written["rowwise_scale_inv"] = layout.swizzle(written["rowwise_scale_inv"])
    assert_same(given, {name.removeprefix("rowwise_"): array for name, array in written.items()})


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_input_is_quantized_in_the_dtype_of_the_output(make_case, dtype):
    x = (np.random.default_rng(3).standard_normal((48, 80)) + F32(2**-12)).astype(nvfp4.DTYPES[dtype])
    given = dequantize.inputs(make_case("dequantize", 48, 80, dtype=dtype), x)
    assert given["amax"] == np.abs(x.astype(F32)).max()
    written = per_tensor.numpy_oracle(make_case("per_tensor", 48, 80, dtype=dtype, outputs="rowwise"), {"input": x})
    assert_same(given, {name.removeprefix("rowwise_"): array for name, array in written.items()})


@BOTH
@pytest.mark.parametrize(("granularity", "e4m3_max"), [legal for legal in LEGAL if legal != ("row", 288)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_columnwise_copy_is_the_transpose_rowwise(make_case, tensor, ask, dtype, granularity, e4m3_max):
    flags = {"dtype": dtype, "granularity": granularity, "e4m3_max": e4m3_max}
    x = tensor(64, 192)
    case = make_case("dequantize", 64, 192, outputs="columnwise", **flags)
    turned = make_case("dequantize", 192, 64, **flags)
    output = run(ask, case, x)
    assert output.shape == dequantize.outputs(case)["output"].shape == (64, 192)
    unsigned = f"u{output.itemsize}"
    np.testing.assert_array_equal(output.view(unsigned), run(ask, turned, np.ascontiguousarray(x.T)).view(unsigned).T)
    assert (run(ask, make_case("dequantize", 64, 192, **flags), x).view(unsigned) != output.view(unsigned)).any()


@BOTH
@pytest.mark.parametrize("dtype", DTYPES)
def test_infinite_amax_gives_signed_inf_and_nan(make_case, ask, dtype):
    x = np.ones((16, 16), nvfp4.DTYPES[dtype])
    x[0, :3] = np.inf, 0, -np.inf
    given = run(ask, make_case("dequantize", 16, 16, dtype=dtype), x)[0]
    assert (given[0], given[2]) == (np.inf, -np.inf)
    assert given[1:2].view(f"u{x.itemsize}") == (0x7FFFFFFF if dtype == "fp32" else 0x7FFF)
    zeros = np.zeros((16, 16), nvfp4.DTYPES[dtype])
    zeros[0, 1] = -0.0
    given = run(ask, make_case("dequantize", 16, 16, dtype=dtype), zeros)
    np.testing.assert_array_equal(np.signbit(given), np.signbit(zeros))


@pytest.mark.parametrize(
    ("granularity", "shape"),
    [("tensor", (64,)), ("row", (1,)), ("row", (64, 1)), ("row", (128,)), ("window", (64,)), ("window", (128, 1))],
    ids=str,
)
def test_an_amax_of_another_granularity_is_refused(make_case, tensor, granularity, shape):
    case = make_case("dequantize", 64, 128, granularity=granularity)
    tensors = {**dequantize.inputs(case, tensor(64, 128)), "amax": np.ones(shape, F32)}
    assert_arrays_refused(case, tensors, f"amax must have the shape .* one amax per {granularity}")


@pytest.mark.parametrize(
    ("shape", "flags", "word"),
    [
        ((48, 80), {"granularity": "column"}, "tensor, row or window, not one per column"),
        ((48, 80), {"e4m3_max": 240}, "240"),
        ((48, 80), {"granularity": "row", "block": "block_16x16"}, "block must be block_1x16"),
        ((64, 64), {"granularity": "window", "block": "block_16x16"}, "block must be block_1x16"),
        ((64, 64), {"granularity": "window", "e4m3_max": 256}, "e4m3_max must be 448"),
        ((64, 80), {"granularity": "window"}, "multiples of 64, not 64x80"),
        ((48, 80), {"granularity": "row", "e4m3_max": 256, "outputs": "columnwise"}, "no amax of a column"),
        ((48, 72), {}, "48x72"),
    ],
)
def test_refuses(make_case, shape, flags, word):
    assert_refused(dequantize, make_case("dequantize", *shape, **flags), word)
