"""GPU copies of arrays that several programs of a case read, so that each mode need not upload them again."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np


class KeptCopies:
    """The copy of each array for as long as the array itself lives. limit: bytes of all copies; 0 keeps none

    Where a subject runs none are kept, because it could find the expected bytes in GPU memory.
    """

    def __init__(self) -> None:
        self.limit = 0
        self._copies: dict[int, tuple[weakref.ref[np.ndarray], Any]] = {}

    @property
    def nbytes(self) -> int:
        return sum(copy.nbytes for _, copy in self._copies.values())

    def of(self, array: np.ndarray, upload: Callable[[np.ndarray], Any]) -> Any:
        """The copy that is kept, or a new one, which is kept if there is room."""
        number = id(array)
        known, copy = self._copies.get(number, (lambda: None, None))
        if known() is array:
            return copy
        copy = upload(array)
        self.keep(array, copy)
        return copy

    def keep(self, array: np.ndarray, copy: Any) -> None:
        """Keep a copy that the GPU has already, flat and of bytes, if there is room."""
        if self.nbytes + copy.nbytes <= self.limit:
            number, forget = id(array), self._copies.pop
            self._copies[number] = weakref.ref(array, lambda _: forget(number, None)), copy

    def clear(self) -> None:
        """Drop all copies, after a kernel that may have written anywhere, or to make room."""
        self._copies.clear()


KEPT = KeptCopies()
