"""One element of a GEMM's output, block by block in the stated order, for a trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from harness.contract.case import Case
from harness.verify.diagnosis.casts import BLOCK, E2M1_VALUES, E4M3_VALUES, unpacked
from harness.verify.diagnosis.difference import unswizzled


class Term(NamedTuple):
    """A block's part of the sum: its scale bytes, the exact dot of its codes, their product, and the sum so far."""

    block: int
    a_scale: np.uint8
    b_scale: np.uint8
    dot: np.float32
    product: np.float32
    acc: np.float32


def terms(case: Case, tensors: Mapping[str, np.ndarray], row: int, col: int) -> list[Term]:
    """All K/16 terms of element (row, col)."""
    a_codes, a_scales = operand(case, tensors, "a", row)
    b_codes, b_scales = operand(case, tensors, "b", col)
    dots = (E2M1_VALUES[a_codes] * E2M1_VALUES[b_codes]).reshape(-1, BLOCK).sum(axis=1, dtype=np.float32)
    with np.errstate(all="ignore"):
        products = (E4M3_VALUES[a_scales] * E4M3_VALUES[b_scales]) * dots
        acc, found = np.float32(0), []
        for block, (a, b, dot, product) in enumerate(zip(a_scales, b_scales, dots, products, strict=True)):
            acc = acc + product
            found.append(Term(block, a, b, dot, product, acc))
    return found


def operand(
    case: Case, tensors: Mapping[str, np.ndarray], name: str, rows: int | slice = slice(None)
) -> tuple[np.ndarray, np.ndarray]:
    """The (..., K) codes and (..., K/16) scale bytes of rows of operand `a` or `b`."""
    data, scales = tensors[f"{name}_data"], tensors[f"{name}_scale_inv"]
    if case.flags.get(f"{name}_scale_layout") == "swizzled":
        scales = unswizzled(scales)
    return unpacked(data[rows]), scales[: len(data), : case.cols // BLOCK][rows]
