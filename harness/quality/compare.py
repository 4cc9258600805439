"""Compare variants on tensors, measuring each pair once."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.contract.case import Case
from harness.errors import UsageError
from harness.quality import scope, variants
from harness.quality.measure import Quality, block_snr, measure
from harness.quality.pictures import Map
from harness.quality.scope import Total
from harness.quality.tensors import Tensor


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

        return scope.total(name, list(by_name), measured)

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
