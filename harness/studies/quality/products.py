"""End-to-end error: the products of quantized tensors compared with those of the tensors themselves.

The output of a pipeline comes from the torch oracles of its stages: the middle of the interval that any order of the
sum may give, which is some thousand times narrower than the error. The exact product is computed in float64, from the
same bf16 tensors.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from harness.contract.case import Case
from harness.contract.interval import Demand, Interval
from harness.errors import UsageError
from harness.report.tables import markdown, write_table
from harness.studies.quality import tensors
from harness.suite.stages import Stage, stages
from harness.suite.suite import Suite, load_suites
from harness.verify.expected import oracle_of
from harness.verify.torch_calls import ask_torch, fastest_device

REAL = {"x": "ffn_up.input", "w": "ffn_up.weight", "dy": "ffn_up.grad_output"}
REAL_NAME, REAL_SHAPE = "ffn_up", (256, 128, 128)
CHOICE = "epilogue"  # the flag by which pipelines differ in quality
DRAWS = 4  # of the random bits of sr: between two, the SNR of heavy-tailed tensors differs by up to 1 dB

Shape = tuple[int, int, int]
Tensors = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Lost:
    """The error of one product of one pipeline.

    tensors: their source; product: name of the stage; recipe: the value of `CHOICE`
    snr_db: signal over error; relative: L2 norm of the error over that of the product
    """

    tensors: str
    shape: str
    product: str
    recipe: str
    snr_db: float
    relative: float


def pipelines() -> list[Suite]:
    """The suites with stages and the flag `CHOICE`, forward before backward."""
    found = [suite for suite in load_suites() if suite.file.pipeline and CHOICE in suite.file.axes]
    return sorted(found, key=lambda suite: len(suite.file.pipeline))


def measure(name: str, values: Tensors, shape: Shape) -> Iterator[Lost]:
    """Every product of every pipeline under every recipe, of the tensors x (M, K), w (N, K) and dy (M, N) in bf16.

    The random bits of sr are the same for all recipes, and errors are root mean squares over `DRAWS` of them.
    """
    extents = "x".join(map(str, shape))
    for suite in pipelines():
        for recipe in suite.file.axes[CHOICE]:
            case = suite.find(f"{suite.recipe}/{CHOICE}={recipe}/{extents}/normal/eager")
            for product, relative in relative_errors(case, values).items():
                snr = -20 * math.log10(relative) if relative > 0 else math.inf
                yield Lost(name, extents, product, str(recipe), snr, relative)


def relative_errors(case: Case, values: Tensors) -> dict[str, float]:
    """L2 norm of the error of each GEMM of a pipeline, over that of the exact product.

    values: the tensors that the stages quantize, by name; others are ignored
    """
    drawn = {stage.name: values[stage.name] for stage in stages(case) if stage.draws}
    inputs = oracle_of(case.recipe).inputs(case, **drawn)
    random = any(stage.case.flags.get("rounding") == "sr" for stage in stages(case))
    exact = {stage.name: _product(stage, drawn) for stage in stages(case) if not stage.draws}
    errors: dict[str, list[float]] = {name: [] for name in exact}
    for draw in range(DRAWS if random else 1):
        made = ask_torch(oracle_of(case.recipe), replace(case, seed_of=str(draw)), inputs, fastest_device())
        for name, product in exact.items():
            errors[name].append(float(np.linalg.norm(_middle(made[f"{name}.output"]) - product)))
    return {
        name: math.sqrt(statistics.fmean(error * error for error in errors[name])) / float(np.linalg.norm(product))
        for name, product in exact.items()
    }


def _middle(output: Demand) -> np.ndarray:
    low, high = (output.low, output.high) if isinstance(output, Interval) else (output, output)
    return (low.astype(np.float64) + high.astype(np.float64)) / 2


def _product(stage: Stage, drawn: Tensors) -> np.ndarray:
    """A times B transposed, of the tensors that the operands were quantized from."""
    operands = []
    for operand in "ab":
        name, _, field = stage.reads[f"{operand}_data"].partition(".")
        x = drawn[name].astype(np.float64)
        operands.append(x.T if field.startswith("columnwise") else x)
    return operands[0] @ operands[1].T


def real() -> Tensors:
    found, _ = tensors.stored(tensors.SAMPLE, tuple(REAL.values()), "bf16")
    by_name, (_, _, n) = {tensor.name: tensor.values for tensor in found}, REAL_SHAPE
    return {name: by_name[stored][:n] if name == "w" else by_name[stored] for name, stored in REAL.items()}


def named(name: str, shape: Shape) -> Tensors:
    """x, w and dy of a distribution, in different shapes so that their values differ."""
    m, k, n = shape
    if len({m, k, n}) < 3:
        raise UsageError(f"M, K and N must differ, not {m}, {k}, {n}: tensors of one shape would be drawn alike")
    sizes = {"x": (m, k), "w": (n, k), "dy": (m, n)}
    return {tensor: tensors.named(name, *size, "bf16").values for tensor, size in sizes.items()}


def table(lost: Sequence[Lost]) -> pd.DataFrame:
    """A row for each product, as text: SNR of each recipe, then relative errors."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for found in lost:
        row = rows.setdefault((found.tensors, found.product), {"tensors": found.tensors, "product": found.product})
        row[f"{found.recipe} dB"] = f"{found.snr_db:.2f}"
        row[f"{found.recipe} L2"] = f"{found.relative:.3f}"
    columns = dict.fromkeys(key for row in rows.values() for key in row)
    return pd.DataFrame(rows.values(), columns=sorted(columns, key=lambda name: name.endswith(" L2")))


def write(command: str, lost: Sequence[Lost], folder: Path) -> list[Path]:
    shapes = ", ".join(dict.fromkeys(f"{found.tensors} {found.shape}" for found in lost))
    notes = (
        "y = x w^T, dx = dy w and dw = dy^T x of bf16 tensors, quantized as the suites `forward` and `backward` say, "
        "held against the same products of the tensors themselves. dB: energy of the product over that of the error. "
        f"L2: norm of the error over that of the product; both over {DRAWS} draws of the random bits of sr. "
        f"M, K and N: {shapes}."
    )
    text = ["# What is lost from end to end", f"`{command}`", notes, markdown(table(lost))]
    return write_table(folder, "products", pd.DataFrame(lost), text)
