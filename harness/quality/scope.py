"""A layer that mixes recipes: four_over_six for some of its tensors, per_tensor for the others."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.quality.measure import Quality

SCOPES = ("none", "weights", "activations", "all")
WEIGHT, GRADIENT, ACTIVATION = "weight", "gradient", "activation"


@dataclass(frozen=True)
class Total:
    """The quality of a set of tensors under a scope.

    tensors: how many; inside: how many take four_over_six; elements: the share of all elements that these have
    snr_db: unweighted mean over the tensors; lowest_db, lowest: SNR and name of the worst
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
    """The kind of a tensor by its name: a gradient if it contains `grad`, a weight if `weight`, else an activation."""
    lower = name.lower()
    return GRADIENT if "grad" in lower else WEIGHT if "weight" in lower else ACTIVATION


def takes(scope: str, name: str) -> bool:
    return scope == "all" or {"weights": WEIGHT, "activations": ACTIVATION}.get(scope) == kind(name)


def total(scope: str, names: Sequence[str], measured: Callable[[str, bool], Quality]) -> Total:
    """The total of a scope. `measured(name, inside)`: a tensor under four_over_six if inside, else per_tensor."""
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
