"""torchao's `nvfp4_quantize` under torch.compile, as its users run it."""

from __future__ import annotations

from functools import cache
from typing import Any

from harness.contract.case import Case
from harness.subjects import handover, torchao
from harness.subjects.subject import Arrays

NEEDS = torchao.NEEDS
CONVENTIONS = torchao.CONVENTIONS
HARNESS_FLAGS = {  # those of torchao, and written out, as they are read from the source
    "dtype": ["bf16", "fp32"], "block": "block_1x16", "rht": False, "rounding": "rne", "fast_math": False,
    "activation": "none",
    "stage": ["full", "encode"],
}  # fmt: skip
refuses = torchao.refuses


def call(case: Case, given: dict[str, Any]) -> dict[str, Any]:
    """Quantize torch tensors; the first call for a shape compiles, which takes long."""
    return torchao.quantize_with(_compiled(), case, given)


@cache
def _compiled() -> Any:
    import torch
    from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize

    return torch.compile(nvfp4_quantize, fullgraph=True, dynamic=False)


def quantize(case: Case, inputs: Arrays, outputs: Arrays) -> None:
    handover.run(call, case, inputs, outputs)
