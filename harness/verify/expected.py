"""What the oracles demand of a case: its inputs, its fields, and the bytes two independent witnesses agree on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import ModuleType

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.group_shape import MOST_TENSORS
from harness.contract.interval import Demand, Interval
from harness.errors import ContractError
from harness.inputs.draw import make
from harness.inputs.dtypes import DTYPES
from harness.oracles import by_recipe
from harness.suite import gemm_operands
from harness.suite.stages import is_pipeline, stages
from harness.suite.written import file_of
from harness.verify import pipeline_oracle, torch_calls

NUMPY_LARGEST = 1 << 26  # of `Case.work`; beyond, the NumPy oracle takes minutes and torch alone is asked
NUMPY_LARGEST_TIMED = 1 << 20  # the same in a timed run, which lasts as long as a GPU is held


@dataclass(frozen=True)
class Expectation:
    """What a case reads and must write.

    inputs: arrays by kernel parameter; fields: what is written; witnesses: who was asked
    values: the demanded bytes of each field, or the interval its values must be in
    disagreement: a sentence if the witnesses differ, in which case nothing can be judged
    """

    inputs: dict[str, np.ndarray]
    fields: dict[str, Field]
    values: dict[str, Demand]
    witnesses: tuple[str, ...]
    disagreement: str = ""


def oracle_of(recipe: str) -> ModuleType:
    """The oracle module of a recipe's stem; of a pipeline the one that asks its stages'."""
    try:
        return by_recipe.oracle_of(recipe)
    except ModuleNotFoundError as missing:
        if missing.name != f"harness.oracles.{recipe}" or not file_of(recipe).pipeline:
            raise
        return pipeline_oracle


def expect(case: Case, torch_device: str = "cpu", numpy_largest: int = NUMPY_LARGEST) -> Expectation:
    """Ask both oracles, or torch alone if the case is more `work` than `numpy_largest`.

    Cases that differ only in their mode share one answer.
    """
    return _expect(replace(case, mode="eager"), torch_device, numpy_largest)


def make_inputs(case: Case) -> dict[str, np.ndarray]:
    """The arrays that the case's kernels read, by parameter; kept for `expect` to find."""
    return _inputs(replace(case, mode="eager"))


@lru_cache(maxsize=1)
def _inputs(case: Case) -> dict[str, np.ndarray]:
    return oracle_of(case.recipe).inputs(case, **high_precision(case))


def high_precision(case: Case) -> dict[str, np.ndarray]:
    """What the case quantizes, by the names an oracle's `inputs` takes it.

    x: (rows, cols); of a group (elements,), every tensor drawn with its own extents and the seed plus its number
    act_input: in the same shape, only of a case with an activation: what went into it
    a, b, c, bias: of a GEMM, see `harness.suite.gemm_operands`
    x, w, ...: of a pipeline, for every stage that quantizes a tensor of its own, drawn with the stage's seed
    """
    return dict(_high_precision(replace(case, mode="eager")))


@lru_cache(maxsize=1)
def _high_precision(case: Case) -> dict[str, np.ndarray]:
    if is_pipeline(case):
        return {stage.name: _draw(stage.case, stage.case.seed) for stage in stages(case) if stage.draws}
    if case.is_gemm:
        return gemm_operands.draw(case)
    made = {"x": _draw(case, case.seed)}
    if case.flags.get("activation", "none") != "none":
        # Beyond the seeds of the tensors themselves, so that no gradient is its own activation's input.
        made["act_input"] = _draw(case, case.seed + MOST_TENSORS)
    return made


def _draw(case: Case, seed: int) -> np.ndarray:
    dtype = str(case.flags.get("dtype", "bf16"))
    if not case.is_group:
        return make(case.input, case.rows, case.cols, dtype, seed)
    flat = np.empty(case.elements, DTYPES[dtype])
    offsets = case.problem.group.tensor_offsets
    for number, (rows, cols) in enumerate(case.problem.tensors):
        if rows and cols:
            part = make(case.input, rows, cols, dtype, seed + number)
            flat[offsets[number] : offsets[number + 1]] = part.reshape(-1)
    return flat


def _require_parts(case: Case, fields: Mapping[str, Field]) -> None:
    tensors = case.problem.tensors if case.is_group else ()
    for name, field in fields.items():
        if len(field.parts) != len(tensors):
            raise ContractError(
                f"{case.recipe}: field {name} has {len(field.parts)} parts; must be one for each of the "
                f"{len(tensors)} tensors of a group"
            )


def fields_of(case: Case) -> dict[str, Field]:
    """What the case writes, without asking for the values."""
    fields = oracle_of(case.recipe).outputs(case)
    _require_parts(case, fields)
    return fields


def forget() -> None:
    """Keep no answer of an oracle in memory."""
    _expect.cache_clear()


@lru_cache(maxsize=1)
def _expect(case: Case, torch_device: str, numpy_largest: int) -> Expectation:
    return expect_on(case, _inputs(case), torch_device, numpy_largest)


def expect_on(
    case: Case, inputs: dict[str, np.ndarray], torch_device: str = "cpu", numpy_largest: int = NUMPY_LARGEST
) -> Expectation:
    """What the oracles demand of the case on inputs that are not its own."""
    oracle = oracle_of(case.recipe)
    fields = fields_of(case)
    answers = {}
    if case.work <= numpy_largest:
        answers["numpy"] = oracle.numpy_oracle(case, inputs)
    answers["torch"] = torch_calls.ask_torch(oracle, case, inputs, torch_device, alone=not answers)
    values = answers.get("numpy", answers["torch"])
    disagreement = _disagreement(values, answers["torch"]) if "numpy" in answers else ""
    values = {name: value.bounds if isinstance(value, Interval) else value for name, value in values.items()}
    return Expectation(inputs, fields, values, tuple(answers), disagreement)


def _disagreement(numpy_values: Mapping[str, Demand], torch_values: Mapping[str, Demand]) -> str:
    for name, value in numpy_values.items():
        other = torch_values[name]
        if isinstance(value, Interval) != isinstance(other, Interval):
            return f"the oracles disagree on {name}: only one of them gives an interval"
        if value.dtype.name != other.dtype.name or value.shape != other.shape:
            return f"the oracles disagree on {name}: numpy {value.dtype}{value.shape}, torch {other.dtype}{other.shape}"
        if isinstance(value, Interval):
            found = value.disagreement(other)
            if found:
                return f"the oracles disagree on {name}: {found}"
            continue
        differing = np.flatnonzero(value.reshape(-1).view(np.uint8) != other.reshape(-1).view(np.uint8))
        if differing.size:
            return f"the oracles disagree on {differing.size} bytes of {name}, first at byte {differing[0]}"
    return ""
