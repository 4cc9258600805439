"""The compiled checks of shared memory with copies say what the NumPy ones say, whatever the cells' pasts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np
import pytest

from ptx_emulator.compiled.async_shared import record, start_copy
from ptx_emulator.memory import Access
from ptx_emulator.ptx.syntax import UNKNOWN, Instruction
from ptx_emulator.races.async_agents import CompiledChecks, Copy
from ptx_emulator.races.async_order import AsyncOrder
from ptx_emulator.races.async_shadow import AsyncShadow

THREADS, CELLS, STEPS, SEQUENCES = 64, 32, 40, 200
FEW = np.array([0, 1, 2, 32, 33])  # threads that do most, so that neighbouring cells share some of their past
BY = Instruction("some.instruction", (), None, UNKNOWN)


class Raced(Exception):
    pass


class Shadow:
    """A shadow of one block, and the steps that a sequence of random numbers says."""

    def __init__(self, compiled: bool):
        self.order = AsyncOrder(1, THREADS)
        self.shadow = AsyncShadow(self.order, THREADS, CELLS, 1)
        self.shadow.fault = self._fault
        self.accepted = 0
        if compiled:
            self.shadow.compiled = CompiledChecks(self._counted(record), self._counted(start_copy), CELLS)
        self.counter = self.order.counter()
        self.started = 0

    def _counted(self, function: Callable[..., bool]) -> Callable[..., bool]:
        def counted(*args: object) -> bool:
            found = function(*args)
            self.accepted += found
            return found

        return counted

    def _fault(self, kind: str, instruction: Instruction, lane: int, sentence: str) -> NoReturn:
        raise Raced(kind, lane, sentence)

    def step(self, random: np.random.Generator, number: int) -> None:
        what = random.choice(["access", "access", "access", "barrier", "copy", "wait", "fence", "warp"])
        if what == "access":
            self._access(random, number)
        elif what == "barrier":
            self.order.block_barrier(None)
        elif what == "warp":
            self.order.warp_barrier(None)
        elif what == "fence":
            self.order.fence_proxy(np.ones((1, THREADS), bool), None)
        elif what == "wait":
            rows = np.arange(THREADS) if random.integers(2) else np.arange(1)
            self.order.reach(0, rows, self.counter, self.started)
        else:
            kind, first, count = random.choice(["reads", "writes"]), random.integers(CELLS - 8), random.integers(1, 8)
            copy = Copy(BY, str(kind), 0, 0, self.counter, self.started, "nobody waited")
            self.started += 1
            self.shadow.start_copy(self.shadow.new_copy(copy), first + np.arange(count), 0)

    def state(self) -> list[np.ndarray]:
        """The cells with what is known about them."""
        of = self.shadow
        every = [of.writer, np.where(of.writer > 0, of.epoch, 0), of.copy_writes, of.copy_reads]
        for readers in (of.readers, of.updaters):
            every += [readers.lanes, np.where(readers.lanes > 0, readers.epoch, 0)]
        return every

    def _access(self, random: np.random.Generator, number: int) -> None:
        kind, width = (
            str(random.choice(["reads", "writes", "updates"], p=[0.5, 0.4, 0.1])),
            int(random.choice([1, 4, 8])),
        )
        lanes = np.arange(THREADS) if random.random() < 0.1 else FEW[random.random(len(FEW)) < 0.5]
        if kind == "reads" and random.integers(2):
            index = random.integers(CELLS // width, size=len(lanes))
        else:
            lanes = lanes[: CELLS // width]
            index = random.permutation(CELLS // width)[: len(lanes)]
        self.access(number, kind, width, index, lanes)

    def access(self, number: int, kind: str, width: int, index: Sequence[int], lanes: Sequence[int]) -> None:
        access = Access(BY, "shared", kind, width, number=number)
        self.shadow.accesses[number] = access
        self.shadow.record(access, np.asarray(index), np.asarray(lanes))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_compiled_and_numpy_checks_agree(part: int) -> None:
    accepted = races = 0
    for seed in range(part * SEQUENCES, (part + 1) * SEQUENCES):
        both = Shadow(compiled=True), Shadow(compiled=False)
        for number in range(1, STEPS):
            found = []
            for each in both:
                try:
                    each.step(np.random.default_rng([seed, number]), number)
                    found.append(None)
                except Raced as raced:
                    found.append(raced.args)
            assert found[0] == found[1], f"seed {seed}, step {number}"
            if found[0]:
                races += 1
                break
            for one, other in zip(*(each.state() for each in both), strict=True):
                np.testing.assert_array_equal(one, other, f"seed {seed}, step {number}")
        accepted += both[0].accepted
    assert accepted > SEQUENCES  # the compiled checks had a say
    assert races > SEQUENCES // 4


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "numpy"])
@pytest.mark.parametrize("first, then", [("writes", "reads"), ("writes", "writes"), ("reads", "writes")])
def test_a_neighbour_that_was_accessed_later_is_seen(first: str, then: str, compiled: bool) -> None:
    """One thread's accesses to two cells, of which a barrier orders the first alone before another thread's to both."""
    each = Shadow(compiled)
    each.access(1, first, 1, [0], [5])
    each.order.block_barrier(None)
    each.access(2, first, 1, [1], [5])
    with pytest.raises(Raced):
        each.access(3, then, 4, [0], [40])
