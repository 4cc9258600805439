"""Bounds on the errors of products: `products.yaml` has one for each product of the layers that CI measures.

The numbers are in the file so that a diff shows them. They come from NUMERICS 10.8, and `of_row` refuses a larger one.
Other layers are compared with 10.8 itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from evidence.products import error_model, layers
from evidence.products.layers import Layer
from harness.contract.case import Case
from harness.errors import SuiteError
from harness.ground.yaml_lines import read
from harness.suite.stages import stages
from harness.suite.suite import load_suites, suite_of

FILE = Path(__file__).with_name("products.yaml")
PRODUCTION = "per_tensor"  # with the pipelines' defaults, rht and sr
RECIPES = {  # ways to train a layer, by the flags in which they differ from production
    PRODUCTION: {},
    "per_token": {"epilogue": "per_token"},
    "per_token_fused": {"epilogue": "per_token_fused"},
    "per_token_defaults": {  # the defaults of pull request 3045
        "epilogue": "per_token_fused", "rht": "false", "rounding": "rne", "weight_2d": "false",
    },
    "row_scaled": {"epilogue": "row_scaled", "rht": "false", "rounding": "rne"},
    "windows": {"epilogue": "windows", "rht": "false", "rounding": "rne", "weight_2d": "false"},
    "four_over_six": {"rht": "false", "four_over_six": "all"},
    "four_over_six_256": {"rht": "false", "four_over_six": "all", "e4m3_use_256": "all"},
}  # fmt: skip
SETS = ("smoke", "full")
PUBLISHED = 0.30  # the relative error that pull request 3045 asserts for products of normal tensors
DIGITS = 3  # a bound is rounded up to so many decimals

Bounds = Mapping[tuple[str, str], float]  # by (product, recipe)


class LayerBounds(BaseModel):
    """One layer. The head of the file explains the keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tensors: str = Field(min_length=1)
    shape: tuple[int, int, int] | None = None
    sets: tuple[str, ...] = SETS
    because: str = ""
    bounds: dict[str, dict[str, float]]

    def layer(self) -> Layer:
        """The layer's tensors; without a shape, from the committed file."""
        if self.shape is not None:
            return layers.named(self.tensors, self.shape)
        return next(layer for layer in layers.stored() if layer.name == self.tensors)


def load(path: Path = FILE) -> list[tuple[str, LayerBounds]]:
    """`file:line` and row of all layers. Raises SuiteError, with both, for the first invalid one."""
    document = read(path, f"{path.parent.name}/{path.name}")
    found = [(document.where("rows", i), row) for i, row in enumerate(document.each(LayerBounds, "rows"))]
    for where, row in found:
        _check(where, row)
    for name in SETS:
        if not any(name in row.sets for _, row in found):
            raise SuiteError(document.where("rows"), f"no row is in the set {name}, so nothing would be measured")
    return found


def pipelines() -> tuple[str, ...]:
    """The pipelines whose products are measured: those with a flag for an epilogue, forward before backward."""
    found = [suite for suite in load_suites() if suite.file.pipeline and "epilogue" in suite.file.axes]
    return tuple(suite.recipe for suite in sorted(found, key=lambda suite: len(suite.file.pipeline)))


def case_of(pipeline: str, recipe: str, layer: Layer) -> Case:
    suite = suite_of(pipeline)
    flags = {flag: value for flag, value in RECIPES[recipe].items() if flag in suite.file.axes}
    variant = ",".join(f"{flag}={value}" for flag, value in flags.items()) or "default"
    return suite.find(f"{pipeline}/{variant}/{layer.shape}/normal/eager")


def of_layer(layer: Layer) -> dict[tuple[str, str], float]:
    """The bounds of NUMERICS 10.8 for a layer, rounded up."""
    found = {}
    for pipeline in pipelines():
        for recipe in RECIPES:
            case = case_of(pipeline, recipe, layer)
            drawn = {stage.name: layer.values[stage.name] for stage in stages(case) if stage.draws}
            for product, bound in error_model.relative_bounds(case, drawn).items():
                found[product, recipe] = _rounded_up(bound)
    return found


def of_row(where: str, row: LayerBounds, layer: Layer) -> dict[tuple[str, str], float]:
    """The bounds of a row. Raises SuiteError for a bound that is missing or larger than 10.8's."""
    model, found = of_layer(layer), {}
    for (product, recipe), right in model.items():
        written = row.bounds.get(recipe, {}).get(product)
        if written is None:
            raise SuiteError(
                where, f"{row.tensors} has no bound of {product} under {recipe}; NUMERICS 10.8 gives {right:g}"
            )
        if not written <= right:
            raise SuiteError(
                where,
                f"the bound of {product} under {recipe} is {written:g}, and it must be at most the {right:g} that "
                "NUMERICS 10.8 gives",
            )
        found[product, recipe] = written
    unknown = {(product, recipe) for recipe, of in row.bounds.items() for product in of} - model.keys()
    if unknown:
        product, recipe = min(unknown)
        raise SuiteError(
            where,
            f"there is no product {product} under {recipe}; there are {', '.join(' '.join(key) for key in model)}",
        )
    return found


def written_out(bounds: Bounds) -> Iterator[str]:
    """The text of a row's key `bounds`."""
    yield "    bounds:"
    for recipe in dict.fromkeys(recipe for _, recipe in bounds):
        of = ", ".join(f"{product}: {bound:g}" for (product, name), bound in bounds.items() if name == recipe)
        yield f"      {recipe}: {{{of}}}"


def _rounded_up(bound: float) -> float:
    return math.ceil(bound * 10**DIGITS) / 10**DIGITS if math.isfinite(bound) else bound


def _check(where: str, row: LayerBounds) -> None:
    unknown = set(row.sets) - set(SETS)
    if unknown or not row.sets:
        raise SuiteError(where, f"sets: there is no set '{min(unknown, default='')}'; there are {', '.join(SETS)}")
    if row.shape is None and row.tensors not in {layer.name for layer in layers.stored()}:
        raise SuiteError(
            where, f"there is no layer '{row.tensors}' in {layers.tensors.SAMPLE.name}; a distribution needs a shape"
        )
    largest = max((bound for of in row.bounds.values() for bound in of.values()), default=0)
    if largest > PUBLISHED and not row.because:
        raise SuiteError(
            where,
            f"a bound of {largest:g} is above {PUBLISHED:g}, which pull request 3045 asserts; say why, `because:`",
        )
