"""End-to-end error: products of quantized tensors, compared with exact products and with the production recipe's.

The output of a pipeline comes from the torch oracles of its stages: the middle of the interval that any order of the
sum may give, which is some thousand times narrower than the error. The exact product is computed in float64, from the
same bf16 tensors. `product_bounds` says how large an error may be.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from evidence.products import error_model, product_bounds
from evidence.products.layers import Layer
from evidence.products.product_bounds import PRODUCTION, Bounds
from harness.contract.case import Case
from harness.contract.interval import Demand, Interval
from harness.expected.expected import oracle_of
from harness.expected.torch_calls import ask_torch, fastest_device
from harness.report.tables import markdown, write_table
from harness.suite.stages import stages

DRAWS = 4  # draws of sr's random bits: between two draws, the SNR of heavy-tailed tensors differs by up to 1 dB

Tensors = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Lost:
    """The error of one product of one pipeline. Norms are L2, relative to the exact product's.

    tensors: their source; product: name of the stage; recipe: a name in `product_bounds.RECIPES`
    snr_db: signal over error
    relative: norm of the error; bound: its limit
    apart: norm of the difference from the product of the production recipe, `PRODUCTION`; apart_bound: its limit
    """

    tensors: str
    shape: str
    product: str
    recipe: str
    snr_db: float
    relative: float
    bound: float
    apart: float
    apart_bound: float

    @property
    def holds(self) -> bool:
        """Whether both errors are within their bounds; a NaN never is."""
        return self.relative <= self.bound and self.apart <= self.apart_bound


def measure(layer: Layer, bounds: Bounds) -> Iterator[Lost]:
    """Every product of every pipeline under every recipe.

    The random bits of sr are the same for all recipes, and errors are root mean squares over `DRAWS` of them.
    """
    for pipeline in product_bounds.pipelines():
        ours = product_bounds.case_of(pipeline, PRODUCTION, layer)
        exact = exact_products(ours, layer.values)
        production = list(_outputs(ours, layer.values))
        for recipe in product_bounds.RECIPES:
            case = product_bounds.case_of(pipeline, recipe, layer)
            made = production if recipe == PRODUCTION else list(_outputs(case, layer.values))
            for product, right in exact.items():
                relative = _norm([draw[product] - right for draw in made], right)
                both = zip(made, production, strict=False)  # a recipe without sr has only one draw
                apart = _norm([draw[product] - other[product] for draw, other in both], right)
                snr = -20 * math.log10(relative) if relative > 0 else math.inf
                bound = bounds[product, recipe]
                apart_bound = math.hypot(bound, bounds[product, PRODUCTION])
                yield Lost(layer.name, layer.shape, product, recipe, snr, relative, bound, apart, apart_bound)


def relative_errors(case: Case, values: Tensors) -> dict[str, float]:
    """The L2 norm of each GEMM's error in a pipeline, relative to the exact product's.

    values: the tensors that the stages quantize, by name; others are ignored
    """
    made = list(_outputs(case, values))
    exact = exact_products(case, values)
    return {name: _norm([draw[name] - right for draw in made], right) for name, right in exact.items()}


def exact_products(case: Case, values: Tensors) -> dict[str, np.ndarray]:
    """For each GEMM of a pipeline, the float64 product of the tensors that its operands were quantized from."""
    found = {}
    drawn = error_model.of_stages(case, values)
    for stage in stages(case):
        if stage.multiplies:
            a, b = error_model.exact_operands(stage, drawn)
            found[stage.name] = a @ b.T
    return found


def _outputs(case: Case, values: Tensors) -> Iterator[dict[str, np.ndarray]]:
    """The products by name, float64, once for each draw of random bits."""
    drawn = {stage.name: values[stage.name] for stage in stages(case) if stage.draws}
    inputs = oracle_of(case.recipe).inputs(case, **drawn)
    random = any(stage.case.flags.get("rounding") == "sr" for stage in stages(case))
    for draw in range(DRAWS if random else 1):
        made = ask_torch(oracle_of(case.recipe), replace(case, seed_of=str(draw)), inputs, fastest_device())
        yield {stage.name: _middle(made[f"{stage.name}.output"]) for stage in stages(case) if stage.multiplies}


def _middle(output: Demand) -> np.ndarray:
    low, high = (output.low, output.high) if isinstance(output, Interval) else (output, output)
    return (low.astype(np.float64) + high.astype(np.float64)) / 2


def _norm(differences: Sequence[np.ndarray], of: np.ndarray) -> float:
    """The root mean square of the norms of differences, relative to an array's norm."""
    norm = math.sqrt(statistics.fmean(float(np.linalg.norm(one)) ** 2 for one in differences))
    whole = float(np.linalg.norm(of))
    return norm / whole if whole else (math.inf if norm else 0.0)


def against_bf16(lost: Sequence[Lost]) -> pd.DataFrame:
    """A row for each product, as text: SNR of each recipe, then errors, each with its limit."""
    return _table(lost, lambda one: (f"{one.snr_db:.2f}", _beside(one.relative, one.bound)))


def against_production(lost: Sequence[Lost]) -> pd.DataFrame:
    """A row for each product, as text: dB gained over the production recipe, then distances, each with its limit."""
    base = {(one.tensors, one.shape, one.product): one.snr_db for one in lost if one.recipe == PRODUCTION}
    others = [one for one in lost if one.recipe != PRODUCTION]

    def gained(one: Lost) -> str:
        than = base[one.tensors, one.shape, one.product]
        return "+0.00" if one.snr_db == than else f"{one.snr_db - than:+.2f}"  # also if both are exact

    return _table(others, lambda one: (gained(one), _beside(one.apart, one.apart_bound)))


def nearest_bounds(lost: Sequence[Lost]) -> pd.DataFrame:
    """A row for each recipe, as text: each product's error that comes nearest to its bound, and on which tensors."""
    rows: dict[str, dict[str, Lost]] = {}
    for one in lost:
        held = rows.setdefault(one.recipe, {})
        held[one.product] = max(held.get(one.product, one), one, key=_share)
    return pd.DataFrame(
        [
            {
                "recipe": recipe,
                **{name: f"{_beside(one.relative, one.bound)} {one.tensors}" for name, one in held.items()},
            }
            for recipe, held in rows.items()
        ]
    )


def _share(one: Lost) -> float:
    """An error relative to its bound, for sorting; a broken bound, also by a NaN, comes first."""
    if not one.holds:
        return math.inf
    return one.relative / one.bound if one.bound else 0.0


def _beside(found: float, bound: float) -> str:
    return f"{found:.3f}{'/' if found <= bound else ' ABOVE '}{bound:.3f}"


def _table(lost: Iterable[Lost], cells: Callable[[Lost], tuple[str, str]]) -> pd.DataFrame:
    """A row per product and columns per recipe. cells: the cell in dB, and the cell in parts of the norm"""
    rows: dict[tuple[str, str, str], dict[str, str]] = {}
    for one in lost:
        row = rows.setdefault(
            (one.tensors, one.shape, one.product),
            {"tensors": one.tensors, "MxKxN": one.shape, "product": one.product},
        )
        row[f"{one.recipe} dB"], row[f"{one.recipe} L2/bound"] = cells(one)
    columns = dict.fromkeys(key for row in rows.values() for key in row)
    return pd.DataFrame(rows.values(), columns=sorted(columns, key=lambda name: name.endswith("bound")))


def write(command: str, lost: Sequence[Lost], folder: Path) -> list[Path]:
    notes = (
        "y = x w^T, dx = dy w and dw = dy^T x of bf16 tensors, quantized as the suites `forward` and `backward` say. "
        "dB: energy of the exact product over that of the error. L2: norm of the error, or of the difference from the "
        f"production recipe's product, in parts of that of the exact product, over {DRAWS} draws of the random "
        "bits of sr. Behind it stands the bound that NUMERICS 10.8 derives from the tensors alone."
    )
    text = [
        "# What is lost from end to end", f"`{command}`", notes,
        "## Against the product in bf16", markdown(against_bf16(lost)),
        "## Against the production recipe", markdown(against_production(lost)),
    ]  # fmt: skip
    return write_table(folder, "products", pd.DataFrame([asdict(one) for one in lost]), text)
