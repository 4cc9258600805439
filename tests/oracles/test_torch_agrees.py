"""Two oracles that share nothing give the same bytes: pairwise over flags, on shapes and inputs that hurt."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
import torch

from harness.case import Case, Flags
from harness.errors import ContractError
from harness.oracles import dequantize, per_tensor, swizzle
from harness.suite import cover

SHAPES = [(16, 16), (48, 80), (128, 128), (304, 272)]
LARGEST = SHAPES[-1]  # slow: all flags on two inputs, a few on the others
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
NUMPY = {"bf16": np.dtype(ml_dtypes.bfloat16), "fp16": np.dtype(np.float16), "fp32": np.dtype(np.float32)}
AXES = {
    "dtype": ["bf16", "fp16", "fp32"],
    "block": ["block_1x16", "block_16x16"],
    "outputs": ["both", "rowwise", "columnwise"],
    "rht": [False, True],
    "rounding": ["rne", "sr"],
    "scale_layout": ["compact", "swizzled"],
    "fast_math": [False, True],
    "stage": ["full", "amax", "encode"],
    "sign_mask": [0xD7E8, 0x0000, 0x8001],
}


def normal(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.standard_normal(shape) * np.exp2(rng.integers(-14, 3, (shape[0], 1)))


def ties(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Under S_enc = 1 and scales of 1: every midpoint, and full-mantissa values beside it."""
    x = rng.choice([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6], shape) * rng.choice([1, -1], shape)
    x *= rng.choice([1, 1, 1 + 2**-7, 1 - 2**-8, 1 + 2**-23, 1 - 2**-24], shape)
    x[0, 0] = 2688
    return x


def specials(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    x = normal(rng, shape)
    odd = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-39, 6e-8, 3e38, -65504, 2.0**-126]
    where = rng.random(shape) < 0.1
    x[where] = rng.choice(odd, int(where.sum()))
    return x


def finite_extremes(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.choice([0.0, -0.0, 1e-45, -1e-39, 6e-8, 1.0, -65504, 2.0**-126, 3.3e38], shape)


def tiny(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.standard_normal(shape) * 1e-40


def nothing_but_nan(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return np.full(shape, np.nan)


def zeros(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.choice([0.0, -0.0], shape)


INPUTS = [normal, ties, specials, finite_extremes, tiny, nothing_but_nan, zeros]
Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def draw(how: Draw, shape: tuple[int, int], dtype: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        return how(np.random.default_rng([*shape, len(dtype)]), shape).astype(NUMPY[dtype])


def to_torch(array: np.ndarray) -> torch.Tensor:
    if array.dtype == NUMPY["bf16"]:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def legal(flags: dict[str, object]) -> bool:
    try:
        per_tensor.outputs(Case("per_tensor", Flags(flags), 16, 16))
    except ContractError:
        return False
    return True


def pairwise_flags() -> list[Flags]:
    def flags(row: tuple[int | None, ...]) -> dict[str, object]:
        return {name: values[choice or 0] for (name, values), choice in zip(AXES.items(), row, strict=True)}

    rows = cover.pairwise([len(values) for values in AXES.values()], lambda row: not legal(flags(row)))
    return [Flags(flags(row)) for row in rows]


def agree(module, case: Case, tensors: dict[str, np.ndarray], device: str = "cpu") -> None:
    expected = module.numpy_oracle(case, tensors)
    on_device = {name: to_torch(array).to(device) for name, array in tensors.items()}
    actual = {name: tensor.cpu() for name, tensor in module.torch_oracle(case, on_device).items()}
    assert list(actual) == list(expected) == list(module.outputs(case))
    for name, array in expected.items():
        got = actual[name]
        assert tuple(got.shape) == array.shape == module.outputs(case)[name].shape
        assert got.dtype == to_torch(array).dtype and got.is_contiguous()
        wrong = np.argwhere(got.contiguous().view(torch.uint8).numpy() != np.atleast_1d(array).view(np.uint8))
        assert not len(wrong), f"{case.id} {name}: {len(wrong)} bytes differ, first at {wrong[0].tolist()}"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("how", INPUTS, ids=lambda how: how.__name__)
@pytest.mark.parametrize("shape", SHAPES, ids="{0[0]}x{0[1]}".format)
def test_per_tensor(shape, how, device):
    flags_of_cases = pairwise_flags() if shape != LARGEST or how in (normal, specials) else pairwise_flags()[:3]
    for flags in flags_of_cases:
        case = Case("per_tensor", flags, *shape, how.__name__)
        agree(per_tensor, case, per_tensor.inputs(case, draw(how, shape, flags.dtype)), device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("how", INPUTS, ids=lambda how: how.__name__)
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_dequantize(dtype, how, device):
    for block in ("block_1x16", "block_16x16"):
        for scale_layout in ("compact", "swizzled"):
            for e4m3_max in (448, 256):
                flags = {"dtype": dtype, "scale_layout": scale_layout, "block": block}
                flags = Flags({**flags, "granularity": "tensor", "e4m3_max": e4m3_max})
                case = Case("dequantize", flags, 48, 80, how.__name__)
                agree(dequantize, case, dequantize.inputs(case, draw(how, (48, 80), "bf16")), device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("amax", [np.pi, np.inf, 0.0, 1e-38, 3e38])
def test_dequantize_of_every_scale_byte_and_every_code(dtype, amax, device):
    flags = {"dtype": dtype, "scale_layout": "compact", "block": "block_1x16", "granularity": "tensor", "e4m3_max": 448}
    case = Case("dequantize", Flags(flags), 64, 64, "exhaustive")
    tensors = dequantize.inputs(case, np.zeros((64, 64), NUMPY["bf16"]))
    agree(dequantize, case, {**tensors, "amax": np.array([amax], np.float32)}, device)


@pytest.mark.parametrize("direction", ["rowwise", "columnwise"])
@pytest.mark.parametrize("shape", SHAPES, ids="{0[0]}x{0[1]}".format)
def test_swizzle(shape, direction):
    case = Case("swizzle", Flags({"direction": direction}), *shape)
    agree(swizzle, case, swizzle.inputs(case, draw(normal, shape, "bf16")))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_more_elements_than_an_int32_counts_on_cuda():
    rows, cols = (1 << 17) + 128, 1 << 14
    amax = {"rowwise_amax": torch.tensor([5.3], device="cuda"), "columnwise_amax": torch.tensor([5.3], device="cuda")}
    x = torch.randn((rows, cols), dtype=torch.bfloat16, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    defaults = {name: values[0] for name, values in AXES.items()}
    flags = Flags({**defaults, "stage": "encode"})
    whole = per_tensor.torch_oracle(Case("per_tensor", flags, rows, cols), {"input": x, **amax})
    tail = per_tensor.torch_oracle(Case("per_tensor", flags, 128, cols), {"input": x[-128:], **amax})
    assert torch.equal(whole["rowwise_data"][-128:], tail["rowwise_data"])
    assert torch.equal(whole["rowwise_scale_inv"][-128:], tail["rowwise_scale_inv"])
    assert torch.equal(whole["columnwise_data"][:, -64:], tail["columnwise_data"])
    assert torch.equal(whole["columnwise_scale_inv"][:, -8:], tail["columnwise_scale_inv"])


def test_the_pairs_reach_every_value_of_every_flag():
    covered = pairwise_flags()
    assert all({flags[name] for flags in covered} == set(values) for name, values in AXES.items())


def test_a_wrong_byte_is_seen(monkeypatch):
    case = Case("swizzle", Flags({"direction": "rowwise"}), 128, 64)
    tensors = swizzle.inputs(case, draw(normal, (128, 64), "bf16"))
    monkeypatch.setattr(swizzle, "torch_oracle", lambda case, t: {"swizzled_scale_inv": t["scale_inv"]})
    with pytest.raises(AssertionError, match="bytes differ"):
        agree(swizzle, case, tensors)
