"""mxfp8: what the bytes must be, computed twice: with NumPy and, sharing nothing with that, with torch.

1. amax      = max |x| over 32 values, NaN dropped
2. v         = amax * (1/448)                       floor: amax * 2^-8
3. scale_inv = e8m0(v), stored as its exponent + 127, from 0 to 254
               ceil: the least power of two that is not below v     floor: the largest that is not above v
               nearest: the power of two nearest to v, of two the larger
4. code      = e4m3(x * (1 / scale_inv))            saturates at 448; -0 keeps its sign, NaN is 0x7F
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field, round_up
from harness.errors import ContractError
from harness.oracles import nvfp4

BLOCK = 32
ELEMENT_MAX = 448
LARGEST_POWER = 2.0**8  # of the element's values
POWERS = np.ldexp(np.float32(1), np.arange(-127, 128))  # what the bytes 0 to 254 stand for


def directions(case: Case) -> tuple[str, ...]:
    return {"both": ("rowwise", "columnwise")}.get(case.flags.outputs, (case.flags.outputs,))


def refuse(case: Case) -> None:
    """Raise ContractError for a size that the recipe does not take."""
    if case.cols % BLOCK or (case.rows % BLOCK and "columnwise" in directions(case)):
        raise ContractError(
            f"{case.recipe}: cols, and columnwise rows, must be multiples of {BLOCK}, not {case.rows}x{case.cols}; "
            "a scale is of whole blocks"
        )


def outputs(case: Case) -> dict[str, Field]:
    """The arrays that the kernel writes, by parameter."""
    refuse(case)
    rows, cols = case.rows, case.cols
    valid = {"rowwise": (rows, cols // BLOCK), "columnwise": (rows // BLOCK, cols)}
    padded = {
        "rowwise": (round_up(rows, 128), round_up(cols // BLOCK, 4)),
        "columnwise": (round_up(rows // BLOCK, 4), round_up(cols, 128)),
    }
    block = {"rowwise": (1, BLOCK), "columnwise": (BLOCK, 1)}
    fields = {}
    for side in directions(case):
        fields[f"{side}_data"] = Field((rows, cols), "uint8", format="e4m3")
        fields[f"{side}_scale_inv"] = Field(padded[side], "uint8", valid=valid[side], block=block[side], format="e8m0")
    return fields


def inputs(case: Case, x: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays that the kernel reads, by parameter. x: (rows, cols), drawn by the suite's input"""
    refuse(case)
    return {"input": x}


def e8m0(amax: np.ndarray, rule: str) -> np.ndarray:
    """2 and 3: the byte of each amax, float32 >= 0 or inf → uint8, by comparing with every power of two."""
    v = amax * np.float32(1 / LARGEST_POWER if rule == "floor" else 1 / ELEMENT_MAX)
    found = {
        "ceil": lambda: np.searchsorted(POWERS, v, side="left"),
        "floor": lambda: np.searchsorted(POWERS, v, side="right") - 1,
        "nearest": lambda: np.searchsorted(POWERS[:-1] * np.float32(1.5), v, side="right"),
    }[rule]()
    return np.clip(found, 0, 254).astype(np.uint8)


def block_amax(x: np.ndarray) -> np.ndarray:
    """1: (lines, length) float32 → (lines, length/32)."""
    return nvfp4.amax(x.reshape(len(x), -1, BLOCK), axis=2)


def stepped(by: int, right: Callable = e8m0) -> Callable:
    """A wrong `e8m0`, whose bytes are so many steps off."""
    return lambda amax, rule: np.clip(right(amax, rule).astype(int) + by, 0, 254).astype(np.uint8)


# Where exactly one of these gives every byte that a kernel wrote, the screen says so: a name, the functions above that
# are done otherwise, and how.
MISTAKES = {
    "exponent bias one too large": {"e8m0": stepped(1)},
    "exponent bias one too small": {"e8m0": stepped(-1)},
    "a block of 16 in place of 32": {
        "block_amax": lambda x: nvfp4.amax(x.reshape(len(x), -1, BLOCK)[..., :16], axis=2)
    },
    "NaN kept in the amax": {"block_amax": lambda x: np.abs(x).reshape(len(x), -1, BLOCK).max(axis=2)},
    "a block of nothing but NaN has the amax NaN": {
        "block_amax": lambda x: np.fmax.reduce(np.abs(x).reshape(len(x), -1, BLOCK), axis=2)
    },
}


def quantized(x: np.ndarray, rule: str) -> tuple[np.ndarray, np.ndarray]:
    """Scale bytes (lines, length/32) and codes (lines, length) of float32 lines."""
    scale_inv = e8m0(block_amax(x), rule)
    with np.errstate(invalid="ignore", over="ignore"):
        product = x * np.repeat(np.float32(1) / POWERS[scale_inv], BLOCK, axis=1)
    return scale_inv, nvfp4.e4m3(product)  # 4


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    x, arrays = tensors["input"].astype(np.float32), {}
    for side in directions(case):
        turned = np.transpose if side == "columnwise" else np.asarray
        scale_inv, codes = map(turned, quantized(turned(x), case.flags.scale_rule))
        field = outputs(case)[f"{side}_scale_inv"]
        arrays[f"{side}_data"] = np.ascontiguousarray(codes)
        arrays[f"{side}_scale_inv"] = np.zeros(field.shape, np.uint8)
        arrays[f"{side}_scale_inv"][: scale_inv.shape[0], : scale_inv.shape[1]] = scale_inv
    return arrays


def torch_oracle(case: Case, tensors: dict) -> dict:
    import torch

    from harness.oracles import torch_numerics

    x, arrays = tensors["input"], {}
    for side in directions(case):
        across = side == "rowwise"
        blocks = x.unflatten(1, (-1, BLOCK)) if across else x.unflatten(0, (-1, BLOCK))
        axis = 2 if across else 1
        amax = torch_numerics.magnitude_max(blocks, axis)  # 1
        factor = 1 / LARGEST_POWER if case.flags.scale_rule == "floor" else 1 / ELEMENT_MAX
        v = amax * torch.full_like(amax, factor)  # 2
        fraction, exponent = torch.frexp(v)  # v = fraction * 2^exponent, fraction from 0.5 to 1
        least = {"ceil": fraction > 0.5, "floor": fraction >= 1, "nearest": fraction >= 0.75}[case.flags.scale_rule]
        byte = (exponent + 126 + least.int()).clamp(0, 254)  # 3
        byte = byte.masked_fill(v == 0, 0).masked_fill(v.isinf(), 254).to(torch.uint8)
        multiplier = (254 - byte).view(torch.float8_e8m0fnu).float().unsqueeze(axis)  # torch's own decoding
        product = (blocks.float() * multiplier).flatten(1, 2) if across else (blocks.float() * multiplier).flatten(0, 1)
        codes = product.clamp(-ELEMENT_MAX, ELEMENT_MAX).to(torch.float8_e4m3fn).view(torch.uint8)  # 4
        arrays[f"{side}_data"] = codes.masked_fill(product.isnan(), 0x7F)
        rows, cols = outputs(case)[f"{side}_scale_inv"].shape
        arrays[f"{side}_scale_inv"] = torch.nn.functional.pad(byte, (0, cols - byte.shape[1], 0, rows - byte.shape[0]))
    return arrays
