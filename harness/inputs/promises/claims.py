"""Claims about a tensor: whether each holds, and what it says.

Shares and means may be off by six deviations of chance, and by what rounding to the dtype does to all values alike.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

Claim = tuple[bool, str]  # whether it holds, and the sentence that describes it
Claims = Iterator[Claim]

LARGEST = {"bf16": (2 - 2.0**-7) * 2.0**127, "fp16": 65504.0, "fp32": (2 - 2.0**-23) * 2.0**127}
SMALLEST_NORMAL = {"bf16": 2.0**-126, "fp16": 2.0**-14, "fp32": 2.0**-126}
PRECISION = {"bf16": 2.0**-8, "fp16": 2.0**-11, "fp32": 2.0**-24}  # the largest relative error of a rounding
_MEDIAN = 0.67449  # median magnitude of a standard normal value
_ENOUGH = 64  # statistics need at least this many values
_SLACK = 2.0**-7  # in deviations: more than rounding to bf16, or leaving out values below 2^-7, moves a share or mean


def near(found: float, expected: float, spread: float, count: int) -> bool:
    """Whether `found` is a plausible mean of `count` values with this mean and standard deviation."""
    return bool(abs(found - expected) <= (6 / max(1, count) ** 0.5 + _SLACK) * spread)


def finite(x: np.ndarray) -> Claim:
    return bool(np.isfinite(x).all()), "all values are finite"


def both_signs(values: np.ndarray) -> Claim:
    """Claim that as many values are below as above zero, within chance."""
    share = np.signbit(values).mean() if values.size else 0.5
    return near(share, 0.5, 0.5, values.size), "half of the values are negative"


def standard_normal(values: np.ndarray) -> Claims:
    """Claims that the values, in any shape, are standard normal and do not repeat."""
    values = values.reshape(-1).astype(np.float64)
    if values.size >= _ENOUGH:
        yield near(values.mean(), 0, 1, values.size), "the mean is 0"
        yield near((values * values).mean(), 1, 2**0.5, values.size), "the mean square is 1"
        yield near((np.abs(values) < _MEDIAN).mean(), 0.5, 0.5, values.size), "half of the magnitudes are below 0.674"
    yield both_signs(values)
    yield varied(values)


def varied(values: np.ndarray) -> Claim:
    """Claim that at least a third of a few hundred values differ, so that they are not one value or a short pattern."""
    some = np.abs(values.reshape(-1)[:256])
    return bool(np.unique(some).size >= some.size // 3), "the values differ from each other"


def different_lines(x: np.ndarray) -> Claim:
    """Claims that no row or column equals the previous one."""
    down = x.shape[0] > 1 and x.shape[1] >= 16 and (x[1:] == x[:-1]).all(axis=1).any()
    across = x.shape[1] > 1 and x.shape[0] >= 16 and (x[:, 1:] == x[:, :-1]).all(axis=0).any()
    return not (down or across), "no row or column repeats its neighbour"


def uniform(values: np.ndarray, bound: float) -> Claims:
    """Claims that the values are uniform between -bound and bound."""
    share = np.abs(values.reshape(-1).astype(np.float64)) / bound
    yield bool((share <= 1 + 2.0**-7).all()), f"no magnitude is above {bound:g}"
    if share.size >= _ENOUGH:
        yield near(share.mean(), 0.5, 12**-0.5, share.size), f"the mean magnitude is half of {bound:g}"
        yield (
            near((share < 0.25).mean(), 0.25, 0.433, share.size),
            f"a quarter of the magnitudes is below {bound / 4:g}",
        )
    yield both_signs(values)
    yield varied(values)


def whole_tiles(x: np.ndarray) -> np.ndarray:
    """The 16x16 tiles that lie wholly in a matrix, (R, C, 16, 16)."""
    rows, cols = (extent // 16 for extent in x.shape)
    return x[: rows * 16, : cols * 16].reshape(rows, 16, cols, 16).transpose(0, 2, 1, 3)
