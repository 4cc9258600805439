"""A recipe to begin with, for activations, gradients and weights, with the figures that speak for and against it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from evidence.docs.training import beside, lost_on
from evidence.measured import RESULTS, table
from evidence.steps.recipes import RECIPES, Recipe
from evidence.steps.tables import UNMEASURED
from harness.errors import UsageError

_REAL = "ffn_"  # names of the real tensors of suites/data begin with it
_UNBIASED = "sr_unbiased"  # the claim that many draws of stochastic rounding have the right mean
_PAPER = "NVIDIA's pretraining with NVFP4 (arXiv 2509.25149)"
_FOUR_OVER_SIX = "Four Over Six (arXiv 2512.02010)"


class Advice(NamedTuple):
    """tensors: what is quantized; take: how; measured, published: what speaks for it, here and in its sources"""

    tensors: str
    take: str
    measured: str
    published: str


def choice(root: str) -> str:
    """The recommended recipe for each tensor of a layer, and why."""
    rows = [list(each) for each in (_activations(), _gradients(), _weights())]
    said = (
        f"Ratios and losses are those of the tables below; dB are of the {len(real_tensors())} real tensors in "
        f"[quality.md]({root}results/quality/quality.md), the mean of many draws is in "
        f"[accuracy.md]({root}results/quality/accuracy.md)."
    )
    return f"{said}\n\n{table(['for', 'take', 'measured here', 'published'], rows, texts=4)}"


def _activations() -> Advice:
    finer = [gain for variant in ("row_scaled", "local_1x64") for gain in gains(variant)]
    scaled, sixes = _named("row_scaled"), _named("four_over_six, all tensors")
    return Advice(
        "activations, forward",
        "per_tensor, 1x16, to nearest",
        f"{_fastest()}; finer amaxes gain {_span(finer)} dB, at {beside(scaled, 'forward')} of its speed (row_scaled). "
        f"four_over_six gains {_span(gains('four_over_six/error=mse'))} dB, at "
        f"{beside(sixes, 'forward')}: take it where the forward loss counts more than the step",
        f"{_PAPER} takes this; {_FOUR_OVER_SIX} comes nearer to the training losses of bf16 with two scales",
    )


def _gradients() -> Advice:
    production, plain = RECIPES[0], _named("row_scaled")
    drawn = [-gain for gain in gains("per_tensor/rounding=sr")]
    both = [lost_on(each, "dw", "outliers_rows") for each in (production, plain)]
    return Advice(
        "gradients",
        "per_tensor, stochastic; rht for dw",
        f"one draw loses {_span(drawn)} dB more than rounding to nearest, and the mean of 64 is off by {_mean():.2f} "
        f"of what that is (per_token). Against rht: where rows of x and dy are outliers, dw loses {both[0]}, and "
        f"{both[1]} without both",
        f"{_PAPER} rounds gradients stochastically, all else to nearest, and rotates the operands of dw alone",
    )


def _weights() -> Advice:
    (cost,) = gains("per_tensor/block=block_16x16", "ffn_up.weight")
    (gain,) = gains("four_over_six/error=mse", "ffn_up.weight")
    return Advice(
        "weights",
        "per_tensor, 16x16, to nearest",
        f"squares lose {-cost:.2f} dB of the real weight; four_over_six gains {gain:.2f} dB, both against 1x16",
        f"{_PAPER}: forward and backward read the same weight then, so that dx is the gradient of the layer that ran",
    )


def _fastest() -> str:
    ratios = {recipe.name: beside(recipe, "forward") for recipe in RECIPES}
    faster = [name for name, ratio in ratios.items() if ratio != UNMEASURED and float(ratio) > 1]
    return f"faster forward: {', '.join(faster)}" if faster else "no forward step is faster"


def _named(name: str) -> Recipe:
    return next(recipe for recipe in RECIPES if recipe.name == name)


def real_tensors() -> list[str]:
    return sorted({tensor for _, tensor in snr() if tensor.startswith(_REAL)})


def gains(variant: str, *tensors: str) -> list[float]:
    """The SNR over that of per_tensor, on some or all of the real tensors. Raises UsageError if it was not measured."""
    try:
        return [snr()[variant, tensor] - snr()["per_tensor", tensor] for tensor in tensors or real_tensors()]
    except KeyError as error:
        raise UsageError(f"results/quality/quality.csv has no {error}, which docs/training.md shows") from None


def _span(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


@cache
def snr() -> dict[tuple[str, str], float]:
    with (RESULTS / "quality" / "quality.csv").open(encoding="utf-8", newline="") as file:
        return {(row["variant"], row["tensor"]): float(row["snr_db"]) for row in csv.DictReader(file)}


def _mean() -> float:
    """The error of the mean of 64 draws of stochastic rounding, as a ratio to that of rounding to nearest."""
    with (RESULTS / "quality" / "accuracy.csv").open(encoding="utf-8", newline="") as file:
        return next(float(row["found"]) for row in csv.DictReader(file) if row["source"].endswith(_UNBIASED))


RENDERERS = {"training_choice": choice}
