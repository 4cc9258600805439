"""The search: towards default flags, fewer tensors, fewer rows and columns, and zeros wherever they change nothing."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.contract.case import Case
from harness.device.device import Device
from harness.errors import ContractError, UsageError
from harness.shrink.failure import Failure, cause_of
from harness.shrink.problem import COLS, ROWS, N, Problem
from harness.shrink.search import Budget, smallest
from harness.suite.suite import suite_of
from harness.verdict import Result, Verdict
from harness.verify.verify import verify

GREEN = (Verdict.PASS, Verdict.EXCLUDED)
PLAIN = "normal"  # an input name that promises nothing: what is left has values of its own
_PIECES = 16  # of an axis: beyond, its extent itself makes the case fail, and values can become zero all the same
_AGAIN = 3  # runs of what may fail only sometimes


@dataclass(frozen=True)
class Shrunk:
    """A case, shrunk.

    original: the case; before: its result; failure: what both results have in common
    cause: as diagnosed of the original, whose many wrong bytes show more than the few that are left; may be empty
    case, inputs: the smallest that was found, and what its kernels read; result: its result
    left, of: values that are not zero, and all values; tries, seconds: the search; stopped: why it ended
    """

    original: Case
    before: Result
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
    before = verify(case, device)
    _require_shrinkable(before, device)
    search = _Search(device, before, budget)
    problem = Problem.of(replace(case, seed_of=case.seed_of or case.data_id))
    search.target = next((only for only in _alone(device) if search.fails(problem)), device)
    problem = search.smaller(problem)
    inputs = problem.inputs()
    arrays = [problem.arrays, list(inputs.values())][not _depends_on_tensors(problem)]
    if not _depends_on_tensors(problem):
        inputs = search.with_fewer_bytes(problem.case, inputs)
        arrays = [inputs[name] for name in _values(inputs)]
    result = verify(problem.case, device, inputs=inputs)
    return Shrunk(
        original=case,
        before=before,
        failure=search.failure,
        cause=cause_of(before),
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
    def __init__(self, device: Device, before: Result, budget: Budget):
        self.target, self.failure, self.budget = device, Failure.of(before), budget
        self.attempts = _AGAIN if before.verdict is Verdict.NONDETERMINISTIC and device.name == "cuda" else 1

    def fails(self, problem: Problem | None) -> bool:
        """Whether the problem is a case and fails like the original."""
        if problem is None or self.budget.over:
            return False
        try:
            inputs = problem.inputs()
        except ContractError:
            return False
        return self.fails_on(problem.case, inputs)

    def fails_on(self, case: Case, inputs: dict[str, np.ndarray]) -> bool:
        """Whether the case fails like the original on these kernel inputs."""
        self.budget.spent += 1
        try:
            return any(
                Failure.of(verify(case, self.target, inputs=inputs)) == self.failure for _ in range(self.attempts)
            )
        except ContractError:
            return False

    def smaller(self, problem: Problem) -> Problem:
        """Try every way to make it smaller in turn, until none does."""
        before = None
        while before is not problem and not self.budget.over:
            before = problem
            problem = self.simpler(problem)
            if problem.case.is_group:
                problem = self.fewer_tensors(problem)
            for axis in (ROWS, COLS, N) if problem.case.is_gemm else (ROWS, COLS):
                problem = self.shorter(problem, axis)
            problem = self.with_fewer_values(problem)
        return problem

    def simpler(self, problem: Problem) -> Problem:
        """Launch eagerly, of a plain input, with flags at their defaults: all of them, or as many as still fail."""
        defaults = suite_of(problem.case.recipe).defaults
        changes: list[dict[str, object]] = [{"mode": "eager"}, {"input_name": PLAIN}, dict(defaults)]
        changes += [{flag: value} for flag, value in defaults.items()]
        for change in changes:
            made = problem.converted(**change)
            if made is not None and made.case.id != problem.case.id and self.fails(made):
                problem = made
        return problem

    def fewer_tensors(self, problem: Problem) -> Problem:
        """Leave out tensors of the group that the failure does not need."""
        numbers = list(range(len(problem.parts)))
        kept = smallest(numbers, lambda some: self.fails(problem.with_tensors(some)), self.budget)
        return problem if kept == numbers else _existing(problem.with_tensors(kept))

    def shorter(self, problem: Problem, axis: str) -> Problem:
        """Leave out pieces of an axis that the failure does not need."""
        items = problem.items(axis)
        kept = smallest(items, lambda some: self.fails(problem.with_items(axis, some)), self.budget, _PIECES)
        return problem if kept == items else _existing(problem.with_items(axis, kept))

    def with_fewer_values(self, problem: Problem) -> Problem:
        """Set values to zero that the failure does not need."""
        arrays = problem.arrays
        kept = self._nonzero(arrays, lambda some: self.fails(problem.with_arrays(_only(arrays, some))))
        return problem if kept is None else problem.with_arrays(_only(arrays, kept))

    def with_fewer_bytes(self, case: Case, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Set values to zero in operands that are drawn as bytes."""
        names = _values(inputs)
        arrays = [inputs[name] for name in names]

        def with_only(some: np.ndarray) -> dict[str, np.ndarray]:
            return {**inputs, **dict(zip(names, _only(arrays, some), strict=True))}

        kept = self._nonzero(arrays, lambda some: self.fails_on(case, with_only(some)))
        return inputs if kept is None else with_only(kept)

    def _nonzero(self, arrays, fails) -> np.ndarray | None:
        """Indices of the elements that must stay, counted through all arrays; None if that is all of them."""
        there = np.flatnonzero(np.concatenate([_bits(array).any(axis=-1) for array in arrays]))
        none = there[:0]
        if not len(there):
            return None
        kept = none if not self.budget.over and fails(none) else smallest(there, fails, self.budget)
        return None if len(kept) == len(there) else kept


def _alone(device: Device) -> Sequence[Device]:
    """Copies of the device, each with one of its targets."""
    made = []
    for target in device.targets:
        made.append(copy.copy(device))
        made[-1].targets = (target,)
    return made


def _require_shrinkable(before: Result, device: Device) -> None:
    if before.verdict in GREEN:
        raise UsageError(f"{before.case_id} is {before.verdict} on {device.name}, so there is nothing to shrink")
    if before.verdict is Verdict.COMPILE_ERROR:
        raise UsageError(f"{before.case_id} does not compile, whatever its tensors are: {before.reason}")
    if device.name == "cuda" and before.verdict is Verdict.LAUNCH_ERROR:
        raise UsageError(
            f"{before.case_id} is a {before.verdict}, after which a GPU cannot be asked again; "
            "shrink it with --device emulator, which also has the line of the access"
        )


def _depends_on_tensors(problem: Problem) -> bool:
    """Whether kernel inputs depend on the tensors, and not on the case alone."""
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


def _existing(problem: Problem | None) -> Problem:
    if problem is None:
        raise ContractError("a problem that has failed is no case any more")
    return problem
