"""torchao's `nvfp4_quantize`, two-level, as plain torch operations. https://pypi.org/project/torchao"""

from __future__ import annotations

from typing import Any

from harness.contract.case import Case
from harness.subjects import handover
from harness.subjects.convention import Convention
from harness.subjects.subject import Arrays

NEEDS = {"torch": "pip install torch", "torchao": "pip install --no-deps torchao==0.18.0"}
CONVENTIONS = frozenset(
    {
        Convention.SCALE_ORDER,  # (block_amax / 6) / (amax / 2688)
        Convention.DIVIDER_ORDER,  # x * ((1 / per_tensor_scale) / scale)
        Convention.SCALE_FLOOR,  # 2^-6
        Convention.SPECIALS,
    }
)
HARNESS_FLAGS = {
    "dtype": ["bf16", "fp32"], "block": "block_1x16", "rht": False, "rounding": "rne", "fast_math": False,
    "activation": "none",
    "stage": ["full", "encode"],
}  # fmt: skip
_BOUND = 448 * 6


def refuses(case: Case) -> str:
    if case.recipe != "per_tensor":
        return f"torchao has no {case.recipe}; it has per_tensor"
    for flag, values in HARNESS_FLAGS.items():
        if case.flags[flag] not in (values if isinstance(values, list) else [values]):
            return f"nvfp4_quantize has no {flag}={case.flags[flag]}"
    return "" if case.elements else "nvfp4_quantize takes no tensor without rows"


def call(case: Case, given: dict[str, Any]) -> dict[str, Any]:
    from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize

    return quantize_with(nvfp4_quantize, case, given)


def quantize_with(nvfp4_quantize: Any, case: Case, given: dict[str, Any]) -> dict[str, Any]:
    """Quantize one or both directions; columnwise from a transposed copy, because it only takes contiguous input."""
    x = given["input"]
    known = [value for name, value in given.items() if name.endswith("_amax")]
    amax = known[0].reshape(()) if known else x.abs().max().float()
    found: dict[str, Any] = {}
    for side in handover.sides(case):
        lines = x.t().contiguous() if side == "columnwise" else x
        scales, data = nvfp4_quantize(lines, 16, amax / _BOUND)
        found |= {f"{side}_data": data, f"{side}_scale_inv": scales, f"{side}_amax": amax}
    return found


def quantize(case: Case, inputs: Arrays, outputs: Arrays) -> None:
    handover.run(call, case, inputs, outputs)
