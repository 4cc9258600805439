"""fouroversix, its Triton kernels: the fastest quantizer in public that runs on Hopper."""

from __future__ import annotations

from typing import Any

from harness.contract.case import Case
from harness.subjects import fouroversix_calls as calls
from harness.subjects import handover
from harness.subjects.subject import Arrays

NEEDS = calls.NEEDS | {"triton": "pip install triton"}
CONVENTIONS = calls.CONVENTIONS
HARNESS_FLAGS = {
    "stage": ["full", "encode"], "activation": "none", "fast_math": False,
    "row_scaled": False, "e4m3_max": 256, "error_math": "exact",
    "sign_mask": 0xD7E8,
}  # fmt: skip
TRITON_TARGET = "sm_90a"  # used without a GPU; for Blackwell it has other code, with `cvt` to e2m1
refuses = calls.refuses


def call(case: Case, given: dict[str, Any]) -> dict[str, Any]:
    # Bypasses its front end, which only takes GPU tensors.
    quantize_to_fp4 = calls.load("fouroversix.kernels.triton").quantize_to_fp4
    matrix = calls.load("fouroversix.quantize.utils").get_rht_matrix
    x, found = given["input"], dict[str, Any]()
    for side in handover.sides(case):
        rotated = bool(case.flags.rht) and side == "columnwise"
        known = {"had": matrix(device=x.device)} if rotated else {"x_amax": calls.amax(case, given, found)}
        data, scales, amax = quantize_to_fp4(
            x,
            round_style=calls.rounding(case),
            scale_rule=calls.scale_rule(case),
            block_scale_2d=case.flags.block == "block_16x16",
            transpose=side == "columnwise",
            **known,
        )
        found |= {f"{side}_data": data, f"{side}_scale_inv": scales, f"{side}_amax": amax}
    return found


def quantize(case: Case, inputs: Arrays, outputs: Arrays) -> None:
    handover.run(call, case, inputs, outputs)
