"""The page for trainers: verified bytes, the cost of a step and the error, for each recipe."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from evidence.measured import GPU, RESULTS, table, us
from evidence.steps.recipes import RECIPES, Recipe, layer, shapes
from evidence.steps.tables import PIPELINES, UNMEASURED
from harness.errors import UsageError
from harness.files import ROOT
from harness.records.run_folder import read_bench
from harness.suite.suite import find_case, suite_of

BASELINE = RESULTS / "baselines" / GPU / "bench.jsonl"
STEPS = RESULTS / "tables" / GPU / "steps.csv"
VERIFIED = RESULTS / "tables" / GPU / "verify.md"
LOST = RESULTS / "quality" / "products.csv"
_SHOWN = "4096x4096x4096"
_NORMAL = "normal"  # the summary shows the losses for these tensors
_PRODUCTS = ("y", "dx", "dw")
_ROUNDS = {"sr": "stochastic", "rne": "to nearest"}

Rows = list[Mapping[str, str]]


def recipes(root: str) -> str:
    """One line for each recipe, with the step at one shape."""
    rows = []
    for recipe in RECIPES:
        steps = [_step(recipe, pipeline, _SHOWN) for pipeline in PIPELINES]
        rows.append([
            recipe.name, recipe.source, _backward(recipe), verified().get(recipe.quantizer, UNMEASURED),
            _compared(recipe),
            *(_us(step) for step in steps), *(beside(recipe, pipeline) for pipeline in PIPELINES),
            " / ".join(lost_on(recipe, product) for product in _PRODUCTS),
        ])  # fmt: skip
    columns = [
        "recipe", "source", "gradients, weights", "bytes verified of its tensors", "of its timed layers", "forward us",
        "backward us", "forward x", "backward x", "loses in y / dx / dw",
    ]  # fmt: skip
    said = (
        f"Steps of {_SHOWN} in CUDA graphs, of the run of [steps.md]({root}results/tables/{GPU}/steps.md), `x` times "
        "as fast as production there; losses are the L2 norm of the error over that of the product, on "
        f"{_NORMAL} tensors; how gradients are rounded, and the block of a "
        f"weight, are those of the backward step. Bytes of tensors are those of [verify.md]({root}results/tables/{GPU}/"
        "verify.md), with its commit."
    )
    return f"{said}\n\n{table(columns, rows, texts=3)}"


def steps(root: str) -> str:
    """Forward and backward at all shapes."""
    rows = [[layer(shape), *(_both(recipe, layer(shape)) for recipe in RECIPES)] for shape in shapes()]
    commits = ", ".join(sorted({row["commit"] for row in _steps().values() if row["commit"]})) or "none yet"
    said = (
        f"Forward + backward, microseconds in CUDA graphs on one NVIDIA H200, commit {commits}. Eager times, launches "
        "of both sides, products alone, quantizing with swizzling and pairs of operands are in "
        f"[steps.md]({root}results/tables/{GPU}/steps.md)."
    )
    return f"{said}\n\n{table(['M x K x N', *(recipe.name for recipe in RECIPES)], rows)}"


def experts(root: str) -> str:
    """The layers of experts in the bench: a step, and as how fast as a loop of dense layers."""
    _, records = read_bench(BASELINE)
    timed = {record["case_id"]: record["times"] for record in records}
    layers: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for name in ("forward", "backward"):
        for case in suite_of(f"{name}_grouped").cases("bench"):
            if case.mode == "graph":
                flags = case.variant.replace(",accumulate=true", "")
                layers.setdefault((case.shape, flags), []).append(timed.get(case.id, {}))
    rows = []
    for (shape, flags), both in sorted(layers.items(), key=lambda one: one[0][1]):
        took = (us(one["median_us"]) if one else UNMEASURED for one in both)
        looped = (f"{one['second_ratio']:.2f}" if one.get("second_ratio") else UNMEASURED for one in both)
        rows.append([f"`{flags}`", "x".join(shape.split("x")[:0:-1]), _split(shape), *took, *looped])
    said = (
        "Microseconds in CUDA graphs, from the committed "
        f"[baseline]({root}results/baselines/{GPU}/bench.md); `x loop`: times as fast as the dense layer of each "
        "expert, one after the other, in the same run. dw is added to an fp32 main_grad where weights are 16x16."
    )
    columns = [
        "layer",
        "N x K",
        "tokens of the experts",
        "forward us",
        "backward us",
        "forward x loop",
        "backward x loop",
    ]
    return f"{said}\n\n{table(columns, rows, texts=3)}"


def _split(shape: str) -> str:
    """The tokens of each expert, as text: `8 x 1024`, or how many experts have how many tokens."""
    tensors = find_case(f"gemm_grouped/default/{shape}/normal/graph").problem.tensors
    counts = Counter(rows for rows, _ in tensors)
    if len(counts) == len(tensors) > 1:
        return f"{len(tensors)} of {min(counts):,} to {max(counts):,}"
    return ", ".join(f"{count} x {rows:,}" for rows, count in sorted(counts.items(), reverse=True))


def losses(root: str) -> str:
    """The largest loss of each recipe over all tensors, beside its bound."""
    rows = []
    for recipe in RECIPES:
        row = [recipe.name]
        for product in _PRODUCTS:
            own = [line for line in _lines() if (line["recipe"], line["product"]) == (recipe.losses, product)]
            worst = max(own, key=lambda line: float(line["relative"]), default=None)
            row += [_parts(own, _NORMAL), _parts([worst], worst["tensors"]) if worst else UNMEASURED]
            row.append(worst["tensors"] if worst else "-")
        rows.append(row)
    columns = ["recipe"]
    for product in _PRODUCTS:
        columns += [f"{product}, {_NORMAL}", "largest", "on"]
    said = (
        "L2 norm of the error, and behind the stroke the bound that NUMERICS 10.8 derives from the tensors alone. All "
        f"tensors, and the differences from production, are in [products.md]({root}results/quality/products.md)."
    )
    return f"{said}\n\n{table(columns, rows)}"


@cache
def verified(path: Path = VERIFIED) -> dict[str, str]:
    """Bytes compared on the GPU, by recipe, from the committed page. Raises UsageError if it has none."""
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in path.read_text("utf-8").splitlines()]
    found = {row[0]: row[-1] for row in cells if len(row) == 5 and row[0] and row[-1].replace(",", "").isdigit()}
    if not found:
        raise UsageError(f"{path} has no table of recipes and bytes compared, which docs/training.md shows")
    return found


@cache
def _steps(path: Path = STEPS) -> dict[tuple[str, str, str, str], Mapping[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return {(row["pipeline"], row["recipe"], row["shape"], row["mode"]): row for row in csv.DictReader(file)}


@cache
def _lines(path: Path = LOST) -> Rows:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _step(recipe: Recipe, pipeline: str, shape: str) -> Mapping[str, str]:
    key = (pipeline, recipe.name, shape, "graph")
    if key not in _steps():
        raise UsageError(
            f"{STEPS.relative_to(ROOT)} has no row of {', '.join(key)}; `python -m evidence steps` writes it"
        )
    return _steps()[key]


def _us(step: Mapping[str, str]) -> str:
    return us(float(step["us"])) if step["us"] else UNMEASURED


def beside(recipe: Recipe, pipeline: str) -> str:
    """Times as fast as production in that pipeline at the shown shape."""
    step = _step(recipe, pipeline, _SHOWN)
    return f"{float(step['production_us']) / float(step['us']):.2f}" if step["production_us"] else UNMEASURED


def _both(recipe: Recipe, shape: str) -> str:
    found = [_us(_step(recipe, pipeline, shape)) for pipeline in PIPELINES]
    return UNMEASURED if UNMEASURED in found else " + ".join(found)


def _compared(recipe: Recipe) -> str:
    """Compared bytes of the timed layers: both pipelines, all shapes and modes."""
    total = sum(int(row["bytes_compared"] or 0) for row in _steps().values() if row["recipe"] == recipe.name)
    return f"{total:,}" if total else UNMEASURED


def _backward(recipe: Recipe) -> str:
    """How the recipe's backward pass rounds gradients, and what one scale of a weight covers."""
    flags = find_case(recipe.case_id("backward", _SHOWN, "graph")).flags
    return f"{_ROUNDS[str(flags['rounding'])]}, {'16x16' if flags['weight_2d'] else '1x16'}"


def lost_on(recipe: Recipe, product: str, tensors: str = _NORMAL) -> str:
    """The loss of a product of these tensors, relative to its norm."""
    asked = recipe.losses, product, tensors
    own = [line for line in _lines() if (line["recipe"], line["product"], line["tensors"]) == asked]
    return f"{float(own[0]['relative']):.3f}" if own else UNMEASURED


def _parts(lines: Rows, tensors: str) -> str:
    own = [line for line in lines if line["tensors"] == tensors]
    return f"{float(own[0]['relative']):.3f} / {float(own[0]['bound']):.3f}" if own else UNMEASURED


RENDERERS = {
    f"training_{render.__name__}": render for render in (recipes, steps, experts, losses)
}  # names of parts of pages
