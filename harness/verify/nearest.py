"""Where approximate instructions are why runs differ, a second opinion: the same runs with the nearest values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from harness.contract.interval import Demand, Interval, inside
from harness.device.device import Outcome


@dataclass(frozen=True)
class NearestRuns:
    """Runs in which every approximate instruction gave the nearest value.

    orders: of blocks and warps, one for each run; differing: bytes that are not as expected, in the run with the most
    bytes: bytes of all fields; alike: whether all runs wrote the same
    """

    orders: tuple[str, ...]
    differing: int
    bytes: int
    alike: bool

    def to_record(self) -> dict[str, Any]:
        return {**asdict(self), "orders": list(self.orders)}

    def __str__(self) -> str:
        told = f"with the nearest value in every order ({', '.join(self.orders)}), "
        count = f"{self.differing:,} of {self.bytes:,} bytes differ"
        if not self.alike:
            return f"{told}the runs still differ, and up to {count}: something else depends on the order, too"
        return told + count + (": only those bits are at issue" if not self.differing else "")


def nearest_runs(
    program: Any, values: Mapping[str, Demand], repeats: Sequence[int], poisons: Sequence[int],
    outcomes: Sequence[Outcome],
) -> NearestRuns | None:  # fmt: skip
    """Repeat the runs of a program on the emulator with nearest values; None if one writes where it must not.

    values: what each field should hold
    repeats, poisons, outcomes: of each run; what a run wrote that had nearest values anyway is taken as it is
    """
    orders = [program.order(repeat) for repeat in repeats]
    runs = [
        program.run(poison, repeat, nearest=True) if order.approximation else outcome
        for order, repeat, poison, outcome in zip(orders, repeats, poisons, outcomes, strict=True)
    ]
    if any(run.trespass for run in runs):
        return None
    differing = [sum(_differing(run.outputs[name], value) for name, value in values.items()) for run in runs]
    alike = all(np.array_equal(run.outputs[name], runs[0].outputs[name]) for run in runs for name in values)
    return NearestRuns(
        tuple(order.name for order in orders), max(differing), sum(runs[0].outputs[n].nbytes for n in values), alike
    )


def _differing(actual: np.ndarray, value: Demand) -> int:
    if isinstance(value, Interval):
        low, high = (np.ascontiguousarray(end).reshape(-1).view(np.uint8) for end in (value.low, value.high))
        size = value.dtype.itemsize
        return size * int(np.count_nonzero(~inside(actual, low, high, size)))
    return int(np.count_nonzero(actual != np.ascontiguousarray(value).reshape(-1).view(np.uint8)))
