"""fouroversix, its PyTorch backend: a reference by its authors, on a CPU or a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.contract.case import Case
from harness.subjects import fouroversix_calls as calls
from harness.subjects import handover
from harness.subjects.subject import Arrays

NEEDS = calls.NEEDS
CONVENTIONS = calls.CONVENTIONS
HARNESS_FLAGS = {
    "stage": ["full", "encode"], "activation": "none", "fast_math": False,
    "row_scaled": False, "e4m3_max": 256, "error_math": "exact",
    "sign_mask": 0xD7E8,
}  # fmt: skip
_REFERENCE = "fouroversix.quantize.pytorch.reference"
_LARGEST = 6  # largest value of e2m1


@contextmanager
def saturating() -> Iterator[None]:
    """While the context lasts, let its rounding to nearest saturate at the largest e2m1 value.

    Unpatched, it rounds such values to 8 and more. Then four_over_six chooses by the error of values that have no
    code, and 8 gets the code of -0. Block scales that round down to a coarse e4m3 cause such values.
    """
    reference = calls.load(_REFERENCE)
    rounded = reference.fake_quantize_to_e2m1

    def saturated(x: Any, **options: Any) -> Any:
        return rounded(x.clamp(-_LARGEST, _LARGEST), **options)

    reference.fake_quantize_to_e2m1 = saturated
    try:
        yield
    finally:
        reference.fake_quantize_to_e2m1 = rounded


MENDS = {"rounding to nearest does not saturate at 6": saturating}


def refuses(case: Case) -> str:
    return calls.refuses(case) or ("its rotation matrix is made on a GPU only" if case.flags.rht else "")


def call(case: Case, given: dict[str, Any]) -> dict[str, Any]:
    quantize_to_fp4 = calls.load(_REFERENCE).quantize_to_fp4
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
