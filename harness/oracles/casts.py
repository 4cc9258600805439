"""casts: e2m1 and e4m3 of every element, without a scale. NUMERICS section 1.

  e2m1_data = e2m1(x)   f32→e2m1 rounds to nearest even and saturates at 6; the even element is in the low nibble
  e4m3_data = e4m3(x)   f32→e4m3 rounds to nearest even and saturates at 448; the sign is kept
-0 keeps its sign; a NaN of either sign gives 0x7 and 0x7F.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.oracles import layout, nvfp4

if TYPE_CHECKING:
    import torch


def outputs(case: Case) -> dict[str, Field]:
    """`e2m1_data` (rows, cols/2) and `e4m3_data` (rows, cols), uint8."""
    layout.require_whole_blocks(case)
    return {
        "e2m1_data": layout.data_field(case.rows, case.cols, layout.ROWWISE),
        "e4m3_data": Field((case.rows, case.cols), "uint8", format="e4m3"),
    }


def inputs(case: Case, x: np.ndarray) -> dict[str, np.ndarray]:
    """`input` (rows, cols)."""
    layout.require_whole_blocks(case)
    return {"input": x}


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    v = tensors["input"].astype(np.float32)
    return {"e2m1_data": nvfp4.pack(nvfp4.e2m1(v)), "e4m3_data": nvfp4.e4m3(v)}


def torch_oracle(case: Case, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    from harness.oracles import torch_oracle as blocks

    return blocks.casts(tensors["input"])
