"""What a field may hold where the contract bounds its values and does not name their bytes.

Entries are compared in the order of numbers, in which -0 lies below +0, and a NaN without sign beyond +inf. So an entry
with two equal ends must have exactly their bytes, and a NaN is inside only where it is demanded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

WITNESSES_AGREE = 2.0**-40  # of the sum of magnitudes, for the exact values behind two witnesses' intervals


@dataclass(frozen=True)
class Interval:
    """For each entry of a field the lowest and the highest value it may have; arrays of NumPy, or of torch.

    low, high: in the field's dtype and shape
    sums: float64, the value that was bounded, whose two neighbours `low` and `high` come from; None once two witnesses
        need not agree about it any more
    sizes: float64, the sum of the magnitudes of its terms, which is what an error is measured against
    """

    low: Any
    high: Any
    sums: Any = None
    sizes: Any = None

    @property
    def dtype(self) -> np.dtype:
        """Of an entry."""
        return self.low.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the field."""
        return self.low.shape

    @property
    def bounds(self) -> Interval:
        """Only `low` and `high`."""
        return Interval(self.low, self.high)

    def map(self, change: Callable[[Any], Any]) -> Interval:
        """The same with every array changed."""
        return Interval(
            *(None if array is None else change(array) for array in (self.low, self.high, self.sums, self.sizes))
        )

    def nearest(self, written: np.ndarray) -> np.ndarray:
        """What was written, or, where it is outside, the end it is beyond."""
        keys, low, high = (order(array) for array in (written, self.low, self.high))
        return np.where(keys < low, self.low, np.where(keys > high, self.high, written))

    def disagreement(self, other: Interval) -> str:
        """A sentence unless another witness gives the same interval.

        Where both have the same sums, their ends must be the same bytes; where float64 rounded the sums, these must be
        within WITNESSES_AGREE of the sum of magnitudes.
        """
        same = _same(self.sums, other.sums) & _same(self.sizes, other.sizes)
        apart = _apart(self.sums, other.sums, self.sizes) | _apart(self.sizes, other.sizes, self.sizes)
        ends = same & ((order(self.low) != order(other.low)) | (order(self.high) != order(other.high)))
        for what, wrong in (("exact values", apart & ~same), ("intervals", ends)):
            if wrong.any():
                first = [int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape)]
                return f"{np.count_nonzero(wrong)} {what}, first at {first}"
        return ""


Demand = np.ndarray | Interval  # of a field: its bytes, or between what they must be


def order(array: np.ndarray) -> np.ndarray:
    """Signed integers in the order of the floating-point numbers of an array."""
    return _order(np.ascontiguousarray(array).view(f"i{array.dtype.itemsize}"))


def inside(written: Any, low: Any, high: Any, itemsize: int) -> Any:
    """Mask of the entries that lie between two ends. Three flat arrays of bytes, all of NumPy or all of CuPy.

    itemsize: bytes of an entry
    """
    keys, lowest, highest = (_order(array.view(f"i{itemsize}")) for array in (written, low, high))
    return (lowest <= keys) & (keys <= highest)


def _order(bits: Any) -> Any:
    # A negative number has its magnitude below the sign bit, and grows the other way.
    kind = bits.dtype.type
    return bits ^ ((bits >> kind(8 * bits.dtype.itemsize - 1)) & kind(np.iinfo(kind).max))


def _same(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (one == other) | (np.isnan(one) & np.isnan(other))


def _apart(one: np.ndarray, other: np.ndarray, size: np.ndarray) -> np.ndarray:
    # Written so that a NaN beside a number is apart.
    return ~_same(one, other) & ~(np.abs(one - other) <= WITNESSES_AGREE * size)
