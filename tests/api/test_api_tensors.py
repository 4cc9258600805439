"""Own tensors are quantized and dequantized: the oracle's bytes, in the library of what was given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
import torch

import harness
from harness.api import tensors
from harness.api.arrays import OfCupy, OfTorch, require_aligned
from harness.errors import UsageError
from harness.oracles import per_tensor
from harness.suite import cover
from harness.suite.suite import suite_of

X = np.random.default_rng(1).normal(size=(128, 256)).astype(ml_dtypes.bfloat16)
RECIPES = ("per_tensor", "per_token", "row_scaled", "local_1x64", "four_over_six")


def as_torch(array: np.ndarray, device: str = "cpu") -> torch.Tensor:
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(device)


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_way_there_and_back(recipe):
    quantized = harness.quantize(X, recipe)
    values = X.astype(np.float32)
    for side in ("rowwise", "columnwise"):
        if f"{side}_data" in quantized.fields:
            back = harness.dequantize(quantized, "fp32", side)
            assert back.shape == X.shape and back.dtype == np.float32
            assert np.square(back - values).sum() < 0.02 * np.square(values).sum()


@pytest.mark.parametrize(
    "flags", [{}, {"outputs": "rowwise", "scale_layout": "swizzled"}, {"rht": True, "rounding": "sr"}], ids=str
)
def test_the_bytes_are_the_oracles(flags):
    quantized = harness.quantize(X, "per_tensor", seed=7, offset=3, **flags)
    case = replace(harness.make_case("per_tensor", X.shape, **flags), philox_seed=7, philox_offset=3)
    right = per_tensor.numpy_oracle(case, {"input": X})
    assert right.keys() == quantized.fields.keys()
    assert all(right[name].tobytes() == quantized[name].tobytes() for name in right)
    assert quantized.flags == case.flags


def test_the_seed_decides_what_is_rounded_at_random():
    one, two, again = (harness.quantize(X, rounding="sr", seed=seed)["rowwise_data"] for seed in (0, 1, 0))
    assert (one == again).all() and (one != two).any()


def test_torch_gets_torch():
    quantized = harness.quantize(as_torch(X).requires_grad_(False))
    assert {type(array) for array in quantized.fields.values()} == {torch.Tensor}
    assert quantized["rowwise_data"].numpy().tobytes() == harness.quantize(X)["rowwise_data"].tobytes()
    assert harness.dequantize(quantized).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_dtypes_are_seen(dtype):
    assert harness.quantize(X.astype(dtype)).flags["dtype"] == {2: "fp16", 4: "fp32"}[np.dtype(dtype).itemsize]


def test_integers_are_bits_of_bf16_if_that_is_said():
    said = harness.quantize(X.view(np.uint16), dtype="bf16")
    assert said["rowwise_data"].tobytes() == harness.quantize(X)["rowwise_data"].tobytes()


class Foreign:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_any_library_comes_through_dlpack():
    x = X.astype(np.float32)
    assert harness.quantize(Foreign(x))["rowwise_data"].tobytes() == harness.quantize(x)["rowwise_data"].tobytes()


def test_a_group_is_quantized_tensor_by_tensor():
    group = harness.quantize(np.concatenate([X, X[::-1]]), "grouped", shape="128+0+128x256")
    assert group["rowwise_amax"].shape == (3,)
    first = harness.quantize(X)["rowwise_data"].reshape(-1)
    assert group["rowwise_data"][: first.size].tobytes() == first.tobytes()


def changed(change) -> harness.Quantized:
    """A quantized tensor with other codes."""
    made = harness.quantize(X)
    return replace(made, fields={**made.fields, "rowwise_data": change(made["rowwise_data"])})


def test_the_recipe_of_a_group_may_be_named_and_a_group_is_not_dequantized_as_a_whole():
    x = np.ones((256, 128), np.float32).astype(ml_dtypes.bfloat16)
    made = harness.quantize(x, "grouped", shape="128+128x128", recipe="row_scaled")
    assert made.flags["recipe"] == "row_scaled"
    with pytest.raises(UsageError, match="a group is not dequantized as a whole; quantize and dequantize its tensors"):
        harness.dequantize(made)


def test_what_is_quantized_is_a_mapping():
    made = harness.quantize(X, outputs="rowwise")
    names = ["rowwise_data", "rowwise_scale_inv", "rowwise_amax"]
    assert isinstance(made, Mapping) and list(made) == names and len(made) == 3
    assert dict(made) == dict(made.items()) == dict(**made) and [*made.values()][0] is made["rowwise_data"]
    assert "rowwise_amax" in made and "columnwise_data" not in made and made.get("columnwise_data") is None
    assert made == made and made != harness.quantize(X, outputs="rowwise") and hash(made)
    with pytest.raises(KeyError):
        made["rowise_data"]


def decodable(recipe: str):
    """Flags of a recipe that quantize takes, every legal pair of values among them."""
    suite = suite_of(recipe)
    axes = {flag: values for flag, values in suite.file.axes.items() if flag not in ("stage", "activation", "dtype")}
    sizes = [len(values) for values in axes.values()]
    for row in cover.pairwise(sizes, lambda row: suite.refusal(flags_of(axes, row)) is not None):
        yield flags_of(axes, row)


def flags_of(axes, row):
    return {flag: values[i] for (flag, values), i in zip(axes.items(), row, strict=True) if i is not None}


@pytest.mark.parametrize("recipe", RECIPES)
def test_all_that_quantize_makes_is_dequantized(recipe):
    """Also a tensor without rows, a ragged one, and a columnwise copy alone."""
    least = suite_of(recipe).file.multiple_of
    for flags in decodable(recipe):
        for shape in ((0, 256), (least, least), (3 * least, 5 * least)):
            x = X[:1, :1] * np.ones(shape, np.float32).astype(X.dtype)
            made = harness.quantize(as_torch(x) if shape[0] == least else x, recipe, **flags)
            for side in ("rowwise", "columnwise"):
                if f"{side}_data" in made:
                    back = harness.dequantize(made, "bf16", side)
                    assert tuple(back.shape) == shape and type(back) is type(made[f"{side}_data"]), flags
                else:
                    with pytest.raises(UsageError, match=f"there is no {side} copy in this tensor; it has "):
                        harness.dequantize(made, "bf16", side)


def test_a_tensor_without_rows_keeps_its_library_and_dtype():
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)):
        back = harness.dequantize(harness.quantize(torch.zeros(0, 64, dtype=torch.bfloat16)), name, "columnwise")
        assert back.shape == (0, 64) and back.dtype == dtype


def test_a_view_has_the_signs_that_it_shows():
    x = as_torch(X).float()
    negative = torch._neg_view(x)
    assert (
        negative.is_neg() and (harness.quantize(negative)["rowwise_data"] == harness.quantize(-x)["rowwise_data"]).all()
    )
    own = x.numpy().view(type("Own", (np.ndarray,), {}))
    assert type(harness.quantize(own)["rowwise_data"]) is np.ndarray


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda: harness.quantize(X[:, ::2]), "x of shape .* is not contiguous in memory; pass np.ascontiguousarray"),
        (lambda: harness.quantize(X.T), "is not contiguous"),
        (lambda: harness.quantize(as_torch(X).T), r"pass x\.contiguous"),
        (lambda: harness.quantize([[1.0]]), "x is a list; give an array of NumPy, torch or CuPy"),
        (lambda: harness.quantize(X.astype(np.float64)), "x is float64; it must be bfloat16, float16 or float32"),
        (lambda: harness.quantize(X.view(np.uint16)), "are bits of bf16 if you say dtype='bf16'"),
        (lambda: harness.quantize(X, dtype="fp16"), "x is bfloat16, and dtype says fp16"),
        (lambda: harness.quantize(X[0]), "it must have two dimensions"),
        (lambda: harness.quantize(X[:100]), "rows = 100 is not a positive multiple of 16"),
        (lambda: harness.quantize(X, "per_tenser"), "did you mean 'per_tensor'"),
        (lambda: harness.quantize(X, rhtt=True), "did you mean 'rht'"),
        (lambda: harness.quantize(X, stage="amax"), "leave out stage"),
        (lambda: harness.quantize(X, seed=-1), "it must be an integer from 0"),
        (lambda: harness.quantize(X, seed=True), "it must be an integer from 0"),
        (lambda: harness.quantize(X, "swizzle"), "makes no codes and scales, but swizzled_scale_inv"),
        (lambda: harness.quantize(X, "gemm"), "one reads MxKxN"),
        (lambda: harness.quantize(X, shape="64x256"), "x has the shape .*, and shape says 64x256"),
        (lambda: harness.quantize(X, "per_tensor", rht=True, block="block_16x16"), "no 16x16 tile in common"),
        (lambda: harness.dequantize(X), "takes what quantize returned, not a ndarray"),
        (lambda: harness.dequantize(harness.quantize(X), "fp8"), "there is no dtype 'fp8'"),
        (lambda: harness.dequantize(harness.quantize(X, outputs="rowwise"), side="columnwise"), "it has rowwise"),
        (lambda: harness.quantize(as_torch(X).to_sparse()), "sparse, nested or quantized tensor of torch"),
        (
            lambda: harness.quantize(torch.nested.as_nested_tensor([as_torch(X)] * 2, layout=torch.jagged)),
            "sparse, nested or quantized",
        ),
        (lambda: harness.quantize(np.ma.masked_array(X.astype(np.float32), mask=X > 0)), "x is a masked array"),
        (
            lambda: harness.quantize(X.reshape(2, 64, 256), shape="128x256"),
            r"x has the shape \(2, 64, 256\), and shape",
        ),
        (lambda: harness.quantize(X, None), "recipe is a NoneType; it must be a str"),
        (lambda: harness.quantize(X, shape=128), "shape is a int; give extents"),
        (lambda: harness.quantize(X)["rowwise_dat"], "no field 'rowwise_dat' in this tensor; did you mean 'rowwise_d"),
        (lambda: harness.dequantize(changed(lambda a: a[:64])), r"rowwise_data is uint8 \(64, 128\); per_tensor makes"),
        (lambda: harness.dequantize(changed(lambda a: a.astype(np.float32))), "rowwise_data is float32"),
        (lambda: harness.dequantize(changed(torch.from_numpy)), "the rowwise arrays are of different libraries"),
        (lambda: harness.quantize(torch.zeros(16, 16, device="meta")), "it must be on the CPU or on a CUDA GPU"),
    ],
)
def test_a_mistake_is_one_sentence(ask, sentence):
    with pytest.raises(UsageError, match=sentence) as caught:
        ask()
    assert "\n" not in str(caught.value)


# Where an array of a GPU begins


@pytest.fixture
def on_gpu(monkeypatch):
    """Tensors on the CPU are taken for those of a GPU, whose kernels are not run: what they would write is empty."""
    monkeypatch.setattr(tensors, "taken", lambda name, array: (array, OfTorch(torch.device("cuda", 0))))
    monkeypatch.setattr(
        tensors,
        "_on_gpu",
        lambda case, library, arrays, fields: {
            name: torch.empty(field.shape, dtype=getattr(torch, field.dtype)) for name, field in fields.items()
        },
    )


def moved(array: torch.Tensor, by: int) -> torch.Tensor:
    """A copy of an array that starts `by` elements after the start of its allocation."""
    memory = torch.empty(array.numel() + by, dtype=array.dtype, device=array.device)
    view = memory[by:].view(array.shape)
    view.copy_(array)
    assert view.is_contiguous()
    return view


def test_kernels_get_what_begins_at_a_multiple_of_16_bytes(on_gpu):
    made = harness.quantize(moved(as_torch(X), 8))
    assert harness.dequantize(made).shape == X.shape
    assert harness.quantize(moved(as_torch(X), 1).clone()).shape == "128x256"


def test_what_begins_elsewhere_is_refused_before_a_launch(on_gpu):
    sentence = r"x begins 2 bytes behind an address that is a multiple of 16, .*; pass x\.clone\(\)"
    with pytest.raises(UsageError, match=sentence):
        harness.quantize(moved(as_torch(X), 1))
    with pytest.raises(UsageError, match=sentence):
        harness.quantize(moved(as_torch(X), 1), "grouped", shape="128x256")
    made = harness.quantize(as_torch(X))
    for name, by in (("rowwise_data", 8), ("columnwise_scale_inv", 4), ("rowwise_amax", 1)):
        other = replace(made, fields={**made.fields, name: moved(made[name], by)})
        with pytest.raises(UsageError, match=f"{name} begins {by * made[name].element_size()} bytes behind"):
            harness.dequantize(other, side=name.partition("_")[0])


def test_an_array_of_cupy_is_asked_too_and_one_without_elements_is_not():
    array = SimpleNamespace(data=SimpleNamespace(ptr=0x7F0000000104), shape=(16, 16))
    with pytest.raises(UsageError, match=r"x begins 4 bytes behind .*; pass x\.copy\(\), whose memory is its own"):
        require_aligned("x", array, OfCupy(0))
    array.shape = (0, 16)
    require_aligned("x", array, OfCupy(0))


def test_on_a_cpu_an_array_may_begin_anywhere():
    x = moved(as_torch(X), 1)
    assert (harness.quantize(x)["rowwise_data"] == harness.quantize(as_torch(X))["rowwise_data"]).all()


# On a GPU


@pytest.mark.gpu
def test_a_view_within_an_allocation_is_refused_and_the_gpu_goes_on():
    view = moved(as_torch(X, "cuda"), 1)
    with pytest.raises(UsageError, match="x begins 2 bytes behind"):
        harness.quantize(view)
    assert harness.quantize(view.clone())["rowwise_data"].shape == (128, 128)


@pytest.mark.gpu
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_kernel_writes_what_the_oracle_says(recipe):
    right = harness.quantize(X, recipe, seed=5)
    made = harness.quantize(as_torch(X, "cuda"), recipe, seed=5)
    assert {array.device.type for array in made.fields.values()} == {"cuda"}
    assert all(made[name].cpu().numpy().tobytes() == right[name].tobytes() for name in right.fields)
    back = harness.dequantize(made, "bf16").cpu().view(torch.int16).numpy()
    assert back.tobytes() == harness.dequantize(right, "bf16").tobytes()


@pytest.mark.gpu
def test_cupy_gets_cupy_and_a_group_its_kernels():
    import cupy

    x = cupy.asarray(X.astype(np.float32))
    assert harness.quantize(x)["rowwise_data"].get().tobytes() == harness.quantize(x.get())["rowwise_data"].tobytes()
    both = np.concatenate([X, X[::-1]])
    made = harness.quantize(as_torch(both, "cuda"), "grouped", shape="128+0+128x256")
    right = harness.quantize(both, "grouped", shape="128+0+128x256")
    assert all(made[name].cpu().numpy().tobytes() == right[name].tobytes() for name in right.fields)


@pytest.mark.gpu
def test_launches_are_queued_on_the_callers_stream():
    x, stream = as_torch(X, "cuda"), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        right = harness.quantize(x)["rowwise_data"].cpu()  # compiles, loads and allocates
    torch.cuda.synchronize()
    late = torch.zeros_like(x)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        late.copy_(x)  # after the wait, so whoever runs elsewhere sees zeros
        made = harness.quantize(late)["rowwise_data"]
        assert not stream.query(), "quantize waited for the stream"
    stream.synchronize()
    assert (made.cpu() == right).all()
