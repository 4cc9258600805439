"""The flags of a GEMM, shared by all GEMM recipes: epilogues, layouts and refusals. NUMERICS 10.3 to 10.5.

An operand is `a` or `b` in flags and arrays, and A or B in sentences.
"""

from __future__ import annotations

from harness.contract.case import Case
from harness.errors import ContractError
from harness.oracles import nvfp4, per_tensor, quantizer
from harness.oracles.layout import COLUMNWISE, ROWWISE, Direction

LAYOUTS = {"tn": (ROWWISE, ROWWISE), "nn": (ROWWISE, COLUMNWISE), "nt": (COLUMNWISE, COLUMNWISE)}  # copies of A and B
PER_TOKEN = ("per_token", "per_token_fused")
EPILOGUES = ("per_tensor", "row_scaled", *PER_TOKEN, "windows")
EXACT_SUM_LARGEST_K = 16384  # more terms of up to 576 quarters could pass 2^24
EXACT_WINDOWS_LARGEST_K = 4096  # a term has an amax of up to 2 for each operand as well

# Flag → its neutral value, and the epilogues that allow other values
_OPTIONS = {
    "alpha": (1, ("per_tensor",)),
    "beta": (0, ("per_tensor",)),
    "bias": (False, ("per_tensor", "row_scaled", "per_token_fused")),
    "accumulate": (False, ("row_scaled", "per_token_fused")),
    "gelu": (False, ()),
    "b_granularity": ("row", ("row_scaled",)),
}


def direction(case: Case, name: str) -> Direction:
    """The copy of an operand that the case reads."""
    return LAYOUTS[case.flags.layout]["ab".index(name)]


def lines(case: Case, name: str) -> int:
    """Rows of the copy that is read: M of A, N of B."""
    return case.rows if name == "a" else case.problem.n


def granularity(case: Case, name: str) -> str:
    """The extent of one amax of an operand: `tensor`, `row` or `window`; the latter two in the copy that is read."""
    flags = case.flags
    if flags.epilogue == "windows":
        return "window"
    if flags.epilogue == "per_tensor":
        return "tensor"
    return flags.b_granularity if name == "b" and flags.epilogue == "row_scaled" else "row"


def two_levels(case: Case, name: str) -> bool:
    """Whether an operand has an amax above its block scales."""
    return bool(case.flags.get(f"{name}_global_scale", True))


def scale_max(case: Case, name: str) -> int:
    """E of 10.3: the largest block scale that an operand aims at, in either format."""
    return case.scale_max if case.scale_format == "ue5m3" else int(case.flags[f"{name}_e4m3_max"])


def recipes(case: Case, name: str) -> tuple[str, ...]:
    """The recipes an operand may come from."""
    if case.scale_format != "e4m3" or not two_levels(case, name):
        return ("per_tensor",)
    if case.flags.epilogue in PER_TOKEN:
        return ("per_token",)
    if case.flags.epilogue == "windows":
        return ("local_1x64",)
    return ("per_tensor" if granularity(case, name) == "tensor" else "row_scaled"), "four_over_six"


def refuse(case: Case) -> None:
    """Raise ContractError for extents or a combination of flags that no GEMM defines."""
    flags, epilogue = case.flags, case.flags.epilogue
    for flag, choices in (("epilogue", EPILOGUES), ("layout", tuple(LAYOUTS))):
        if flags[flag] not in choices:
            raise ContractError(f"{case.recipe}: {flag} must be {', '.join(choices)}, not {flags[flag]}")
    _refuse_extents(case)
    for flag, (neutral, having) in _OPTIONS.items():
        if epilogue not in having:
            quantizer.require(case, flag, neutral, f"the epilogue {epilogue} has no such step, and ignores nothing")
    if epilogue == "per_token":
        quantizer.require(case, "dtype", "bf16", "gemm_post_scale scales a bf16 output in its place")
    if epilogue == "per_token_fused" and flags.accumulate:
        quantizer.require(case, "dtype", "fp32", "a gradient is accumulated in fp32")
        quantizer.require(case, "bias", False, "a bias goes forward, and what accumulates is a gradient")
    _refuse_levels(case)
    for name in "ab":
        _refuse_range(case, name)
        if flags[f"{name}_dtype"] not in nvfp4.DTYPES:
            right = ", ".join(nvfp4.DTYPES)
            raise ContractError(f"{case.recipe}: {name}_dtype must be {right}, not {flags[f'{name}_dtype']}")
        if epilogue in PER_TOKEN:
            quantizer.require(case, f"{name}_dtype", "bf16", "per_token quantizes bf16 alone")


def _refuse_extents(case: Case) -> None:
    windows = case.flags.epilogue == "windows"
    block = nvfp4.WINDOW if windows else nvfp4.BLOCK
    because = "an amax covers a window of 64" if windows else "a scale covers 16 elements"
    # A kernel may read any number of rows of a rowwise copy; every other extent is the quantizer's own.
    a_multiple = 1 if direction(case, "a") is ROWWISE else block
    for extent, value, operands, multiple in (
        ("K", case.cols, "A and B", block),
        ("M", case.rows, "A", a_multiple),
        ("N", case.problem.n, "B", block),
    ):
        if value < 1 or value % multiple:
            raise ContractError(
                f"{case.recipe}: {extent} of {operands} must be a positive multiple of {multiple}, not {value}: "
                f"{because}"
            )
    largest = EXACT_WINDOWS_LARGEST_K if windows else EXACT_SUM_LARGEST_K
    if case.input == "exact_sum" and case.cols > largest:
        raise ContractError(
            f"{case.recipe}: K of A and B must be at most {largest} for exact_sum, not {case.cols}: "
            "a longer sum may round"
        )


def _refuse_levels(case: Case) -> None:
    if case.scale_format not in per_tensor.SCALE_FORMATS:
        raise ContractError(f"{case.recipe}: scale_format must be e4m3 or ue5m3, not {case.scale_format}")
    for name in "ab":
        if case.scale_format == "e4m3" and two_levels(case, name):
            continue
        because = "scales in ue5m3, and operands without an amax, are per_tensor's"
        quantizer.require(case, "epilogue", "per_tensor", because)
        quantizer.require(case, f"{name}_e4m3_max", nvfp4.E4M3_MAX, because)


def _refuse_range(case: Case, name: str) -> None:
    flag = f"{name}_e4m3_max"
    quantizer.require_one_of(case, flag, nvfp4.E4M3_BOUNDS)
    if case.flags[flag] == nvfp4.E4M3_MAX:
        return
    if case.flags.epilogue in PER_TOKEN:
        quantizer.require(case, flag, nvfp4.E4M3_MAX, "another bound is four_over_six's, which is not per_token")
    if case.flags.epilogue == "windows":
        quantizer.require(case, flag, nvfp4.E4M3_MAX, "another bound is four_over_six's, which has no windows")
    if granularity(case, name) == "row" and direction(case, name) is COLUMNWISE:
        columns = f"layout {case.flags.layout} reads the columns of {name.upper()}"
        quantizer.require(case, flag, nvfp4.E4M3_MAX, f"four_over_six gives amaxes to rows, and {columns}")
