"""The steps from NVFP4 bytes back to floats, each with the choices in which implementations differ, and a GEMM's sum.

The counterpart of `harness.verify.diagnosis.steps`: the defaults are the contract here, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from harness.contract.case import Case
from harness.contract.dtypes import DTYPES
from harness.expected.expected import oracle_of
from harness.expected.formats import BLOCK, E2M1_VALUES, VALUES, unpacked
from harness.verify.diagnosis.difference import unswizzled
from harness.verify.diagnosis.steps import WINDOW, Steps

_NAN = {2: np.uint16(0x7FFF), 4: np.uint32(0x7FFFFFFF)}


@dataclass(frozen=True)
class Decoded:
    """The results of every step on n rows: (n, blocks) and, for codes, product and output, (n, cols).

    amax: the amax of the block's granule
    """

    codes: np.ndarray
    amax: np.ndarray
    scale_inv: np.ndarray
    scaled_amax: np.ndarray
    factor: np.ndarray
    product: np.ndarray
    output: np.ndarray


@dataclass(frozen=True)
class DecodeSteps:
    """One way from bytes to floats.

    dtype: the output's
    order: `scale_first`, RN(scale * amax) * C, or `amax_first`, scale * RN(amax * C)
    e4m3_max: the largest scale that was aimed at; two_levels: whether an amax is given, which else is 6 times this
    layout: `compact` or `swizzled` scale bytes
    low_nibble_first: whether the even element is in the low nibble
    granularity: of the amax, `tensor`, `row` or `window`
    granule: `own`, or `first` if every block is given the first amax there is
    transposed: whether a line of the copy that is read is a column of the output
    """

    dtype: str
    order: str = "scale_first"
    e4m3_max: int = 448
    scale_format: str = "e4m3"
    two_levels: bool = True
    layout: str = "compact"
    low_nibble_first: bool = True
    granularity: str = "tensor"
    granule: str = "own"
    transposed: bool = False

    @np.errstate(all="ignore")
    def decode(self, tensors: Mapping[str, np.ndarray], rows: np.ndarray) -> Decoded:
        """Decode whole rows of `data` and `scale_inv`, by the `amax` of every granule; nothing is transposed."""
        data = tensors["data"][rows]
        nibbles = (data & 15, data >> 4)
        codes = np.stack(nibbles if self.low_nibble_first else nibbles[::-1], axis=2).reshape(len(rows), -1)
        scale_inv = unswizzled(tensors["scale_inv"]) if self.layout == "swizzled" else tensors["scale_inv"]
        scale_inv = scale_inv[rows, : codes.shape[1] // BLOCK]
        rescale = np.float32(1) / np.float32(6 * self.e4m3_max)
        scale = VALUES[self.scale_format][scale_inv]
        given = tensors["amax"] if "amax" in tensors else np.float32([6 * self.e4m3_max])
        amax = np.broadcast_to(self._amaxes(given, rows), scale.shape)
        scaled_amax = scale * amax
        factor = scaled_amax * rescale if self.order == "scale_first" else scale * (amax * rescale)
        product = E2M1_VALUES[codes] * np.repeat(factor, BLOCK, axis=1)
        return Decoded(codes, amax, scale_inv, scaled_amax, factor, product, self._rounded(product))

    @np.errstate(all="ignore")
    def values(self, codes: np.ndarray, scale_inv: np.uint8, amaxes: np.ndarray) -> np.ndarray:
        """(n, 16): the values of one block's codes under each of n amaxes."""
        factor = (VALUES[self.scale_format][scale_inv] * amaxes) * (np.float32(1) / np.float32(6 * self.e4m3_max))
        return self._rounded(E2M1_VALUES[codes][None, :] * factor[:, None])

    def _rounded(self, product: np.ndarray) -> np.ndarray:
        """The products rounded to the output's dtype, with the hardware's NaN for every NaN."""
        output = product.astype(DTYPES[self.dtype])
        nan = _NAN[output.dtype.itemsize]
        output.view(nan.dtype)[np.isnan(product)] = nan
        return output

    def _amaxes(self, amax: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The amax of every block of some rows; broadcastable to (n, blocks)."""
        if self.granularity == "tensor" or self.granule == "first":
            return amax.reshape(-1)[:1].reshape(1, 1)
        if self.granularity == "row":
            return amax[rows, None]
        return np.repeat(amax[rows], WINDOW // BLOCK, axis=1)


def steps_of(case: Case, side: str) -> Steps | DecodeSteps | None:
    """The contract's steps to a field of this side, which may be empty; None if no steps are known."""
    oracle = oracle_of(case.recipe)
    if hasattr(oracle, "decode_steps"):
        return DecodeSteps(**oracle.decode_steps(case))
    return Steps.of(case, side) if side else None


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
    scales_of = VALUES[case.scale_format]
    dots = (E2M1_VALUES[a_codes] * E2M1_VALUES[b_codes]).reshape(-1, BLOCK).sum(axis=1, dtype=np.float32)
    with np.errstate(all="ignore"):
        products = (scales_of[a_scales] * scales_of[b_scales]) * dots
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
