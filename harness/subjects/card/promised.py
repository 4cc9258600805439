"""Outputs with some promised and some unpromised bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from harness.contract.interval import Demand, Interval
from harness.device.device import Outcome
from harness.subjects.card.form import Form


class Promised:
    """A program whose unpromised output bytes are replaced by the expected ones.

    forms: its outputs'; values: expected outputs, in the card's form
    """

    kernels = ()

    def __init__(self, program: Any, forms: Mapping[str, Form], values: Mapping[str, Demand]):
        self.program, self.forms = program, forms
        self.promise(values)

    def promise(self, values: Mapping[str, Demand]) -> None:
        """Take the unpromised bytes from these values from now on."""
        forms = self.forms
        self._rest: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for name, value in values.items():
            places = np.flatnonzero(~forms[name].promised)
            if places.size:
                content = value.low if isinstance(value, Interval) else value
                flat = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
                self._rest[name] = places, flat[places]

    def run(self, poison: int, repeat: int, **how: bool) -> Outcome:
        return self.filled(self.program.run(poison, repeat, **how))

    def order(self, repeat: int) -> Any:
        return self.program.order(repeat)

    def filled(self, outcome: Outcome) -> Outcome:
        """The outcome with the expected bytes wherever nothing is promised."""
        return replace(outcome, outputs=outcome.outputs | {
            name: _filled(outcome.outputs[name], *rest) for name, rest in self._rest.items()
        })  # fmt: skip


def _filled(array: Any, places: np.ndarray, content: np.ndarray) -> Any:
    array = array.copy()
    if isinstance(array, np.ndarray):
        array[places] = content
    else:
        cupy = import_module("cupy")
        array[cupy.asarray(places)] = cupy.asarray(content)
    return array
