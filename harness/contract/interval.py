"""Bounds for a field's values, where the contract does not name their bytes.

Entries are compared in the order of numbers, in which -0 lies below +0, and a NaN without sign beyond +inf. So an entry
with two equal ends must have exactly their bytes, and a NaN is inside only where it is an end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

LARGEST_ORDERED = 1 << 28  # products; up to here oracles also sum in the order of a matrix unit
ORDERED_TARGETS = ("sm_90a",)  # architectures whose matrix unit was measured and must sum in that order
TOLERATED = 2.0**-40  # tolerated difference of two oracles' exact sums, relative to the sum of magnitudes


@dataclass(frozen=True)
class Interval:
    """For each entry of a field the lowest and the highest value it may have; arrays of NumPy, or of torch.

    low, high: in the field's dtype and shape
    sums: float64, the value that `low` and `high` bound; None once the oracles have been compared
    sizes: float64, the sum of the magnitudes of the terms; errors are measured relative to it
    ordered: in the field's dtype, what this project's kernels write on one of ORDERED_TARGETS; None where no order is
    stated: for a library's sums, and beyond LARGEST_ORDERED
    """

    low: Any
    high: Any
    sums: Any = None
    sizes: Any = None
    ordered: Any = None

    @property
    def dtype(self) -> np.dtype:
        return self.low.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.low.shape

    @property
    def bounds(self) -> Interval:
        """The interval without `sums` and `sizes`, which are several times as large."""
        return Interval(self.low, self.high, ordered=self.ordered)

    def map(self, change: Callable[[Any], Any]) -> Interval:
        return Interval(*(None if array is None else change(array) for array in self._arrays))

    @classmethod
    def joined(cls, parts: Sequence[Interval], join: Callable[[list[Any]], Any]) -> Interval:
        """Concatenate the intervals of consecutive fields; an array that one part lacks, the whole lacks.

        join: the `concatenate` of the arrays' library
        """
        columns = zip(*(part._arrays for part in parts), strict=True)
        return cls(*(None if any(array is None for array in column) else join(list(column)) for column in columns))

    def on(self, target: str) -> Demand:
        """The demand on this project's kernels for one architecture: exact bytes if its order of sums is stated."""
        return self.ordered if self.ordered is not None and target in ORDERED_TARGETS else self

    @property
    def _arrays(self) -> tuple[Any, ...]:
        return self.low, self.high, self.sums, self.sizes, self.ordered

    def nearest(self, actual: np.ndarray) -> np.ndarray:
        """The actual values, clamped to the interval."""
        keys, low, high = (order(array) for array in (actual, self.low, self.high))
        return np.where(keys < low, self.low, np.where(keys > high, self.high, actual))

    def disagreement(self, other: Interval) -> str:
        """A sentence on how another oracle's interval differs, or an empty text.

        Where both have the same sums, their ends must be the same bytes; where float64 rounded the sums, these must be
        within TOLERATED of the sum of magnitudes. Their results in the order of a matrix unit must have the same bytes.
        """
        if (self.ordered is None) != (other.ordered is None):
            return "only one of them has bytes in the order of a matrix unit"
        wrongs = []
        if self.ordered is not None:
            wrongs.append(("bytes in the order of a matrix unit", order(self.ordered) != order(other.ordered)))
        same = _same(self.sums, other.sums) & _same(self.sizes, other.sizes)
        apart = _apart(self.sums, other.sums, self.sizes) | _apart(self.sizes, other.sizes, self.sizes)
        ends = same & ((order(self.low) != order(other.low)) | (order(self.high) != order(other.high)))
        for what, wrong in (*wrongs, ("exact values", apart & ~same), ("intervals", ends)):
            if wrong.any():
                first = [int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape)]
                return f"{np.count_nonzero(wrong)} {what}, first at {first}"
        return ""


def may_be_ordered(terms: int) -> bool:
    """Whether the oracles sum a case of so many products in the order of a matrix unit as well."""
    return terms <= LARGEST_ORDERED


Demand = np.ndarray | Interval  # the bytes of a field, or the bounds of its values


def order(array: np.ndarray) -> np.ndarray:
    """Signed integers that order as the array's floating-point numbers do."""
    return _order(np.ascontiguousarray(array).view(f"i{array.dtype.itemsize}"))


def inside(actual: Any, low: Any, high: Any, itemsize: int) -> Any:
    """Mask of the entries that lie between two ends. Three flat arrays of bytes, all of NumPy or all of CuPy."""
    keys, lowest, highest = (_order(array.view(f"i{itemsize}")) for array in (actual, low, high))
    return (lowest <= keys) & (keys <= highest)


def _order(bits: Any) -> Any:
    # A negative number is its sign bit and its magnitude, so its bits grow as it falls.
    kind = bits.dtype.type
    return bits ^ ((bits >> kind(8 * bits.dtype.itemsize - 1)) & kind(np.iinfo(kind).max))


def _same(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (one == other) | (np.isnan(one) & np.isnan(other))


def _apart(one: np.ndarray, other: np.ndarray, size: np.ndarray) -> np.ndarray:
    # `not <=` in place of `>`, so that a NaN and a number count as far apart.
    return ~_same(one, other) & ~(np.abs(one - other) <= TOLERATED * size)
