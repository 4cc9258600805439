"""Check operands that are drawn as bytes: the inputs `exact_sum` and `wide_sum`, and dequantize's `exhaustive`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.contract.case import Case
from harness.verify.witness import magnitudes

# The binary exponents of amaxes: the first and last of the usual range, and of the extreme range.
_EXPONENTS = {"a": ((-2, 11), (-126, -124)), "b": ((-2, 11), (60, 75))}


def objection(case: Case, inputs: Mapping[str, np.ndarray]) -> str:
    """A sentence on how the bytes break their input's promise, or an empty text."""
    if case.is_gemm and case.input in ("exact_sum", "wide_sum") and "a_data" in inputs:
        found = next((found for name in "ab" if (found := _of_product(case, name, inputs))), "")
    elif case.input == "exhaustive" and "data" in inputs:
        found = _exhaustive(case, inputs)
    else:
        return ""
    return found and f"the bytes of the input {case.input} are not what it promises: {found}"


def _of_product(case: Case, name: str, inputs: Mapping[str, np.ndarray]) -> str:
    data, amax = inputs[f"{name}_data"], inputs[f"{name}_amax"]
    scales = inputs[f"{name}_scale_inv"]
    # In a group the bytes of all groups are concatenated, so only properties that hold everywhere are checked.
    alone = not case.is_group
    if case.problem.capacity is not None and case.problem.by_k:
        own = sum(length for _, length in case.problem.tensors)  # each a multiple of 128, as scales are padded to
        data, scales = data[: len(data) * own // case.cols], scales[: len(scales) * own // case.cols]
    elif case.problem.capacity is not None and name == "a":
        rows = sum(rows for rows, _ in case.problem.tensors)  # each a multiple of 128, as scales are padded to
        data, scales, amax = data[:rows], scales[:rows], amax[:rows] if len(amax) == case.rows else amax
    if alone:
        valid, swizzled = (len(data), case.cols // 16), case.flags[f"{name}_scale_layout"] == "swizzled"
        scales = scales.reshape(-1)[magnitudes.places(scales.shape, valid, swizzled)]
    found = np.unique(scales)
    if case.input == "exact_sum" and not set(found) <= ({0x38, 0x40} if alone else {0, 0x38, 0x40}):
        return f"the scales of {name.upper()} are 1 and 2"
    if case.input == "wide_sum" and found.size and found[-1] >= 0x7F:
        return f"no scale of {name.upper()} is negative or NaN"
    if scales.size >= 16 and found.size < 2:
        return f"the scales of {name.upper()} differ"
    some = data.reshape(-1)[:4096]
    codes = np.bincount(np.concatenate([some & 15, some >> 4]), minlength=16) * 16 / max(1, 2 * some.size)
    if some.size >= 256 and not codes.all():
        return f"all codes occur in {name.upper()}"
    if some.size >= 1024 and np.abs(codes - 1).mean() > 0.15:
        return f"all codes occur equally often in {name.upper()}"
    if case.input == "exact_sum" and case.flags.get("epilogue") == "windows":
        return "" if set(np.unique(amax)) <= {1, 2} else f"the amaxes of {name.upper()} are 1 and 2"
    positive = amax[amax > 0]
    # An empty group has an amax of 0.
    few = positive.size < amax.size if alone else (amax < 0).any()
    if few or not np.isfinite(amax).all() or np.unique(positive).size < positive.size // 2:
        return f"the amaxes of {name.upper()} are positive and differ"
    if not _of_two_ranges(positive, _EXPONENTS[name]):
        return f"half of the amaxes of {name.upper()} are extreme, and all in their ranges"
    if alone and case.input == "wide_sum":
        return _cancels(name, data, scales)
    return ""


def _of_two_ranges(amax: np.ndarray, usual_and_far: tuple[tuple[int, int], ...]) -> bool:
    """Whether all binary exponents lie in two ranges; for many amaxes, about half in each, and some at every end."""
    exponents = np.frexp(amax)[1] - 1
    parts = [exponents[(exponents >= low) & (exponents <= high)] for low, high in usual_and_far]
    if sum(part.size for part in parts) < amax.size:
        return False
    if amax.size < 64:
        return True
    ends = amax.size < 256 or all(
        (part.min(), part.max()) == each for part, each in zip(parts, usual_and_far, strict=True)
    )
    return ends and abs(parts[0].size / amax.size - 0.5) < 0.22


def _cancels(name: str, data: np.ndarray, scales: np.ndarray) -> str:
    """A sentence unless the second half of the blocks repeats the first, with opposite signs in even rows of A."""
    half = scales.shape[1] // 2
    rows = slice(None, None, 2 if name == "a" else 1)
    first, second = data[rows, : 8 * half], data[rows, 8 * half : 16 * half]
    sign = 0x88 if name == "a" else 0
    same = np.array_equal(first ^ sign, second) and np.array_equal(scales[rows, :half], scales[rows, half : 2 * half])
    return "" if same else f"the halves of {name.upper()} cancel"


def _exhaustive(case: Case, inputs: Mapping[str, np.ndarray]) -> str:
    codes = np.stack([inputs["data"] & 15, inputs["data"] >> 4], axis=-1).reshape(-1, 16)
    if (np.sort(codes, axis=1) != np.arange(16)).any():
        return "every block has every code"
    columnwise = case.flags.get("outputs") == "columnwise"
    lines, length = (case.cols, case.rows) if columnwise else (case.rows, case.cols)
    valid = (lines, length // 16)
    place = magnitudes.places(inputs["scale_inv"].shape, valid, case.flags.get("scale_layout") == "swizzled")
    count = valid[0] * valid[1] // (16 if case.flags.get("block") == "block_16x16" else 1)
    if np.unique(inputs["scale_inv"].reshape(-1)[place]).size != min(256, count):
        return "every scale byte occurs, as far as there are blocks"
    amax = inputs["amax"].reshape(-1)
    if not np.isfinite(amax).all() or (amax <= 0).any() or np.unique(amax).size != amax.size:
        return "the amaxes are positive and differ"
    return ""
