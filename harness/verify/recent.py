"""A function that remembers its answers to the last few questions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import update_wrapper
from typing import Generic, TypeVar

from harness.verify.prepared import SOURCE

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
