"""The sum of a product in the order of Hopper's matrix unit: NUMERICS 10.2, steps H1 to H5, in NumPy.

A line is cut into stages of 128, the last filled up with zeros, and a stage into eight steps of sixteen products. Step
(half, word, parity) has, of the four blocks 2t + half, the elements 8 word + parity + 0, 2, 4 and 6. A window of 64 has
four steps, of all its blocks. `add_step` is what the unit does with the products of one step and the sum so far.

The unit multiplies codes times scales times 2^-7, as f16. Here it is codes times scales; the exponent at which an f16
is subnormal is 7 higher for that, and no other step sees the difference. No sum leaves the normal float32: all terms
are multiples of 2^-20 and below 2^23.
"""

from __future__ import annotations

import numpy as np

from harness.oracles import nvfp4

STAGE = 128
FRACTION = 25  # bits of a term below the largest exponent
_TINY = -7  # no factor counts as smaller: -14, the least exponent of a normal f16, times 2^7
_NONE = -400  # the exponent of a 0
_TILE = (16, 128)  # rows and columns summed at a time, so that the terms of a step stay in cache

_elements = np.arange(STAGE).reshape(4, 2, 2, 4, 2)  # t, half, word, pair, parity
STAGE_STEPS = _elements.transpose(1, 2, 4, 0, 3).reshape(8, 16)
WINDOW_STEPS = np.arange(nvfp4.WINDOW).reshape(4, 2, 4, 2).transpose(1, 3, 0, 2).reshape(4, 16)

Lines = tuple[np.ndarray, np.ndarray]  # of one operand: values (steps, 16, lines) float64, their exponents int16


def sums(a: np.ndarray, b: np.ndarray, splits: int) -> np.ndarray:
    """acc (rows, N), float32, of values (rows, K) and (N, K), float64; a line with a NaN gives NaNs.

    splits: part p of so many sums the stages p, p + splits, ...; their sums are added in order, each rounded
    """
    left, right = (_in_steps(x, STAGE_STEPS) for x in (a, b))
    stage = np.arange(len(left[0])) // len(STAGE_STEPS)
    acc = np.zeros((len(a), len(b)), np.float32)
    for part in range(splits):
        own = stage % splits == part
        acc = acc + _summed(_chosen(left, own), _chosen(right, own))
    return _with_nans(acc, a, b)


def sums_of_windows(a: np.ndarray, b: np.ndarray, a_amax: np.ndarray, b_amax: np.ndarray) -> np.ndarray:
    """As `sums`, of operands with amaxes (rows, K/64) and (N, K/64), which multiply the sum of each window."""
    left, right = (_in_steps(x, WINDOW_STEPS) for x in (a, b))
    acc, steps = np.zeros((len(a), len(b)), np.float32), len(WINDOW_STEPS)
    for w in range(a_amax.shape[1]):
        along = slice(w * steps, (w + 1) * steps)
        of_window = _with_nans(_summed(_chosen(left, along), _chosen(right, along)), a, b)
        acc = acc + (a_amax[:, w, None] * b_amax[:, w]) * of_window
    return acc


def add_step(total: np.ndarray, a: Lines, b: Lines, fraction: int = FRACTION) -> np.ndarray:
    """H3: the sum so far (rows, N), float64 holding float32, plus the products of one step, (16, rows) by (16, N)."""
    largest = (a[1][:, :, None] + b[1][:, None, :]).max(axis=0)
    largest = np.maximum(largest, _exponent(total))
    to_unit = _power(fraction - largest)
    terms = a[0][:, :, None] * b[0][:, None, :]
    terms *= to_unit
    found = np.trunc(terms, out=terms).sum(axis=0)
    found += np.trunc(total * to_unit)
    return _cut(found * _power(largest - fraction))


def _summed(a: Lines, b: Lines) -> np.ndarray:
    """The sum of all steps from +0 on, (rows, N) float32."""
    found = np.zeros((a[0].shape[2], b[0].shape[2]), np.float32)
    for top in range(0, found.shape[0], _TILE[0]):
        rows = slice(top, top + _TILE[0])
        for left in range(0, found.shape[1], _TILE[1]):
            cols = slice(left, left + _TILE[1])
            total = np.zeros(found[rows, cols].shape)
            for k in range(len(a[0])):
                total = add_step(total, (a[0][k][:, rows], a[1][k][:, rows]), (b[0][k][:, cols], b[1][k][:, cols]))
            found[rows, cols] = total
    return found


def _in_steps(x: np.ndarray, steps: np.ndarray) -> Lines:
    """H1 and H2: the values of lines (lines, K), a NaN as 0, in the steps that take them."""
    lines, length = x.shape
    whole = -(-length // steps.size) * steps.size
    filled = np.zeros((lines, whole))
    filled[:, :length] = np.where(np.isnan(x), 0, x)
    values = filled.reshape(lines, -1, steps.size)[:, :, steps].transpose(1, 2, 3, 0)
    values = np.ascontiguousarray(values).reshape(-1, steps.shape[1], lines)
    exponent = np.maximum(_exponent(values), _TINY)
    return values, np.where(values == 0, _NONE, exponent).astype(np.int16)


def _chosen(lines: Lines, steps: np.ndarray | slice) -> Lines:
    return lines[0][steps], lines[1][steps]


def _with_nans(acc: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    nan = np.isnan(a).any(axis=1)[:, None] | np.isnan(b).any(axis=1)
    return np.where(nan, np.float32(np.nan), acc)


def _exponent(x: np.ndarray) -> np.ndarray:
    """floor(log2 |x|) of float64, int64; far below all others of 0."""
    return (np.ascontiguousarray(x).view(np.int64) >> 52 & 0x7FF) - 1023


def _power(exponent: np.ndarray) -> np.ndarray:
    """2^exponent, float64."""
    return (exponent.astype(np.int64) + 1023 << 52).view(np.float64)


def _cut(x: np.ndarray) -> np.ndarray:
    """float64 cut off to the 24 bits of a float32, toward zero."""
    return (x.view(np.int64) & ~np.int64((1 << 29) - 1)).view(np.float64)
