"""kept: what the bytes must be, computed twice: with NumPy and, sharing nothing with that, with torch.

1. amax      = max |x| over 16 values of a row, NaN dropped
2. scale_inv = e4m3(amax * (1/6))
3. code      = e2m1(x * (1 / scale_inv))     x * 0 if scale_inv is 0; NaN is code 7
"""

from __future__ import annotations

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.oracles import layout, nvfp4


def refuse(case: Case) -> None:
    """Raise ContractError for a size that the recipe does not take."""
    layout.require_whole_blocks(case)


def outputs(case: Case) -> dict[str, Field]:
    """The arrays that the kernel writes, by parameter."""
    refuse(case)
    return {
        "rowwise_data": layout.data_field(case.rows, case.cols, layout.ROWWISE),
        "rowwise_scale_inv": layout.scale_field(case.rows, case.cols, layout.ROWWISE, "block_1x16", swizzled=False),
    }


def inputs(case: Case, x: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays that the kernel reads, by parameter. x: (rows, cols), drawn by the suite's input"""
    refuse(case)
    return {"input": x}


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    x = tensors["input"].astype(np.float32)
    amax = nvfp4.block_amax(x)  # 1
    scale_inv = nvfp4.e4m3(amax * np.float32(1 / 6))  # 2
    scale = nvfp4.decode_e4m3(scale_inv)
    with np.errstate(divide="ignore", invalid="ignore"):
        multiplier = np.where(scale == 0, np.float32(0), np.float32(1) / scale)
        product = x * np.repeat(multiplier, 16, axis=1)  # 3
    return {
        "rowwise_data": nvfp4.pack(nvfp4.e2m1(product)),
        "rowwise_scale_inv": layout.arrange(scale_inv, "compact"),
    }


def torch_oracle(case: Case, tensors: dict) -> dict:
    import torch

    from harness.oracles import torch_layout, torch_numerics

    blocks = tensors["input"].unflatten(1, (-1, 16))
    amax = torch_numerics.magnitude_max(blocks, 2)  # 1
    scale = torch_numerics.e4m3(amax * torch.tensor(1 / 6, device=amax.device))  # 2
    value = scale.float()
    multiplier = torch.where(value == 0, 0.0, torch.ones_like(value) / value)
    codes = torch_numerics.nearest_codes(blocks.float() * multiplier.unsqueeze(2))  # 3
    rows, cols = torch_layout.padded_shape(*value.shape)
    padded = torch.nn.functional.pad(scale.view(torch.uint8), (0, cols - value.shape[1], 0, rows - value.shape[0]))
    return {"rowwise_data": torch_layout.pack(codes.flatten(1)), "rowwise_scale_inv": padded}
