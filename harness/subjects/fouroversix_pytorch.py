"""fouroversix, its PyTorch backend: a reference by its authors, on a CPU or a GPU."""

from __future__ import annotations

from typing import Any

from harness.contract.case import Case
from harness.subjects import fouroversix_calls as calls
from harness.subjects import handover
from harness.subjects.subject import Arrays

NEEDS = calls.NEEDS
CONVENTIONS = calls.CONVENTIONS


def refuses(case: Case) -> str:
    return calls.refuses(case) or ("its rotation matrix is made on a GPU only" if case.flags.rht else "")


def call(case: Case, given: dict[str, Any]) -> dict[str, Any]:
    quantize_to_fp4 = calls.load("fouroversix.quantize.pytorch.reference").quantize_to_fp4
    found: dict[str, Any] = {}
    for side in handover.sides(case):
        data, scales, _ = quantize_to_fp4(
            given["input"],
            x_amax=found.setdefault(f"{side}_amax", calls.amax(case, given, found)),
            block_scale_2d=case.flags.block == "block_16x16",
            round_style=calls.rounding(case),
            scale_rule=calls.scale_rule(case),
            transpose=side == "columnwise",
            use_blackwell_scale_layout=False,
        )
        found |= {f"{side}_data": data, f"{side}_scale_inv": scales.reshape(data.shape[0], -1)}
    return found


def quantize(case: Case, inputs: Arrays, outputs: Arrays) -> None:
    handover.run(call, case, inputs, outputs)
