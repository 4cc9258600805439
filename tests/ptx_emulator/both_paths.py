"""Run on the compiled interpreter, and again with every instruction left to its NumPy step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pytest
from cuda_source import buffer

from ptx_emulator.counters import Counters
from ptx_emulator.decode import Decoded
from ptx_emulator.errors import Fault
from ptx_emulator.launches import Module, launch
from ptx_emulator.machine.basic_blocks import Segment, Step
from ptx_emulator.machine.fast_path import FastPath


class Outcome(NamedTuple):
    """What a launch did.

    fault: its kind and text, if it ended in one
    handed_back: how often the compiled interpreter left an instruction to NumPy, by mnemonic
    """

    arrays: dict[str, np.ndarray]
    counters: Counters | None
    fault: tuple[str, str] | None
    handed_back: Counter[str]


@contextmanager
def numpy_alone() -> Iterator[None]:
    """No instruction reaches the compiled interpreter."""

    def by_step(self: FastPath, segment: Segment, mask: np.ndarray | None) -> None:
        for number in range(*segment):
            self.code.slow(number)(self.batch, mask)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FastPath, "run", by_step)
        yield


@contextmanager
def _handed_back() -> Iterator[Counter[str]]:
    found: Counter[str] = Counter()
    slow = Decoded.slow

    def noted(self: Decoded, number: int) -> Step:
        found[self.instruction(int(self.origins[number, 0])).mnemonic] += 1
        return slow(self, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Decoded, "slow", noted)
        yield found


def outcome(module: Module, arrays: Mapping[str, np.ndarray], grid: int, block: int, **options) -> Outcome:
    """Launch kernel `k` on copies of the arrays, in their order."""
    options = {"compiled": True, **options}
    copies = {name: array.copy() for name, array in arrays.items()}
    buffers = [buffer(name, array) for name, array in copies.items()]
    with _handed_back() as left:
        try:
            counters = launch(module, "k", (grid, 1, 1), (block, 1, 1), buffers, **options)
        except Fault as fault:
            return Outcome(copies, None, (fault.kind, str(fault)), left)
    return Outcome(copies, counters, None, left)


def both(
    module: Module, arrays: Mapping[str, np.ndarray], grid: int = 1, block: int = 64, who: bool = True, **options
) -> Outcome:
    """The outcome of a launch, which has to be the same on both paths.

    who: whether a fault has to name the same threads; if several race, the two paths may meet different ones first
    """
    fast = outcome(module, arrays, grid, block, **options)
    with numpy_alone():
        plain = outcome(module, arrays, grid, block, **options)
    assert (fast.fault and fast.fault[0]) == (plain.fault and plain.fault[0])
    assert fast.fault == plain.fault or not who
    assert fast.counters == plain.counters
    if fast.fault is None:
        for name, array in fast.arrays.items():
            np.testing.assert_array_equal(array, plain.arrays[name], err_msg=name)
    return fast
