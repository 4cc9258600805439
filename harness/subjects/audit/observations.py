"""The steps of a subject's verification, with its outputs after each; no oracle runs before the last step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.device.device import Outcome
from harness.subjects.program import GRACE, SubjectProgram

OTHER_POISON = 0x3C  # poison of runs beyond the three that a verification of our own kernels has


@dataclass(frozen=True)
class Observation:
    """One step.

    kind: `call`, `behind_work` (called on a busy stream) or `replay` of a graph
    poison: the byte that outputs were filled with; other: True if other data lay at the same addresses
    outcome: the outputs as soon as the call was over, in its stream's order
    repeat: the number of the run, which gives the order of what it launches on the emulator
    at_once, settled: the outputs once the device was idle, and some time later; only for the last step of a kind
    """

    kind: str
    poison: int
    outcome: Outcome
    other: bool = False
    repeat: int = 0
    at_once: Mapping[str, Any] | None = None
    settled: Mapping[str, Any] | None = None

    def unwritten(self) -> bool:
        """Whether any field holds nothing but poison."""
        return any(array.size and bool((array == self.poison).all()) for array in self.outcome.outputs.values())


def observe(
    program: SubjectProgram,
    inputs: Mapping[str, np.ndarray],
    other: Mapping[str, np.ndarray],
    poisons: Sequence[int],
    graph: bool,
) -> Iterator[Observation]:
    """Call the subject on the case's data and on other data; if `graph`, also replay a graph of the call."""
    for repeat, poison in enumerate(poisons):
        yield Observation("call", poison, program.run(poison, repeat), repeat=repeat)
    program.put(other)
    yield settle(program, Observation("call", OTHER_POISON, program.run(OTHER_POISON, 1), other=True))
    program.put(inputs)
    behind_work = program.run_behind_work(OTHER_POISON)
    if behind_work is not None:
        yield Observation("behind_work", OTHER_POISON, behind_work)
    if not graph:
        return
    program.capture()
    for poison in poisons:
        yield Observation("replay", poison, program.replay(poison))
    program.put(other)
    yield settle(program, Observation("replay", OTHER_POISON, program.replay(OTHER_POISON), other=True))
    program.put(inputs)


def settle(program: SubjectProgram, observation: Observation, seconds: float = GRACE) -> Observation:
    """Add the outputs when all work is done, and again some seconds later."""
    return replace(observation, at_once=program.later(0), settled=program.later(seconds))


def same(one: Mapping[str, Any], another: Mapping[str, Any]) -> bool:
    return all(bool((array == another[name]).all()) for name, array in one.items())
