"""Two oracles that share nothing give the same bytes: pairwise over flags, on shapes and inputs that hurt."""

from __future__ import annotations

import functools
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
import torch
from quantized import agree

from harness.contract.case import Case, Flags
from harness.contract.problem import Dense
from harness.errors import ContractError
from harness.oracles import dequantize, four_over_six, local_1x64, per_tensor, per_token, row_scaled, swizzle
from harness.suite import cover
from harness.suite.suite import suite_of

BLOCKS = [(16, 16), (48, 80), (128, 128), (304, 272)]
WINDOWS = [(64, 64), (192, 320)]
TILES = [(128, 128), (384, 256)]
SHAPES = {  # the last of each is slow: all flags on two inputs, a few on the others
    "per_tensor": BLOCKS,
    "row_scaled": BLOCKS,
    "local_1x64": WINDOWS,
    "four_over_six": BLOCKS,
    "per_token": TILES,
    "dequantize": WINDOWS,
}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)] if torch.cuda.is_available() else ["cpu"]
NUMPY = {"bf16": np.dtype(ml_dtypes.bfloat16), "fp16": np.dtype(np.float16), "fp32": np.dtype(np.float32)}
MODULES = {
    "per_tensor": per_tensor,
    "row_scaled": row_scaled,
    "local_1x64": local_1x64,
    "four_over_six": four_over_six,
    "per_token": per_token,
    "dequantize": dequantize,
}
AXES = {recipe: suite_of(recipe).file.axes for recipe in MODULES}
REFUSED = {("block", "block_16x16"), ("rht", True), ("rounding", "sr"), ("scale_layout", "swizzled")}  # by some recipes
RECIPES_AND_SHAPES = [
    pytest.param(recipe, shape, id="{}-{}x{}".format(recipe, *shape)) for recipe in AXES for shape in SHAPES[recipe]
]


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


def equal_errors(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Blocks of few values, whose map-to-4 and map-to-6 errors differ by roundings or not at all."""
    x = rng.choice([0, 0.75, -1, 4, 5, -5, 6], shape) * rng.choice([1, 1, 1, 0.5, 7 / 6], (shape[0], 1))
    x[0, 0] = 6 * 256
    return x * rng.choice([1, 1.3, 1.0625])


def lost_errors(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """16x16 tiles whose map-to-4 and map-to-6 errors are both 1, but for errors that are lost or not by their place."""
    rows, cols = shape
    tiles = rng.choice([0, 3 * 2.0**-26], (rows // 16, cols // 16, 256), p=[0.8, 0.2])
    hot = rng.permuted(np.tile(np.arange(256), (*tiles.shape[:2], 1)), axis=2)[..., :7]
    np.put_along_axis(tiles, hot, np.array([6, 4, 4, 0.75, 0.75, 0.75, 0.75]), axis=2)
    x = tiles.reshape(*tiles.shape[:2], 16, 16).swapaxes(1, 2).reshape(shape)
    x[0, 0] = 6 * 256
    return x


INPUTS = [normal, ties, specials, finite_extremes, tiny, nothing_but_nan, zeros, equal_errors, lost_errors]
Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def draw(how: Draw, shape: tuple[int, int], dtype: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        return how(np.random.default_rng([*shape, len(dtype)]), shape).astype(NUMPY[dtype])


def legal(recipe: str, flags: dict[str, object]) -> bool:
    try:
        MODULES[recipe].outputs(Case(recipe, Flags(flags), Dense(128, 128)))
    except ContractError:
        return False
    return True


@functools.cache
def pairwise_flags(recipe: str) -> list[Flags]:
    def flags(row: tuple[int, ...]) -> dict[str, object]:
        return {name: values[choice] for (name, values), choice in zip(axes.items(), row, strict=True)}

    def refused(row: tuple[int | None, ...]) -> bool:
        chosen = [axis for axis, choice in enumerate(row) if choice is not None]
        return not (rows[:, chosen] == [row[axis] for axis in chosen]).all(axis=1).any()

    axes = AXES[recipe]
    sizes = [len(values) for values in axes.values()]
    rows = np.array([row for row in cover.product(sizes) if legal(recipe, flags(row))])
    return [Flags(flags(row)) for row in cover.pairwise(sizes, refused)]


@pytest.mark.sweep
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("how", INPUTS, ids=lambda how: how.__name__)
@pytest.mark.parametrize("recipe, shape", RECIPES_AND_SHAPES)
def test_the_oracles_agree(recipe, shape, how, device):
    flags_of_cases = pairwise_flags(recipe)
    if shape == SHAPES[recipe][-1] and how not in (normal, specials):
        flags_of_cases = flags_of_cases[:3]
    for flags in flags_of_cases:
        case = Case(recipe, flags, Dense(*shape), how.__name__)
        x = draw(how, shape, flags.dtype)
        gated = flags.get("activation", "none") != "none"
        if flags.get("activation") == "dswiglu" and shape[1] % 32:
            with pytest.raises(ContractError, match="cols must be a multiple of 32 with dswiglu"):
                MODULES[recipe].inputs(case, x, x[::-1])
            continue
        agree(case, MODULES[recipe].inputs(case, x, *([x[::-1].copy()] if gated else [])), device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("amax", [np.pi, np.inf, 0.0, 1e-38, 3e38])
@pytest.mark.parametrize("outputs", ["rowwise", "columnwise"])
def test_dequantize_of_every_scale_byte_and_every_code(dtype, amax, outputs, device):
    flags = {"dtype": dtype, "outputs": outputs, "scale_layout": "compact", "granularity": "tensor", "e4m3_max": 448}
    case = Case("dequantize", Flags({**flags, "block": "block_1x16"}), Dense(128, 32), "exhaustive")
    tensors = dequantize.inputs(case, np.zeros((128, 32), NUMPY["bf16"]))
    agree(case, {**tensors, "amax": np.array([amax], np.float32)}, device)


@pytest.mark.gpu
def test_more_elements_than_an_int32_counts_on_cuda():
    rows, cols = (1 << 17) + 128, 1 << 14
    amax = {"rowwise_amax": torch.tensor([5.3], device="cuda"), "columnwise_amax": torch.tensor([5.3], device="cuda")}
    x = torch.randn((rows, cols), dtype=torch.bfloat16, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    flags = suite_of("per_tensor").defaults.replace(stage="encode")
    whole = per_tensor.torch_oracle(Case("per_tensor", flags, Dense(rows, cols)), {"input": x, **amax})
    tail = per_tensor.torch_oracle(Case("per_tensor", flags, Dense(128, cols)), {"input": x[-128:], **amax})
    assert torch.equal(whole["rowwise_data"][-128:], tail["rowwise_data"])
    assert torch.equal(whole["rowwise_scale_inv"][-128:], tail["rowwise_scale_inv"])
    assert torch.equal(whole["columnwise_data"][:, -64:], tail["columnwise_data"])
    assert torch.equal(whole["columnwise_scale_inv"][:, -8:], tail["columnwise_scale_inv"])


@pytest.mark.parametrize("recipe", AXES)
def test_the_pairs_reach_every_value_of_every_flag(recipe):
    covered = {(name, value) for flags in pairwise_flags(recipe) for name, value in flags.items()}
    missing = {(name, value) for name, values in AXES[recipe].items() for value in values} - covered
    assert missing <= REFUSED and (not missing or recipe in ("row_scaled", "local_1x64", "four_over_six"))


def test_a_wrong_byte_is_seen(monkeypatch):
    case = Case("swizzle", Flags({"direction": "rowwise", "to": "swizzled"}), Dense(128, 64))
    tensors = swizzle.inputs(case, draw(normal, (128, 64), "bf16"))
    monkeypatch.setattr(swizzle, "torch_oracle", lambda case, t: {"swizzled_scale_inv": t["scale_inv"]})
    with pytest.raises(AssertionError, match="bytes differ"):
        agree(case, tensors)
