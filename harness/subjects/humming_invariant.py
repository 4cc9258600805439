"""Humming's W4A16 product without parts of K, so that its bytes depend on no other row: its batch-invariant mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.contract.case import Case
from harness.subjects import handover, humming
from harness.subjects.subject import Arrays

NEEDS = humming.NEEDS
CONVENTIONS = humming.CONVENTIONS
HARNESS_FLAGS = {  # those of humming, and written out, as they are read from the source
    "epilogue": "per_tensor", "dtype": "bf16", "layout": "tn", "a_scale_layout": "compact", "b_scale_layout": "compact",
    "a_e4m3_max": 448, "b_e4m3_max": 448, "alpha": 1, "beta": 0, "bias": False,
    "scale_format": "e4m3", "a_global_scale": True, "b_global_scale": True,
}  # fmt: skip
refuses, call = humming.refuses, humming.call


def prepare(case: Case, given: Mapping[str, Any]) -> dict[str, Any]:
    return humming.prepare(case, given, invariant=True)


def quantize(case: Case, inputs: Arrays, outputs: Arrays) -> None:
    handover.run(lambda case, given: call(case, prepare(case, given)), case, inputs, outputs)
