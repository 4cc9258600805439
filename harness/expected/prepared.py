"""The part of a case that needs no GPU, computed here or ahead of time by another process, and kept for a while."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import update_wrapper
from typing import Generic, TypeVar

import numpy as np

from harness.contract.case import Case
from harness.contract.interval import Demand


@dataclass(frozen=True)
class Prepared:
    """Made by `harness.expected.expected.prepare`, or by `harness.expected.other_input.prepare_ahead`.

    inputs: the arrays that kernels read
    wrong: a sentence if the inputs are wrong, or an empty text
    values: the answer of the NumPy oracle, if it was asked
    other: what kernels read in a run on another input, if that was made
    """

    inputs: dict[str, np.ndarray]
    wrong: str = ""
    values: dict[str, Demand] | None = None
    other: dict[str, np.ndarray] | None = None


class Source:
    """The source of prepared cases. By default there is none, and each process prepares its own cases.

    recent: how many cases a process keeps with their expectations: one, and in a bench also the baseline
    """

    take: Callable[[Case], Prepared | None]
    recent: int

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.take = lambda case: None
        self.recent = 1


SOURCE = Source()


Answer = TypeVar("Answer")


class Recent(Generic[Answer]):
    """A decorator like `functools.lru_cache`, which keeps as many answers as `SOURCE.recent` says at each call."""

    def __init__(self, function: Callable[..., Answer]):
        self._function = function
        self._answers: OrderedDict[tuple[Hashable, ...], Answer] = OrderedDict()
        update_wrapper(self, function)

    def __call__(self, *question: Hashable) -> Answer:
        if question in self._answers:
            self._answers.move_to_end(question)
            return self._answers[question]
        while len(self._answers) >= SOURCE.recent:
            self._answers.popitem(last=False)
        answer = self._answers[question] = self._function(*question)
        return answer

    def cache_clear(self) -> None:
        self._answers.clear()
