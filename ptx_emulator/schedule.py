"""The order in which the blocks of a grid and the warps of a block run.

A place counts blocks or threads in this order; their numbers are the ones that a kernel sees in special registers and
that a fault names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

import numpy as np

from ptx_emulator.registers import WARP

Places = TypeVar("Places", int, np.ndarray)


@dataclass(frozen=True)
class Schedule:
    """descending: the last block first, and in a block the last warp

    seed: draws the order, in which some warps also run ahead of others (`machine.run_ahead`); None for a fixed order
    only: the clusters of a grid that run, in this order; all of them, if empty
    nearest: approximate instructions give the nearest value, whatever the order
    """

    descending: bool = False
    seed: int | None = None
    only: tuple[int, ...] = ()
    nearest: bool = False

    @property
    def name(self) -> str:
        if self.seed is not None:
            return "drawn"
        return "descending" if self.descending else "ascending"

    @property
    def stale_bits(self) -> int:
        """The 64 bits of a register that nobody wrote; they differ by kind of order, and so do results that use them.

        As floats of any width they are 0, a large number, or a negative one.
        """
        if self.seed is not None:
            return 0xC6C6_C6C6_C6C6_C6C6
        return 0x7B7B_7B7B_7B7B_7B7B if self.descending else 0

    @property
    def approximation(self) -> int:
        """The choice among the values that PTX leaves open for an approximate instruction: 0 takes the nearest; 1 and 2
        take one end or the other by the operands, so that no two orders agree and the error does not cancel in a
        quotient.
        """
        if self.nearest:
            return 0
        if self.seed is not None:
            return 2
        return 1 if self.descending else 0

    def number(self, place: Places, count: int) -> Places:
        """The number of the block or warp that runs at a place, or at each of many places, out of `count`."""
        if self.seed is not None:
            return _drawn(self.seed, count)[place]
        return count - 1 - place if self.descending else place

    def clusters(self, place: Places, count: int) -> Places:
        """The number of the cluster at a place, or at each of many places, in a grid of `count` clusters."""
        return np.asarray(self.only)[place] if self.only else self.number(place, count)

    def threads(self, warps: int, together: int) -> np.ndarray:
        """The number of the thread at each place of a block, (32 * warps,).

        together: how many warps stay side by side, 4 for warpgroups; a smaller remainder stays last
        """
        number = np.arange(warps)
        whole = warps // together
        first = self.number(np.arange(whole), whole)[:, None] * together
        number[: whole * together] = (first + np.arange(together)).reshape(-1)
        return (number[:, None] * WARP + np.arange(WARP)).reshape(-1)


ASCENDING, DESCENDING = Schedule(), Schedule(descending=True)


def order_of_run(repeat: int, seed: int, nearest: bool = False) -> Schedule:
    """The order of a verification's run, counted from 0: ascending, descending, drawn from the seed, and so on."""
    return replace((ASCENDING, DESCENDING, Schedule(seed=seed))[repeat % 3], nearest=nearest)


@lru_cache(maxsize=16)
def _drawn(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng((seed, count)).permutation(count)
