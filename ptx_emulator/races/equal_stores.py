"""Stores by several threads to one place by one instruction, which are borne if their bytes are equal (see `borne`)."""

from __future__ import annotations

import numpy as np

from ptx_emulator.memory import Storage


class EqualStores:
    """The rows of the current store that share a place with others, by storage, until their values are known.

    A row is behind another if that thread came earlier and nothing orders them: it has to find its own bytes there.
    """

    def __init__(self) -> None:
        self._behind: dict[int, np.ndarray | None] = {}

    def add(self, storage: Storage | None, behind: np.ndarray | None) -> None:
        """Note a store whose rows share places, or that are behind others: (rows,) bool, None for none."""
        before = self._behind.get(id(storage))
        both = before is not None and behind is not None
        self._behind[id(storage)] = before | behind if both else before if behind is None else behind

    def clear(self) -> None:
        """Forget what was noted of an access that stores nothing now."""
        self._behind.clear()

    def disagreeing(
        self, storage: Storage | None, elements: np.ndarray, index: np.ndarray, values: np.ndarray
    ) -> np.ndarray | None:
        """Store values at rows of a storage; the rows whose bytes differ from another's, (rows,) bool, or None."""
        if id(storage) not in self._behind:
            elements[index] = values
            return None
        behind = self._behind.pop(id(storage))
        wrong = np.zeros(len(index), bool) if behind is None else behind & _differ(elements[index], values)
        elements[index] = values
        return wrong | _differ(elements[index], values)


def other_than_now(places: np.ndarray, threads: np.ndarray, now: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Mask of earlier stores by threads at places, whose threads do not store there now, too. now, by: who does

    A thread that does is compared by what it stores now, as the last of its own stores.
    """
    width = np.int64(1 << 20)  # more than threads of a cluster
    keys = (each.astype(np.int64) * width + who.astype(np.int64) for each, who in ((places, threads), (now, by)))
    return ~np.isin(*keys)


def _differ(found: np.ndarray, values: np.ndarray) -> np.ndarray:
    return (found != values).reshape(len(found), -1).any(axis=1)
