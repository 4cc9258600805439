"""A layer whose tensors do not all take the same recipe: four_over_six for some of them, per_tensor for the others."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.studies.quality.measure import Quality

SCOPES = ("none", "weights", "activations", "all")
WEIGHT, GRADIENT, ACTIVATION = "weight", "gradient", "activation"


@dataclass(frozen=True)
class Total:
    """What a scope makes of a set of tensors.

    tensors: how many there are; inside: how many of them take four_over_six; elements: which share of all elements
    snr_db: mean over the tensors, each counting the same; lowest_db, lowest: the worst of them, and its name
    saturated, zeroed: shares of the elements of all tensors together
    """

    scope: str
    tensors: int
    inside: int
    elements: float
    snr_db: float
    lowest_db: float
    lowest: str
    saturated: float
    zeroed: float


def kind(name: str) -> str:
    """What a tensor is, by its name: a gradient if that has `grad` in it, a weight if `weight`, else an activation."""
    if "grad" in name.lower():
        return GRADIENT
    return WEIGHT if "weight" in name.lower() else ACTIVATION


def takes(scope: str, name: str) -> bool:
    """Whether a tensor of this name takes four_over_six."""
    return scope == "all" or {"weights": WEIGHT, "activations": ACTIVATION}.get(scope) == kind(name)


def total(scope: str, names: Sequence[str], measured: Callable[[str, bool], Quality]) -> Total:
    """The total of a scope; `measured(name, inside)` is a tensor under four_over_six if inside, else per_tensor."""
    found = [measured(name, takes(scope, name)) for name in names]
    sizes = [quality.rows * quality.cols for quality in found]
    inside = [takes(scope, name) for name in names]
    lowest = min(found, key=lambda quality: quality.snr_db)

    def share(values: Sequence[float]) -> float:
        return sum(size * value for size, value in zip(sizes, values, strict=True)) / sum(sizes)

    return Total(
        scope=scope,
        tensors=len(names),
        inside=sum(inside),
        elements=share(inside),
        snr_db=statistics.fmean(quality.snr_db for quality in found),
        lowest_db=lowest.snr_db,
        lowest=lowest.tensor,
        saturated=share([quality.saturated for quality in found]),
        zeroed=share([quality.zeroed for quality in found]),
    )
