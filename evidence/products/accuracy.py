"""Check the accuracy claims of the recipes' sources against our oracles; `accuracy.yaml` has the claims.

Every tensor of a claim must keep its bound by itself; the largest found is reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, model_validator

from evidence.products import products
from harness.contract.case import Case
from harness.ground.yaml_lines import read
from harness.inputs import draw
from harness.quality import variants
from harness.quality.measure import decoded
from harness.report.tables import markdown, write_table
from harness.suite.suite import suite_of

FILE = Path(__file__).with_suffix(".yaml")


class Claim(BaseModel):
    """One entry of the file; the file's head explains the keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str = Field(min_length=1)
    says: str = Field(min_length=1)
    error: str
    of: str
    against: str | None = None
    input: str
    dtypes: tuple[str, ...] = Field(min_length=1)
    shapes: tuple[tuple[int, ...], ...] = Field(min_length=1)
    seeds: int = Field(ge=1)
    draws: int = Field(1, ge=1)
    bound: float | None = None
    below: float | None = None

    @model_validator(mode="after")
    def _one_bound(self) -> Claim:
        if (self.bound is None) == (self.below is None):
            raise ValueError("a claim has one of the keys bound and below")
        if self.error not in ERRORS:
            raise ValueError(f"there is no error '{self.error}'; choose {', '.join(ERRORS)}")
        return self

    @property
    def limit(self) -> str:
        return f"<= {self.bound:g}" if self.below is None else f"< {self.below:g}"

    def allows(self, found: float) -> bool:
        """Whether an error, or a ratio of two, keeps the bound; a NaN never does."""
        return found <= self.bound if self.below is None else found < self.below


@dataclass(frozen=True)
class Found:
    """A claim, the largest error or ratio of two errors that was found, and the number of tensors."""

    source: str
    says: str
    error: str
    of: str
    against: str
    input: str
    tensors: int
    limit: str
    found: float
    holds: bool


def load(path: Path = FILE) -> list[Claim]:
    """All claims. Raises SuiteError, with file and line, for the first invalid one."""
    return list(read(path, f"{path.parent.name}/{path.name}").each(Claim, "claims"))


def hold(claim: Claim) -> Found:
    """Measure a claim on all its tensors."""
    found = [value for dtype in claim.dtypes for shape in claim.shapes for value in _values(claim, dtype, shape)]
    worst = math.nan if any(map(math.isnan, found)) else max(found)
    return Found(
        claim.source, claim.says, claim.error, claim.of, claim.against or "", claim.input, len(found), claim.limit,
        worst, claim.allows(worst),
    )  # fmt: skip


def _values(claim: Claim, dtype: str, shape: Sequence[int]) -> Iterator[float]:
    for seed in range(claim.seeds):
        if len(shape) == 3:
            yield _of_products(claim.of, claim.input, shape, seed)
            continue
        x = draw.make(claim.input, *shape, dtype, seed)
        error = _of_tensor(claim.error, claim.of, dtype, x, claim.draws)
        yield error if claim.against is None else error / _of_tensor(claim.error, claim.against, dtype, x, 1)


def _of_tensor(error: str, spec: str, dtype: str, x: np.ndarray, draws: int) -> float:
    case = variants.place(variants.find(spec, dtype), *x.shape, "x")
    seen, mean = decoded(case, x)
    for number in range(1, draws):
        mean = mean + decoded(replace(case, seed_of=str(number)), x)[1]
    return ERRORS[error](seen, np.abs(mean / draws - seen))


def _of_products(spec: str, name: str, shape: Sequence[int], seed: int) -> float:
    """The largest relative error of the products of a pipeline."""
    m, k, n = shape
    sizes = {"x": (m, k), "w": (n, k), "dy": (m, n)}
    values = {role: draw.make(name, *size, "bf16", 3 * seed + i) for i, (role, size) in enumerate(sizes.items())}
    case: Case = suite_of(spec.partition("/")[0]).find(f"{spec}/{m}x{k}x{n}/{name}/eager")
    return max(products.relative_errors(case, values).values())


def _share_of_amax(x: np.ndarray, error: np.ndarray) -> np.ndarray:
    return error / np.maximum(np.abs(x).max(axis=1, keepdims=True), 1e-6)


ERRORS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {  # take values (lines, length) and |error|
    "rms": lambda x, error: float(np.sqrt(np.mean(error**2))),
    "mean": lambda x, error: float(error.mean()),
    "relative": lambda x, error: float((error / np.maximum(np.abs(x), 1e-6)).mean()),
    "median": lambda x, error: float(np.median(_share_of_amax(x, error))),
    "p99": lambda x, error: float(np.quantile(_share_of_amax(x, error), 0.99)),
    "l2": lambda x, error: float(np.linalg.norm(error) / np.linalg.norm(x)),
}


def table(found: Sequence[Found]) -> pd.DataFrame:
    """A row for each claim, as text."""
    rows = [{**asdict(one), "found": f"{one.found:.4g}", "holds": "yes" if one.holds else "NO"} for one in found]
    return pd.DataFrame(rows)


def write(command: str, found: Sequence[Found], folder: Path) -> list[Path]:
    notes = (
        "What the sources claim about accuracy, measured on the oracles' bytes, which the kernels' are equal to. "
        "`found` is the largest of all tensors of a claim: an error, or its ratio to that of `against`."
    )
    text = ["# What the sources claim", f"`{command}`", notes, markdown(table(found))]
    return write_table(folder, "accuracy", pd.DataFrame(map(asdict, found)), text)
