"""Compare variants on tensors, measuring each pair once, and a layer that mixes recipes.

Such a layer has four_over_six for some of its tensors and per_tensor for the others.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from harness.contract.case import Case
from harness.errors import UsageError
from harness.quality import variants
from harness.quality.measure import Quality, block_snr, measure
from harness.quality.tensors import Tensor

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


class Map(NamedTuple):
    """SNR in dB of each block of a tensor, in its place, under one variant."""

    variant: str
    blocks: np.ndarray


class Comparison:
    """The measurements of `chosen` variants on the tensors added so far.

    measured: in the order of tensors, then of variants
    left_out: a sentence for each tensor that a variant does not take
    """

    def __init__(self, chosen: Sequence[Case]):
        self.chosen = chosen
        self.measured: list[Quality] = []
        self.left_out: list[str] = []
        self._known: dict[tuple[str, str], Quality] = {}

    def add(self, tensor: Tensor) -> None:
        """Measure every chosen variant on a tensor. Raises UsageError if another one had this name."""
        if any(name == tensor.name for _, name in self._known):
            raise UsageError(f"two tensors are called '{tensor.name}', and a table could not tell them apart")
        for variant in self.chosen:
            try:
                case = variants.place(variant, *tensor.values.shape, tensor.name)
            except UsageError as error:
                self.left_out.append(f"{tensor.name}: {error}")
            else:
                self.measured.append(self._quality(case, tensor))

    def total(self, name: str, tensors: Sequence[Tensor]) -> Total:
        """The total of a scope, with the first chosen variant of each of its two recipes, or default flags."""
        by_name = {tensor.name: tensor for tensor in tensors}
        inside, outside = self._first("four_over_six"), self._first("per_tensor")

        def measured(name: str, within: bool) -> Quality:
            tensor = by_name[name]
            return self._quality(variants.place(inside if within else outside, *tensor.values.shape, name), tensor)

        return total(name, list(by_name), measured)

    def maps(self, tensors: Sequence[Tensor]) -> tuple[str, list[Map]]:
        """The tensor on which some rowwise variant gains most over the first one, and the block SNR of both."""
        rowwise = [variant for variant in self.chosen if variants.side(variant) == "rowwise"]
        if len(rowwise) < 2:
            return "", []
        first, *others = rowwise

        def gain(pair: tuple[Tensor, Case]) -> float:
            tensor, variant = pair
            ours, theirs = (self._known.get((variants.label(case), tensor.name)) for case in (variant, first))
            change = ours.snr_db - theirs.snr_db if ours and theirs else math.nan
            return -math.inf if math.isnan(change) else change

        tensor, best = max(((tensor, variant) for tensor in tensors for variant in others), key=gain)
        placed = (variants.place(variant, *tensor.values.shape, tensor.name) for variant in (first, best))
        return tensor.name, [Map(variants.label(case), block_snr(case, tensor.values)) for case in placed]

    def _quality(self, case: Case, tensor: Tensor) -> Quality:
        key = variants.label(case), tensor.name
        if key not in self._known:
            self._known[key] = measure(case, tensor.values)
        return self._known[key]

    def _first(self, recipe: str) -> Case:
        ours = [variant for variant in self.chosen if variant.recipe == recipe]
        return ours[0] if ours else variants.find(recipe, self.chosen[0].flags.dtype)
