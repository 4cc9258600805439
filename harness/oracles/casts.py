"""casts: e2m1 and e4m3 of every element, with no scale between. NUMERICS section 1.

  e2m1_data = e2m1(x), packed, the even element in the low nibble
  e4m3_data = e4m3(x), sign included
Both nearest-even and saturating; -0 keeps its sign; a NaN of either sign is 0x7 and 0x7F.
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
        "e4m3_data": Field((case.rows, case.cols), "uint8"),
    }


def inputs(case: Case, x: np.ndarray) -> dict[str, np.ndarray]:
    """`input` (rows, cols), as it is."""
    layout.require_whole_blocks(case)
    return {"input": x}


def numpy_oracle(case: Case, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Both casts of every element."""
    v = tensors["input"].astype(np.float32)
    return {"e2m1_data": nvfp4.pack(nvfp4.e2m1(v)), "e4m3_data": nvfp4.e4m3(v)}


def torch_oracle(case: Case, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same from the independent torch oracle, on the device the tensor is on."""
    from harness.oracles import torch_oracle as blocks

    return blocks.casts(tensors["input"])
