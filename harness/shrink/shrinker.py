"""The search: towards default flags, fewer tensors, fewer rows and columns, and zeros wherever they change nothing."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.case import Case
from harness.device.device import Device
from harness.errors import ContractError, UsageError
from harness.shrink.failure import Failure, cause_of
from harness.shrink.problem import COLS, ROWS, N, Problem
from harness.shrink.search import Budget, smallest
from harness.suite import suite_of
from harness.verdict import Result, Verdict
from harness.verify.verify import verify

GREEN = (Verdict.PASS, Verdict.EXCLUDED)
PLAIN = "normal"  # the name of an input whose values are of no kind: what is left has values of its own
_PIECES = 16  # of an axis: beyond, its extent itself makes the case fail, and values can become zero all the same
_AGAIN = 3  # how often something is tried that may fail just sometimes


@dataclass(frozen=True)
class Shrunk:
    """What is left of a case.

    original: the case; told: what it says; failure: what both have in common
    cause: what the whole is called, whose many wrong bytes tell more than the few that are left; empty if nobody asked
    case, inputs: the smallest that was found, and what its kernels read; result: what it says
    left, of: values that are not zero, and all values; tries, seconds: what it took; stopped: why it ended
    """

    original: Case
    told: Result
    failure: Failure
    cause: str
    case: Case
    inputs: dict[str, np.ndarray]
    result: Result
    left: int
    of: int
    tries: int
    seconds: float
    stopped: str


def shrink(case: Case, device: Device, budget: Budget) -> Shrunk:
    """Find the smallest part of a failing case. Raises UsageError if it does not fail, or not by what it reads."""
    told = verify(case, device)
    _require_shrinkable(told, device)
    search = _Search(device, told, budget)
    problem = Problem.of(replace(case, seed_of=case.seed_of or case.problem))
    search.target = next((only for only in _alone(device) if search.fails(problem)), device)
    problem = search.smaller(problem)
    inputs = problem.inputs()
    arrays = [problem.arrays, list(inputs.values())][not _plays_a_part(problem)]
    if not _plays_a_part(problem):
        inputs = search.with_fewer_bytes(problem.case, inputs)
        arrays = [inputs[name] for name in _values(inputs)]
    result = verify(problem.case, device, inputs=inputs)
    return Shrunk(
        original=case,
        told=told,
        failure=search.failure,
        cause=cause_of(told),
        case=problem.case,
        inputs=inputs,
        result=result,
        left=sum(int(_bits(array).any(axis=-1).sum()) for array in arrays),
        of=sum(array.size for array in arrays),
        tries=budget.spent,
        seconds=round(budget.elapsed, 1),
        stopped=str(budget),
    )


class _Search:
    def __init__(self, device: Device, told: Result, budget: Budget):
        self.target, self.failure, self.budget = device, Failure.of(told), budget
        self.attempts = _AGAIN if told.verdict is Verdict.NONDETERMINISTIC and device.name == "cuda" else 1

    def fails(self, problem: Problem | None) -> bool:
        """Whether there is such a case and it fails like the first one."""
        if problem is None or self.budget.over:
            return False
        try:
            inputs = problem.inputs()
        except ContractError:
            return False
        return self.fails_on(problem.case, inputs)

    def fails_on(self, case: Case, inputs: dict[str, np.ndarray]) -> bool:
        """The same of what the kernels read."""
        self.budget.spent += 1
        try:
            return any(
                Failure.of(verify(case, self.target, inputs=inputs)) == self.failure for _ in range(self.attempts)
            )
        except ContractError:
            return False

    def smaller(self, problem: Problem) -> Problem:
        """Every way to make it smaller in turn, until none does."""
        before = None
        while before is not problem and not self.budget.over:
            before = problem
            problem = self.simpler(problem)
            if problem.case.tensors:
                problem = self.fewer_tensors(problem)
            for axis in (ROWS, COLS, N) if problem.case.n else (ROWS, COLS):
                problem = self.shorter(problem, axis)
            problem = self.with_fewer_values(problem)
        return problem

    def simpler(self, problem: Problem) -> Problem:
        """Launched eagerly, of a plain input, with flags at their defaults: all of them, or as many as can be."""
        defaults = suite_of(problem.case.recipe).defaults
        changes: list[dict[str, object]] = [{"mode": "eager"}, {"input_name": PLAIN}, dict(defaults)]
        changes += [{flag: value} for flag, value in defaults.items()]
        for change in changes:
            made = problem.respelled(**change)
            if made is not None and made.case.id != problem.case.id and self.fails(made):
                problem = made
        return problem

    def fewer_tensors(self, problem: Problem) -> Problem:
        """The group without the tensors that play no part."""
        numbers = list(range(len(problem.parts)))
        kept = smallest(numbers, lambda some: self.fails(problem.with_tensors(some)), self.budget)
        return problem if kept == numbers else _made(problem.with_tensors(kept))

    def shorter(self, problem: Problem, axis: str) -> Problem:
        """Without the rows, columns or columns of the product that play no part."""
        items = problem.items(axis)
        kept = smallest(items, lambda some: self.fails(problem.with_items(axis, some)), self.budget, _PIECES)
        return problem if kept == items else _made(problem.with_items(axis, kept))

    def with_fewer_values(self, problem: Problem) -> Problem:
        """With zeros in place of all values that play no part."""
        arrays = problem.arrays
        kept = self._nonzero(arrays, lambda some: self.fails(problem.with_arrays(_only(arrays, some))))
        return problem if kept is None else problem.with_arrays(_only(arrays, kept))

    def with_fewer_bytes(self, case: Case, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The same of operands that are drawn as bytes."""
        names = _values(inputs)
        arrays = [inputs[name] for name in names]

        def with_only(some: np.ndarray) -> dict[str, np.ndarray]:
            return {**inputs, **dict(zip(names, _only(arrays, some), strict=True))}

        kept = self._nonzero(arrays, lambda some: self.fails_on(case, with_only(some)))
        return inputs if kept is None else with_only(kept)

    def _nonzero(self, arrays, fails) -> np.ndarray | None:
        """Numbers of the elements that must stay, counted through all arrays; None if that is all of them."""
        there = np.flatnonzero(np.concatenate([_bits(array).any(axis=-1) for array in arrays]))
        none = there[:0]
        if not len(there):
            return None
        kept = none if not self.budget.over and fails(none) else smallest(there, fails, self.budget)
        return None if len(kept) == len(there) else kept


def _alone(device: Device) -> Sequence[Device]:
    """The device for each of its targets."""
    made = []
    for target in device.targets:
        made.append(copy.copy(device))
        made[-1].targets = (target,)
    return made


def _require_shrinkable(told: Result, device: Device) -> None:
    if told.verdict in GREEN:
        raise UsageError(f"{told.case_id} is {told.verdict} on {device.name}, so there is nothing to shrink")
    if told.verdict is Verdict.COMPILE_ERROR:
        raise UsageError(f"{told.case_id} does not compile, whatever its tensors are: {told.reason}")
    if device.name == "cuda" and told.verdict is Verdict.LAUNCH_ERROR:
        raise UsageError(
            f"{told.case_id} is a {told.verdict}, after which a GPU cannot be asked again; "
            "shrink it with --device emulator, which also has the line of the access"
        )


def _plays_a_part(problem: Problem) -> bool:
    """Whether what the kernels read depends on the tensors, and not on the case alone."""
    read, blank = problem.inputs(), problem.with_arrays([np.zeros_like(array) for array in problem.arrays]).inputs()
    return any(read[name].tobytes() != blank[name].tobytes() for name in read)


def _values(inputs: Mapping[str, np.ndarray]) -> list[str]:
    """Names of the arrays that hold values, and not scales, amaxes or extents."""
    return [name for name in inputs if name.endswith(("data", "input", "c", "bias"))]


def _only(arrays: Sequence[np.ndarray], kept: np.ndarray) -> list[np.ndarray]:
    """The arrays with zeros but at some elements, counted through all of them."""
    made, first = [], 0
    for array in arrays:
        own = kept[(kept >= first) & (kept < first + array.size)] - first
        made.append(np.zeros_like(array))
        made[-1].reshape(-1)[own] = array.reshape(-1)[own]
        first += array.size
    return made


def _bits(array: np.ndarray) -> np.ndarray:
    """(elements, bytes of one) uint8"""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, array.dtype.itemsize)


def _made(problem: Problem | None) -> Problem:
    if problem is None:
        raise ContractError("a problem that has failed is no case any more")
    return problem
