"""fouroversix, its Triton kernels: the fastest quantizer in public that runs on Hopper."""

from __future__ import annotations

from typing import Any

from harness.contract.case import Case
from harness.subjects import fouroversix_calls as calls
from harness.subjects import handover
from harness.subjects.subject import Arrays

NEEDS = calls.NEEDS | {"triton": "pip install triton"}
CONVENTIONS = calls.CONVENTIONS


def refuses(case: Case) -> str:
    import torch

    return calls.refuses(case) or ("" if torch.cuda.is_available() else "its kernels run on a GPU only")


def call(case: Case, given: dict[str, Any]) -> dict[str, Any]:
    config = calls.load("fouroversix.quantize.config").QuantizationConfig
    quantize_to_fp4 = calls.load("fouroversix.quantize.frontend").quantize_to_fp4
    found: dict[str, Any] = {}
    for side in handover.sides(case):
        rotated = bool(case.flags.rht) and side == "columnwise"
        known = {} if rotated else {"x_amax": calls.amax(case, given, found)}
        made = quantize_to_fp4(
            given["input"],
            config(
                backend="triton",
                block_scale_2d=case.flags.block == "block_16x16",
                kwargs=known,
                rht=rotated,
                round_style=calls.rounding(case),
                scale_rule=calls.scale_rule(case),
                transpose=side == "columnwise",
            ),
        )
        found |= {f"{side}_data": made.values, f"{side}_scale_inv": made.scale_factors, f"{side}_amax": made.amax}
    return found


def quantize(case: Case, inputs: Arrays, outputs: Arrays) -> None:
    handover.run(call, case, inputs, outputs)
