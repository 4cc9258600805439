"""Reads of global memory that race with a write by another reader: does any byte depend on them?

A compiler that repeats an element in several threads has all of them load it, and one of them store it back. Another
may then read too late. That is borne if what it read reaches no byte: the kernel is run again, in which these threads
read what was written later, and all memory has to be as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ptx_emulator.errors import Fault, LaunchError, NotEmulated
from ptx_emulator.memory import Access, Buffer, Resolved

MOST_BYTES = 1 << 27  # of memory that is kept to run again; beyond, such a race is reported at once


class Raced(NamedTuple):
    """Bytes that a thread wrote while others of its block may still read them, (n,), and the thread."""

    bytes_: np.ndarray
    thread: np.ndarray


class LateReads:
    """The reads of one launch that raced. fault: what is reported if a byte depends on them"""

    def __init__(self, memory: Sequence[Buffer]):
        self.memory = [buffer for buffer in memory if buffer.writable]
        self._before = self._kept()
        self._after: list[tuple[np.ndarray, np.ndarray | None]] = []
        self._raced: dict[tuple[int, int, int], list[Raced]] = {}  # number of the read, window, block
        self.fault: Fault | None = None

    @classmethod
    def of(cls, memory: Sequence[Buffer]) -> LateReads | None:
        """None where there is too much memory to keep."""
        return cls(memory) if sum(len(each.data) for each in memory if each.writable) <= MOST_BYTES else None

    def _kept(self) -> list[tuple[np.ndarray, np.ndarray | None]]:
        return [(each.data.copy(), None if each.written is None else each.written.copy()) for each in self.memory]

    def _put(self, kept: list[tuple[np.ndarray, np.ndarray | None]]) -> None:
        for buffer, (data, written) in zip(self.memory, kept, strict=True):
            buffer.data[...] = data
            if written is not None:
                buffer.written[...] = written

    # ---- the first run ----------------------------------------------------------------------------------------------

    def add(self, number: int, buffer: Buffer, block: int, bytes_: np.ndarray, thread: np.ndarray) -> None:
        """Record bytes that threads of a block wrote while others may still read them by access `number`."""
        self._raced.setdefault((number, buffer.window, block), []).append(Raced(bytes_, thread))

    # ---- the second run ---------------------------------------------------------------------------------------------

    def require_dead(self, run: Callable[[], object]) -> None:
        """Raise the fault unless all memory is the same after a run in which these reads are late. run: launches again

        Memory is then as the first run left it.
        """
        self._after = self._kept()
        self._put(self._before)
        try:
            run()
            same = all((buffer.data == data).all() for buffer, (data, _) in zip(self.memory, self._after, strict=True))
        except (Fault, LaunchError, NotEmulated):
            same = False
        self._put(self._after)
        if not same:
            raise self.fault

    def patched(self, access: Access, resolved: Resolved, found: np.ndarray, place: np.ndarray, thread: np.ndarray,
                ) -> np.ndarray:  # fmt: skip
        """What threads read, with what was written later where they raced. found: by row; place, thread: of each row"""
        buffer = resolved.storage
        numbers = {key[2] for key in self._raced if key[:2] == (access.number, getattr(buffer, "window", -1))}
        if not numbers:
            return found
        after = next(data for each, (data, _) in zip(self.memory, self._after, strict=True) if each is buffer)
        starts = np.broadcast_to(resolved.index, place.shape).reshape(-1).astype(np.int64) * access.bytes
        out = np.broadcast_to(found, (*place.shape, *found.shape[resolved.index.ndim :])).copy()
        raw = out.reshape(len(starts), -1).view(np.uint8)
        for block in numbers:
            raced = self._raced[access.number, buffer.window, block]
            bytes_, by = (np.concatenate([each[i] for each in raced]) for i in range(2))
            order = np.argsort(bytes_, kind="stable")
            bytes_, by = bytes_[order], by[order]
            rows = np.flatnonzero(place.reshape(-1) == block)
            at = starts[rows, None] + np.arange(access.bytes)
            where = np.minimum(np.searchsorted(bytes_, at), len(bytes_) - 1)
            late = (bytes_[where] == at) & (by[where] != thread.reshape(-1)[rows, None])
            raw[rows] = np.where(late, after[at], raw[rows])
        return out
