"""What can be found of a case without a GPU, here or ahead of time in another process that hands it over."""

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
    wrong: why the inputs are not what they should be, or an empty text
    values: the answer of the NumPy oracle, if it was asked
    """

    inputs: dict[str, np.ndarray]
    wrong: str = ""
    values: dict[str, Demand] | None = None


class Source:
    """Where prepared cases come from; from nowhere by default, so that each is prepared where it is asked for.

    recent: how many cases, each with its expectation, a process keeps: one, and in a bench its baseline
    """

    take: Callable[[Case], Prepared | None]
    recent: int

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.take = lambda case: None
        self.recent = 1


SOURCE = Source()
