"""The part of a case that needs no GPU, computed here or ahead of time by another process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from harness.contract.case import Case
from harness.contract.interval import Demand


@dataclass(frozen=True)
class Prepared:
    """Made by `harness.verify.expected.prepare`.

    inputs: the arrays that kernels read
    wrong: a sentence if the inputs are wrong, or an empty text
    values: the answer of the NumPy oracle, if it was asked
    """

    inputs: dict[str, np.ndarray]
    wrong: str = ""
    values: dict[str, Demand] | None = None


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
