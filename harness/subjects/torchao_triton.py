"""torchao's Triton kernel that swizzles scales into tiles. https://pypi.org/project/torchao"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from harness.contract.case import Case
from harness.subjects.handover import tensor
from harness.subjects.subject import Arrays

NEEDS = {
    "torch": "pip install torch", "torchao": "pip install --no-deps torchao==0.18.0", "triton": "pip install triton",
}  # fmt: skip
TRITON_TARGET = "sm_100a"
HARNESS_FLAGS = {"to": "swizzled"}


def refuses(case: Case) -> str:
    if case.recipe != "swizzle":
        return f"torchao has no kernel of Triton for {case.recipe}; it has one for swizzle"
    return "" if case.flags.to == "swizzled" else "torchao has no kernel of Triton that takes scales out of tiles"


@cache
def _kernel() -> Callable[[Any], Any]:
    """The package's function, which it only defines if torch finds a GPU for Triton."""
    from torch.utils import _triton

    before, _triton.has_triton = _triton.has_triton, lambda: True
    try:
        from torchao.prototype.mx_formats.kernels import triton_mx_block_rearrange
    finally:
        _triton.has_triton = before
    return triton_mx_block_rearrange


def quantize(case: Case, inputs: Arrays, outputs: Arrays) -> None:
    tiles = tensor(outputs["swizzled_scale_inv"])
    tiles.copy_(_kernel()(tensor(inputs["scale_inv"])).reshape(tiles.shape))
