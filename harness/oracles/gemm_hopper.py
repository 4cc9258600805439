"""The sum of a product in the order of Hopper's matrix unit: NUMERICS 10.2, steps H1 to H5, in NumPy.

A line is cut into stages of 128, the last filled up with zeros, and a stage into eight steps of sixteen products. Step
(half, word, parity) has, of the four blocks 2t + half, the elements 8 word + parity + 0, 2, 4 and 6. A window of 64 has
four steps, of all its blocks. `add_step` is what the unit does with the products of one step and the sum so far.

The unit multiplies codes times scales times 2^-7, of ue5m3 2^-4, as f16. Here it is codes times scales; the exponent at
which an f16 is subnormal is 7 or 4 higher for that, and no other step sees the difference. No sum leaves the normal
float32: all terms are multiples of 2^-20 and below 2^23, of ue5m3 multiples of 2^-36 and below 2^39.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from harness.oracles import nvfp4

STAGE = 8 * nvfp4.BLOCK
STAGE_STEPS, WINDOW_STEPS = 8, 4
DEPTH = 16  # products of a step
FRACTION = 25  # bits that a term keeps below the largest exponent
_TINY = {"e4m3": -7, "ue5m3": -10}  # least exponent of a factor: -14, the least of a normal f16, plus 7 or 4
_NONE = -400  # the exponent of a 0
_TILE_ROWS, _TILE_SUMS = 16, 1 << 11  # rows and sums at a time, so that the terms of a step stay in cache
_SLAB = 1 << 21  # elements of B that are put in order at a time

Lines = tuple[np.ndarray, np.ndarray]  # an operand's values (steps, 16, lines) float64, and their exponents int16


def sums(a: np.ndarray, b: np.ndarray, splits: int, scale_format: str = "e4m3") -> np.ndarray:
    """acc (M, N), float32, of values (M, K) and (N, K), float64; a line with a NaN gives NaNs.

    splits: part p of so many sums the stages p, p + splits, ...; their sums are added in order, each rounded
    """

    def part(left: Lines, right: Lines, _: slice) -> np.ndarray:
        acc = np.zeros((left[0].shape[2], right[0].shape[2]), np.float32)
        for first in range(splits):
            stages = range(first * STAGE_STEPS, len(left[0]), splits * STAGE_STEPS)
            acc = acc + _summed(left, right, [s + i for s in stages for i in range(STAGE_STEPS)])  # H4
        return acc

    return _by_slabs(a, b, STAGE, part, _TINY[scale_format])


def sums_of_windows(a: np.ndarray, b: np.ndarray, a_amax: np.ndarray, b_amax: np.ndarray) -> np.ndarray:
    """`sums` for operands with amaxes (M, K/64) and (N, K/64), which multiply the sum of each window."""

    def part(left: Lines, right: Lines, cols: slice) -> np.ndarray:
        acc = np.zeros((left[0].shape[2], right[0].shape[2]), np.float32)
        for w in range(a_amax.shape[1]):
            of_window = _summed(left, right, range(w * WINDOW_STEPS, (w + 1) * WINDOW_STEPS))
            acc = acc + (a_amax[:, w, None] * b_amax[cols, w]) * of_window  # H5
        return acc

    return _by_slabs(a, b, nvfp4.WINDOW, part, _TINY["e4m3"])


def add_step(total: np.ndarray, a: Lines, b: Lines) -> np.ndarray:
    """H3: the sum so far (rows, N), float64 holding float32, plus the products of one step, (16, rows) by (16, N)."""
    largest = (a[1][:, :, None] + b[1][:, None, :]).max(axis=0)
    largest = np.maximum(largest, _exponent(total))
    to_unit = _power(FRACTION - largest)
    terms = a[0][:, :, None] * b[0][:, None, :]
    terms *= to_unit
    found = np.trunc(terms, out=terms).sum(axis=0)
    found += np.trunc(total * to_unit)
    return _cut(found * _power(largest - FRACTION))


def _by_slabs(
    a: np.ndarray, b: np.ndarray, group: int, part: Callable[[Lines, Lines, slice], np.ndarray], least: int
) -> np.ndarray:
    """Compute all columns, some lines of B at a time. part: makes the sums of A with these lines"""
    acc = np.empty((len(a), len(b)), np.float32)
    left, lines = _in_steps(a, group, least), max(_TILE_ROWS, _SLAB // b.shape[1])
    for first in range(0, len(b), lines):
        cols = slice(first, first + lines)
        acc[:, cols] = part(left, _in_steps(b[cols], group, least), cols)
    acc[np.isnan(a).any(axis=1)] = np.nan
    acc[:, np.isnan(b).any(axis=1)] = np.nan
    return acc


def _summed(a: Lines, b: Lines, steps: Iterable[int]) -> np.ndarray:
    """The sum of some steps from +0 on, (rows, N) float32."""
    found = np.zeros((a[0].shape[2], b[0].shape[2]), np.float32)
    height = min(_TILE_ROWS, found.shape[0])
    width = _TILE_SUMS // height
    for top in range(0, found.shape[0], height):
        rows = slice(top, top + height)
        for left in range(0, found.shape[1], width):
            cols = slice(left, left + width)
            total = np.zeros(found[rows, cols].shape)
            for k in steps:
                total = add_step(total, (a[0][k][:, rows], a[1][k][:, rows]), (b[0][k][:, cols], b[1][k][:, cols]))
            found[rows, cols] = total
    return found


def _in_steps(x: np.ndarray, group: int, least: int) -> Lines:
    """H1 and H2: the values of lines (lines, K), a NaN as 0, in the steps that take them.

    group: a stage or a window; least: the smallest exponent that a factor has
    """
    lines, length = x.shape
    filled = np.zeros((lines, -(-length // group) * group))
    filled[:, :length] = x
    np.nan_to_num(filled, copy=False)
    # The block t of its half, the half, the word, the pair of elements within it, the parity
    within = filled.reshape(lines, -1, 4, group // nvfp4.WINDOW, 2, 4, 2)
    values = np.ascontiguousarray(within.transpose(1, 3, 4, 6, 2, 5, 0)).reshape(-1, DEPTH, lines)
    exponent = np.maximum(_exponent(values), least)
    return values, np.where(values == 0, _NONE, exponent).astype(np.int16)


def _exponent(x: np.ndarray) -> np.ndarray:
    """floor(log2 |x|) of float64, int64; for 0 it is far below all others."""
    return (x.view(np.int64) >> 52 & 0x7FF) - 1023


def _power(exponent: np.ndarray) -> np.ndarray:
    """2^exponent, float64."""
    return (exponent.astype(np.int64) + 1023 << 52).view(np.float64)


def _cut(x: np.ndarray) -> np.ndarray:
    """float64 cut off to the 24 bits of a float32, toward zero."""
    return (x.view(np.int64) & ~np.int64((1 << 29) - 1)).view(np.float64)
