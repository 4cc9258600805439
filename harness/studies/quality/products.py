"""End-to-end error: the products of quantized tensors, held against those of the tensors themselves and those of the
production recipe.

The output of a pipeline comes from the torch oracles of its stages: the middle of the interval that any order of the
sum may give, which is some thousand times narrower than the error. The exact product is computed in float64, from the
same bf16 tensors. `product_bounds` says how large an error may be.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from harness.contract.case import Case
from harness.contract.interval import Demand, Interval
from harness.report.tables import markdown, write_table
from harness.studies.quality import error_model, product_bounds
from harness.studies.quality.layers import Layer
from harness.studies.quality.product_bounds import PRODUCTION, Bounds
from harness.suite.stages import stages
from harness.verify.expected import oracle_of
from harness.verify.torch_calls import ask_torch, fastest_device

DRAWS = 4  # of the random bits of sr: between two, the SNR of heavy-tailed tensors differs by up to 1 dB

Tensors = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Lost:
    """The error of one product of one pipeline. Norms are L2, in parts of that of the exact product.

    tensors: their source; product: name of the stage; recipe: as `product_bounds` calls it
    snr_db: signal over error
    relative: norm of the error; bound: what it may be
    apart: norm of the difference from the product of the production recipe, `PRODUCTION`; apart_bound: what it may be
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
        """Whether both are within their bounds; a NaN never is."""
        return self.relative <= self.bound and self.apart <= self.apart_bound


def measure(layer: Layer, bounds: Bounds) -> Iterator[Lost]:
    """Every product of every pipeline under every recipe.

    The random bits of sr are the same for all recipes, and errors are root mean squares over `DRAWS` of them.
    """
    for pipeline, recipes in product_bounds.pipelines().items():
        ours = product_bounds.case_of(pipeline, PRODUCTION, layer)
        exact = exact_products(ours, layer.values)
        production = list(_outputs(ours, layer.values))
        for recipe in recipes:
            case = product_bounds.case_of(pipeline, recipe, layer)
            made = production if recipe == PRODUCTION else list(_outputs(case, layer.values))
            for product, right in exact.items():
                relative = _norm([draw[product] - right for draw in made], right)
                both = zip(made, production, strict=False)  # a recipe without sr has one draw
                apart = _norm([draw[product] - other[product] for draw, other in both], right)
                snr = -20 * math.log10(relative) if relative > 0 else math.inf
                bound, apart_bound = (
                    bounds[product, recipe],
                    math.hypot(*(bounds[product, r] for r in (recipe, PRODUCTION))),
                )
                yield Lost(
                    layer.name, layer.shape, product, recipe, snr, relative, bound, apart, apart_bound
                )  # fmt: skip


def relative_errors(case: Case, values: Tensors) -> dict[str, float]:
    """L2 norm of the error of each GEMM of a pipeline, over that of the exact product.

    values: the tensors that the stages quantize, by name; others are ignored
    """
    made = list(_outputs(case, values))
    exact = exact_products(case, values)
    return {name: _norm([draw[name] - right for draw in made], right) for name, right in exact.items()}


def exact_products(case: Case, values: Tensors) -> dict[str, np.ndarray]:
    """A times B transposed of each GEMM of a pipeline, of the tensors that the operands were quantized from; float64."""
    found = {}
    for stage in stages(case):
        if not stage.draws:
            a, b = error_model.exact_operands(stage, values)
            found[stage.name] = a @ b.T
    return found


def _outputs(case: Case, values: Tensors) -> Iterator[dict[str, np.ndarray]]:
    """The products by name, float64, once for each draw of random bits."""
    drawn = {stage.name: values[stage.name] for stage in stages(case) if stage.draws}
    inputs = oracle_of(case.recipe).inputs(case, **drawn)
    random = any(stage.case.flags.get("rounding") == "sr" for stage in stages(case))
    for draw in range(DRAWS if random else 1):
        made = ask_torch(oracle_of(case.recipe), replace(case, seed_of=str(draw)), inputs, fastest_device())
        yield {stage.name: _middle(made[f"{stage.name}.output"]) for stage in stages(case) if not stage.draws}


def _middle(output: Demand) -> np.ndarray:
    low, high = (output.low, output.high) if isinstance(output, Interval) else (output, output)
    return (low.astype(np.float64) + high.astype(np.float64)) / 2


def _norm(differences: Sequence[np.ndarray], of: np.ndarray) -> float:
    """Root mean square of the norms of differences, in parts of that of an array."""
    norm = math.sqrt(statistics.fmean(float(np.linalg.norm(one)) ** 2 for one in differences))
    whole = float(np.linalg.norm(of))
    return norm / whole if whole else (math.inf if norm else 0.0)


def against_bf16(lost: Sequence[Lost]) -> pd.DataFrame:
    """A row for each product, as text: SNR of each recipe, then errors, each with what it may be."""
    return _table(lost, " dB", lambda one: {
        f"{one.recipe} dB": f"{one.snr_db:.2f}", f"{one.recipe} L2": _beside(one.relative, one.bound),
    })  # fmt: skip


def against_production(lost: Sequence[Lost]) -> pd.DataFrame:
    """A row for each product, as text: dB gained on the production recipe, then distances with what they may be."""
    base = {(one.tensors, one.shape, one.product): one.snr_db for one in lost if one.recipe == PRODUCTION}
    return _table([one for one in lost if one.recipe != PRODUCTION], " dB", lambda one: {
        f"{one.recipe} dB": f"{one.snr_db - base[one.tensors, one.shape, one.product]:+.2f}",
        f"{one.recipe} L2": _beside(one.apart, one.apart_bound),
    })  # fmt: skip


def _beside(found: float, bound: float) -> str:
    return f"{found:.3f} {'<=' if found <= bound else 'ABOVE'} {bound:.3f}"


def _table(lost, first, cells) -> pd.DataFrame:
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for one in lost:
        key = {"tensors": one.tensors, "MxKxN": one.shape, "product": one.product}
        rows.setdefault(tuple(key.values()), key).update(cells(one))
    columns = dict.fromkeys(key for row in rows.values() for key in row)
    return pd.DataFrame(rows.values(), columns=sorted(columns, key=lambda name: name.endswith(" L2")))


def write(command: str, lost: Sequence[Lost], folder: Path) -> list[Path]:
    notes = (
        "y = x w^T, dx = dy w and dw = dy^T x of bf16 tensors, quantized as the suites `forward` and `backward` say. "
        "dB: energy of the exact product over that of the error. L2: norm of the error, or of the difference from the "
        f"production recipe's product, over that of the exact product; both over {DRAWS} draws of the random bits of sr. "
        "Beside each stands the bound that NUMERICS 10.8 derives from the tensors alone."
    )
    text = [
        "# What is lost from end to end", f"`{command}`", notes,
        "## Against the product in bf16", markdown(against_bf16(lost)),
        "## Against the production recipe", markdown(against_production(lost)),
    ]  # fmt: skip
    return write_table(folder, "products", pd.DataFrame([asdict(one) for one in lost]), text)
