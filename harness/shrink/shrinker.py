"""Shrink a case: default flags, fewer tensors, fewer rows and columns, and zeros, while it fails like the original.

Delta debugging: cut off the ends, then leave out smaller and smaller pieces while the rest still fails.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from harness.contract.case import Case
from harness.device.device import Device
from harness.errors import ContractError, UsageError
from harness.shrink.candidate import COLS, ROWS, Candidate, N
from harness.suite.suite import suite_of
from harness.verdict import Result, Verdict
from harness.verify.verify import verify


class Failure(NamedTuple):
    """The facts by which two failing results are compared.

    where: the first wrong field, or the kind and line of a wrong access; empty if there is neither
    """

    verdict: Verdict
    where: str

    @classmethod
    def of(cls, result: Result) -> Failure:
        return cls(result.verdict, result.findings.where)

    def __str__(self) -> str:
        return f"{self.verdict} in {self.where}" if self.where else str(self.verdict)


def describe(result: Result, cause: str = "") -> str:
    """The story; the reason if there is no story. cause: replaces the story's own"""
    story = result.findings
    if cause and story.cause:
        return str(
            replace(story, rows=tuple((label, cause if label == "cause" else text) for label, text in story.rows))
        )
    return result.story or f"{result.verdict}  {result.case_id}\n  {result.reason}"


Items = TypeVar("Items", bound=Sequence)


@dataclass
class Budget:
    """How many tries and seconds a search may take, and has taken."""

    tries: int = 600
    seconds: float = 120
    spent: int = 0
    started: float = field(default_factory=time.perf_counter)

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.started

    @property
    def over(self) -> bool:
        return self.spent >= self.tries or self.elapsed >= self.seconds

    def __str__(self) -> str:
        """Why the search ended."""
        if self.spent >= self.tries:
            return f"all {self.tries} tries are used up, so that something smaller may fail, too"
        if self.elapsed >= self.seconds:
            return f"{self.seconds:g} seconds are over, so that something smaller may fail, too"
        return "nothing smaller that was tried fails like this"


def smallest(items: Items, fails: Callable[[Items], bool], budget: Budget, most_pieces: int | None = None) -> Items:
    """Find few items that still fail, at least one, in their order; without any single one of them the rest passes.

    items: a list or an array that fails as a whole
    most_pieces: how many pieces the items are cut into at the most; without it, one for each item
    """
    items = items[: _fewest(len(items), lambda count: fails(items[:count]), budget)]
    whole = len(items)
    items = items[whole - _fewest(whole, lambda count: fails(items[whole - count :]), budget) :]
    pieces = 2
    while len(items) > 1 and not budget.over:
        found = _smaller(items, min(pieces, len(items)), fails, budget)
        if found is not None:
            items, pieces = found
        elif pieces >= min(len(items), most_pieces or len(items)):
            break
        else:
            pieces *= 2
    return items


def _fewest(count: int, fails: Callable[[int], bool], budget: Budget) -> int:
    """The smallest count that fails, if every larger one fails, too; otherwise some count that fails."""
    low = 1
    while low < count and not budget.over:
        middle = (low + count) // 2
        if fails(middle):
            count = middle
        else:
            low = middle + 1
    return count


def _smaller(items: Items, pieces: int, fails: Callable[[Items], bool], budget: Budget) -> tuple[Items, int] | None:
    """A failing piece, or all pieces but one if they fail, and how many pieces to cut it into next; else None."""
    ends = [len(items) * i // pieces for i in range(pieces + 1)]
    for first, last in zip(ends, ends[1:], strict=False):
        if budget.over:
            return None
        if fails(items[first:last]):
            return items[first:last], 2
    for first, last in zip(ends, ends[1:], strict=False):
        if budget.over or pieces == 2:  # leaving out one half is the same as keeping the other
            return None
        before, after = items[:first], items[last:]
        rest = before + after if isinstance(before, list) else np.concatenate([before, after])
        if fails(rest):
            return rest, max(pieces - 1, 2)
    return None


GREEN = (Verdict.PASS, Verdict.EXCLUDED)
PLAIN = "normal"  # an input name without special promises, because the remaining values are no longer the input's
_PIECES = 16  # most pieces of an axis; a finer cut is not needed, because single values become zero later
_RERUNS = 3  # repeats, for failures that do not occur in every run


@dataclass(frozen=True)
class Shrunk:
    """The smallest case that was found.

    before: the result of the original case; failure: what it has in common with `result`
    cause: the diagnosis of the original, whose many wrong bytes show more than the few that are left; may be empty
    inputs: what the kernels of `case` read
    left, of: number of non-zero values, and of all values; tries, seconds: of the search; stopped: why it ended
    """

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
    """Find the smallest part of a failing case. Raises UsageError if it passes, or fails whatever its inputs are."""
    before = verify(case, device)
    _require_shrinkable(before, device)
    search = _Search(device, before, budget)
    candidate = Candidate.of(case)
    search.target = next((only for only in _alone(device) if search.fails(candidate)), device)
    candidate = search.smaller(candidate)
    inputs, arrays = candidate.inputs(), candidate.arrays
    if not candidate.drawn_from_tensors:
        inputs = search.with_fewer_bytes(candidate.case, inputs)
        arrays = [inputs[name] for name in _values(inputs)]
    result = verify(candidate.case, device, inputs=inputs)
    return Shrunk(
        before=before,
        failure=search.failure,
        cause=before.findings.cause,
        case=candidate.case,
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
        self.attempts = _RERUNS if before.verdict is Verdict.NONDETERMINISTIC and device.name == "cuda" else 1

    def fails(self, candidate: Candidate | None) -> bool:
        """Whether the candidate is a legal case and fails like the original."""
        if candidate is None or self.budget.over:
            return False
        try:
            inputs = candidate.inputs()
        except ContractError:
            return False
        return self.fails_on(candidate.case, inputs)

    def fails_on(self, case: Case, inputs: dict[str, np.ndarray]) -> bool:
        self.budget.spent += 1
        results = (verify(case, self.target, inputs=inputs) for _ in range(self.attempts))
        try:
            return any(Failure.of(result) == self.failure for result in results)
        except ContractError:
            return False

    def smaller(self, candidate: Candidate) -> Candidate:
        """Try every way in turn until none makes it smaller."""
        before = None
        while before is not candidate and not self.budget.over:
            before = candidate
            candidate = self.simpler(candidate)
            if candidate.case.is_group:
                candidate = self.fewer(candidate, list(range(len(candidate.parts))), candidate.with_tensors)
            for axis in (ROWS, COLS, N) if candidate.case.is_gemm else (ROWS, COLS):
                candidate = self.fewer(candidate, candidate.items(axis), partial(candidate.with_items, axis), _PIECES)
            candidate = self.with_fewer_values(candidate)
        return candidate

    def simpler(self, candidate: Candidate) -> Candidate:
        """Take mode eager, the plain input, and the default of every flag that the failure does not need."""
        defaults = suite_of(candidate.case.recipe).defaults
        changes: list[dict[str, object]] = [{"mode": "eager"}, {"input_name": PLAIN}, dict(defaults)]
        changes += [{flag: value} for flag, value in defaults.items()]
        for change in changes:
            made = candidate.converted(**change)
            if made is not None and made.case.id != candidate.case.id and self.fails(made):
                candidate = made
        return candidate

    def fewer(self, candidate: Candidate, items: list, cut: Callable, most_pieces: int | None = None) -> Candidate:
        """Leave out tensors of a group, or pieces of an axis, that the failure does not need."""
        kept = smallest(items, lambda some: self.fails(cut(some)), self.budget, most_pieces)
        return candidate if kept == items else cut(kept)

    def with_fewer_values(self, candidate: Candidate) -> Candidate:
        """Set values to zero that the failure does not need."""
        arrays = self._zeroed(candidate.arrays, lambda arrays: self.fails(candidate.with_arrays(arrays)))
        return candidate if arrays is None else candidate.with_arrays(arrays)

    def with_fewer_bytes(self, case: Case, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Set values to zero in operands that are drawn as bytes."""
        names = _values(inputs)

        def with_arrays(arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
            return {**inputs, **dict(zip(names, arrays, strict=True))}

        arrays = self._zeroed([inputs[name] for name in names], lambda arrays: self.fails_on(case, with_arrays(arrays)))
        return inputs if arrays is None else with_arrays(arrays)

    def _zeroed(self, arrays: Sequence[np.ndarray], fails: Callable) -> Sequence[np.ndarray] | None:
        """The arrays with as many zeros as possible while the case still fails; None if every value is needed."""
        if not arrays:
            return None
        there = np.flatnonzero(np.concatenate([_bits(array).any(axis=-1) for array in arrays]))
        if not len(there):
            return None
        if not self.budget.over and fails(_only(arrays, there[:0])):
            return _only(arrays, there[:0])
        kept = smallest(there, lambda some: fails(_only(arrays, some)), self.budget)
        return None if len(kept) == len(there) else _only(arrays, kept)


def _alone(device: Device) -> Iterator[Device]:
    """Copies of the device, each with a single one of its targets."""
    for target in device.targets:
        alone = copy.copy(device)
        alone.targets = (target,)
        yield alone


def _require_shrinkable(before: Result, device: Device) -> None:
    if before.verdict in GREEN:
        raise UsageError(f"{before.case_id} is {before.verdict} on {device.name}, so there is nothing to shrink")
    if not before.verdict.judges and not Failure.of(before).where:  # oracles that disagree can be shrunk
        raise UsageError(f"{before.case_id} is {before.verdict}, which says nothing about its kernel: {before.reason}")
    if before.verdict is Verdict.COMPILE_ERROR:
        raise UsageError(f"{before.case_id} does not compile, whatever its tensors are: {before.reason}")
    if device.name == "cuda" and before.verdict is Verdict.LAUNCH_ERROR:
        raise UsageError(
            f"{before.case_id} is a {before.verdict}, after which a GPU cannot be asked again; "
            "shrink it with --device emulator, which also has the line of the access"
        )


def _values(inputs: Mapping[str, np.ndarray]) -> list[str]:
    """Names of the arrays that hold values, not scales, amaxes or extents."""
    return [name for name in inputs if name.endswith(("data", "input", "c", "bias"))]


def _only(arrays: Sequence[np.ndarray], kept: np.ndarray) -> list[np.ndarray]:
    """The arrays with zeros everywhere but at the kept elements, counted through all of them."""
    made, first = [], 0
    for array in arrays:
        own = kept[(kept >= first) & (kept < first + array.size)] - first
        made.append(np.zeros_like(array))
        made[-1].reshape(-1)[own] = array.reshape(-1)[own]
        first += array.size
    return made


def _bits(array: np.ndarray) -> np.ndarray:
    """(elements, bytes of an element) uint8"""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, array.dtype.itemsize)
