"""Humming's W4A16 product: NVFP4 weights, decoded in registers, by bf16 activations. https://pypi.org/project/humming-kernels

Every step of it is exact but the sum: A's codes times their scales are bf16 without rounding, W's are so in its kernel,
and the two tensors' factor, which it applies to the fp32 sum, is the contract's. Where a product has fewer tiles than
the GPU has room for, it cuts K into up to ten parts (Stream-K) and adds them up in bf16, which the bound of a sum in
fp32 need not cover, and where more than three parts are added, in whatever order they come. `humming_invariant` does
not. In what was measured both lie within the bound.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.contract.case import Case
from harness.subjects import handover
from harness.subjects.subject import Arrays

NEEDS = {"torch": "pip install torch", "humming-kernels": "pip install --no-deps humming-kernels==0.1.19"}
CONVENTIONS: frozenset[str] = frozenset()
TILE = 128  # N and K must be multiples of it for every tile it chooses; then no scale byte is padding
LOCKS = 2048  # int32 locks for the parts of one tile, as many as its own layer allocates
HARNESS_FLAGS = {
    "epilogue": "per_tensor", "dtype": "bf16", "layout": "tn", "a_scale_layout": "compact", "b_scale_layout": "compact",
    "a_e4m3_max": 448, "b_e4m3_max": 448, "alpha": 1, "beta": 0, "bias": False,
    "scale_format": "e4m3", "a_global_scale": True, "b_global_scale": True,
}  # fmt: skip


def refuses(case: Case) -> str:
    if case.recipe != "gemm":
        return f"Humming has no {case.recipe}; it has gemm"
    for flag, value in HARNESS_FLAGS.items():
        if case.flags[flag] != value:
            return f"Humming is given no {flag} other than {value}"
    if case.problem.n % TILE or case.cols % TILE:
        return f"Humming takes N and K that are multiples of {TILE}, not {case.problem.n} and {case.cols}"
    return ""


def prepare(case: Case, given: Mapping[str, Any], invariant: bool = False) -> dict[str, Any]:
    """A layer: W in Humming's order, A as bf16, and the tile that its own heuristics choose for this M.

    Nothing is tuned by trial. Left to itself, it would compile its 92 tiles for all M at the first call.
    """
    # Otherwise an import starts processes to search for dependencies, which may run during timing.
    os.environ.setdefault("HUMMING_DISABLE_PARALLEL_BUILD", "1")
    import torch
    from humming.schema.modelopt import ModeloptNvfp4WeightSchema
    from humming.transform import prepare_and_transform_humming_tensors
    from humming.tune import get_heuristics_config

    device = given["b_data"].device
    config, weights = prepare_and_transform_humming_tensors(
        {
            "weight": given["b_data"].view(torch.int32),
            "weight_scale": given["b_scale_inv"].view(torch.float8_e4m3fn),
            "weight_scale_2": _factor(case, given),
        },
        case.problem.n,
        case.cols,
        ModeloptNvfp4WeightSchema().to_humming_schema(torch.bfloat16),
        torch_dtype=torch.bfloat16,
        device=device,
    )
    tile = get_heuristics_config(config, shape_m=case.rows, use_batch_invariant=invariant)
    return {
        **weights,
        "config": config,
        "inputs": _decoded(given["a_data"], given["a_scale_inv"]).bfloat16(),
        "locks": torch.zeros(LOCKS, dtype=torch.int32, device=device),
        "compute_config": json.dumps({"use_batch_invariant": invariant}),
        "tuning_config": json.dumps(tile),
    }


def call(case: Case, layer: Mapping[str, Any]) -> dict[str, Any]:
    """Multiply; the first call of an M compiles its kernel."""
    from humming.forward import humming_forward

    return {"output": humming_forward(**layer)}


def quantize(case: Case, inputs: Arrays, outputs: Arrays) -> None:
    handover.run(lambda case, given: call(case, prepare(case, given)), case, inputs, outputs)


def _factor(case: Case, given: Mapping[str, Any]) -> Any:
    """The factor of the sum, (1,) float32: both amaxes times 1 / (6 * 6 * e4m3_max * e4m3_max), in this order."""
    codes = np.float32(6 * 6 * case.flags.a_e4m3_max * case.flags.b_e4m3_max)
    return given["a_amax"] * given["b_amax"] * float(np.float32(1) / codes)


def _decoded(data: Any, scale_inv: Any) -> Any:
    """Codes times their scales, exact in float32: (lines, K) from packed codes (lines, K/2) and compact scales."""
    import torch

    values = torch.tensor((0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6), device=data.device)
    codes = torch.stack((data & 15, data >> 4), dim=-1).flatten(1)
    lines, blocks = data.shape[0], data.shape[1] // 8
    scale = scale_inv[:lines, :blocks].contiguous().view(torch.float8_e4m3fn).float()
    return values[codes.int()] * scale.repeat_interleave(16, 1)
