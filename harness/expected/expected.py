"""The inputs and expected outputs of a case: arrays, fields, and the bytes that two independent oracles agree on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from harness.contract.case import Case
from harness.contract.dtypes import DTYPES
from harness.contract.field import Field
from harness.contract.group_shape import MOST_TENSORS
from harness.contract.interval import Demand, Interval
from harness.errors import ContractError, InputError
from harness.expected import pipeline_oracle, torch_calls
from harness.expected.formats import decoded
from harness.expected.prepared import SOURCE, Prepared, Recent
from harness.expected.witness import objection
from harness.expected.witness.fields import too_alike, wrong_slack
from harness.files import recipe_dir
from harness.ground.seconds import INPUTS, ORACLES, SECONDS
from harness.inputs.draw import make
from harness.inputs.drawn_once import DRAWN, tensor
from harness.oracles import by_recipe
from harness.suite import gemm_operands
from harness.suite.stages import Stage, is_pipeline, stages
from harness.suite.suite_file import file_of

NUMPY_LARGEST = 1 << 26  # in `Case.work`; beyond it, the NumPy oracle takes minutes, so only torch is asked
NUMPY_LARGEST_TIMED = 1 << 20  # the same for a timed run, where a GPU waits for the oracle
_SMALL = 1 << 20  # elements; tensors up to this size are drawn twice, to check that the seed matters
_users_oracles: dict[str, Any] = {}
_drawn_again: set[tuple[object, ...]] = set()
LEAST = 8  # bytes per element: at least the tensor and a float32 copy are in memory


@dataclass(frozen=True)
class Expected:
    """The inputs and expected outputs of a case.

    inputs: arrays by kernel parameter
    fields: what is written
    values: the bytes of each field, or the interval of its values
    oracles: `numpy`, `torch` or both
    disagreement: a sentence if the oracles differ, or if the inputs are not what they should be or the values all
        alike, in which case no verdict on a kernel is possible
    differing: the field for which the oracles differ, empty if they do not, and the index of its first such entry, if
        there is one
    """

    inputs: dict[str, np.ndarray]
    fields: dict[str, Field]
    values: dict[str, Demand]
    oracles: tuple[str, ...]
    disagreement: str = ""
    differing: tuple[str, tuple[int, ...] | None] = "", None

    def on(self, target: str) -> Expected:
        """The demand on our kernels for one architecture, whose matrix unit may have a stated order of sums."""
        values = {name: v.on(target) if isinstance(v, Interval) else v for name, v in self.values.items()}
        return replace(self, values=values)


def oracle_of(recipe: str) -> ModuleType:
    """The oracle module of a recipe or a pipeline."""
    try:
        return by_recipe.oracle_of(recipe)
    except ModuleNotFoundError as missing:
        if missing.name != f"harness.oracles.{recipe}" or not file_of(recipe).pipeline:
            raise
        return pipeline_oracle


def expect(case: Case, torch_device: str = "cpu", numpy_largest: int = NUMPY_LARGEST) -> Expected:
    """The answer of both oracles, or of torch alone if the case is more `work` than `numpy_largest`."""
    _forget_if_edited(case.recipe)
    return _expect(replace(case, mode="eager"), torch_device, numpy_largest)


def expect_split(case: Case, torch_device: str = "cpu", numpy_largest: int = NUMPY_LARGEST) -> Expected:
    """`expect` for another split of a case's allocation. Its values may be all equal, and nothing is cached."""
    high_precision = _drawn(replace(case, mode="eager"))
    inputs = oracle_of(case.recipe).inputs(case, **high_precision)
    wrong = objection.to_inputs(case, high_precision, None, inputs)
    if wrong:
        return Expected(inputs, fields_of(case), {}, (), wrong)
    return expect_on(case, inputs, torch_device, numpy_largest)


def make_inputs(case: Case) -> dict[str, np.ndarray]:
    """The arrays that the case's kernels read, by parameter."""
    _forget_if_edited(case.recipe)
    return _inputs(replace(case, mode="eager"))


def prepare(case: Case, numpy_largest: int) -> Prepared:
    """Compute the part of a case that another process can hand to this one; no GPU is used."""
    case = replace(case, mode="eager")
    inputs = _inputs(case)
    wrong = objection.to_inputs(case, high_precision(case), _with_another_seed(case), inputs)
    asked = not wrong and case.work <= numpy_largest
    return Prepared(inputs, wrong, oracle_of(case.recipe).numpy_oracle(case, inputs) if asked else None)


@Recent
def prepared(case: Case) -> Prepared | None:
    """What another process has prepared of the case, if anything has."""
    with SECONDS.of(INPUTS):
        return SOURCE.take(case)


@Recent
def _inputs(case: Case) -> dict[str, np.ndarray]:
    made = prepared(case)
    if made:
        return made.inputs
    with SECONDS.of(INPUTS):
        return oracle_of(case.recipe).inputs(case, **high_precision(case))


def high_precision(case: Case) -> dict[str, np.ndarray]:
    """The tensors that the case quantizes, by the parameters of its oracle's `inputs`.

    x: (rows, cols); of a group (elements,), every tensor drawn with its own extents and the seed plus its number
    act_input: the activation's input, drawn like x; only for a case with an activation
    a, b, c, bias: of a GEMM, see `harness.suite.gemm_operands`
    x, w, ...: of a pipeline, for every stage that quantizes a tensor of its own, drawn with the stage's seed;
        y.bias, dw.c: what its products add
    """
    return dict(_high_precision(replace(case, mode="eager")))


@Recent
def _high_precision(case: Case) -> dict[str, np.ndarray]:
    with SECONDS.of(INPUTS):
        return _drawn(case)


def _drawn(case: Case) -> dict[str, np.ndarray]:
    _require_memory(case)
    if is_pipeline(case):
        return {key: x for stage in stages(case) for key, x in _drawn_by(stage).items()}
    if case.is_gemm:
        return gemm_operands.draw(case)
    made = {"x": _draw(case, case.tensor_seed)}
    if case.flags.get("activation", "none") != "none":
        # A seed that no tensor of the group uses, so that no gradient equals an activation's input.
        made["act_input"] = _draw(case, case.tensor_seed + MOST_TENSORS)
    return made


def _drawn_by(stage: Stage) -> dict[str, np.ndarray]:
    """The tensor that a stage quantizes, if it is its own, or what a product adds, by names in the pipeline."""
    if stage.added:
        return stage.keyed(gemm_operands.draw(stage.case, operands=False))
    return {stage.name: _draw(stage.case, stage.case.tensor_seed)} if stage.draws else {}


def _draw(case: Case, seed: int) -> np.ndarray:
    dtype = str(case.flags.get("dtype", "bf16"))
    if not case.is_group:
        return tensor(case.input, case.rows, case.cols, dtype, seed)
    tensors, offsets = case.problem.tensors, case.problem.group.tensor_offsets

    def draw() -> np.ndarray:
        flat = np.empty(case.problem.group.elements, DTYPES[dtype])
        for number, (rows, cols) in enumerate(tensors):
            if rows and cols:
                part = make(case.input, rows, cols, dtype, seed + number)
                flat[offsets[number] : offsets[number + 1]] = part.reshape(-1)
        return flat

    return DRAWN.of(f"{case.input} {tensors} {seed}", dtype, (case.problem.group.elements,), draw)


def _require_memory(case: Case) -> None:
    """Raise InputError for a case that does not fit in this machine's memory."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if case.elements * LEAST > there:
        gib = f"{case.elements * LEAST >> 30:,} GiB of memory or more; this machine has {there >> 30:,}"
        raise InputError(f"{case.id} takes {gib}; choose a smaller shape")


def fields_of(case: Case) -> dict[str, Field]:
    fields = oracle_of(case.recipe).outputs(case)
    tensors = len(case.problem.tensors) if case.is_group else 0
    for name, field in fields.items():
        if len(field.parts) != tensors:
            raise ContractError(
                f"{case.recipe}: field {name} has {len(field.parts)} parts; must be one for each of the "
                f"{tensors} tensors of a group"
            )
    return fields


def forget() -> None:
    """Free the last answers of the oracles."""
    _expect.cache_clear()


def _forget_if_edited(recipe: str) -> None:
    """Drop cached answers if a user's oracle was edited while the process runs, as in a notebook."""
    if recipe_dir(recipe) is not None:
        oracle = oracle_of(recipe)
        if _users_oracles.get(recipe) is not oracle:
            _users_oracles[recipe] = oracle
            forget()
            _inputs.cache_clear()


@Recent
def _expect(case: Case, torch_device: str, numpy_largest: int) -> Expected:
    inputs, made = _inputs(case), prepared(case)
    with SECONDS.of(INPUTS):
        wrong = (
            made.wrong if made else objection.to_inputs(case, _high_precision(case), _with_another_seed(case), inputs)
        )
        wrong = wrong or wrong_slack(case, inputs, fields_of(case))
    if wrong:
        return Expected(inputs, fields_of(case), {}, (), wrong)
    with SECONDS.of(ORACLES):
        found = expect_on(case, inputs, torch_device, numpy_largest, made and made.values)
        return replace(found, disagreement=found.disagreement or too_alike(case, found.fields, found.values))


def _with_another_seed(case: Case) -> dict[str, np.ndarray] | None:
    """The tensors of another seed; None unless first in this process for a recipe, input and dtype, and small."""
    kind = case.recipe, case.input, case.flags.get("dtype")
    if case.elements > _SMALL or kind in _drawn_again:
        return None
    _drawn_again.add(kind)
    return _drawn(replace(case, seed_of=f"{case.seed_name}/again"))


def expect_on(
    case: Case, inputs: dict[str, np.ndarray], torch_device: str = "cpu", numpy_largest: int = NUMPY_LARGEST,
    numpy_values: dict[str, Demand] | None = None,
) -> Expected:  # fmt: skip
    """`expect` for inputs other than the case's own. Raises ContractError for an array that is not C-contiguous.

    numpy_values: the answer of the NumPy oracle, if it was asked before
    """
    _require_contiguous(case, inputs)
    oracle = oracle_of(case.recipe)
    fields = fields_of(case)
    answers = {}
    if case.work <= numpy_largest:
        answers["numpy"] = numpy_values or oracle.numpy_oracle(case, inputs)
    answers["torch"] = torch_calls.ask_torch(oracle, case, inputs, torch_device, alone=not answers)
    values = answers.get("numpy", answers["torch"])
    disagreement, differing = _misfit(values, fields), ("", None)
    if not disagreement and "numpy" in answers:
        disagreement, differing = _disagreement(values, answers["torch"], fields)
    values = {name: value.bounds if isinstance(value, Interval) else value for name, value in values.items()}
    return Expected(inputs, fields, values, tuple(answers), disagreement, differing)


def _require_contiguous(case: Case, inputs: Mapping[str, np.ndarray]) -> None:
    for name, array in inputs.items():
        if not array.flags.c_contiguous:
            raise ContractError(
                f"{case.recipe}: {name} is not C-contiguous: its strides are {array.strides} bytes, and kernels read "
                f"{array.shape} entries of {array.itemsize} bytes back to back; give np.ascontiguousarray({name})"
            )


def _misfit(values: Mapping[str, Demand], fields: Mapping[str, Field]) -> str:
    """A sentence if an answer lacks its field's shape, because equal bytes in another shape would compare as right."""
    for name, field in fields.items():
        if values[name].shape != field.shape:
            return f"{name} is {field.shape} by the recipe's `outputs`, and {values[name].shape} by its oracle"
    return ""


def _place_in_dataflow(name: str) -> int:
    """Amaxes come before the scales made of them, and these before codes: a wrong one spoils those after it."""
    return next((place for place, kind in enumerate(("amax", "scale_inv")) if name.endswith(kind)), 2)


def _disagreement(
    numpy_values: Mapping[str, Demand], torch_values: Mapping[str, Demand], fields: Mapping[str, Field]
) -> tuple[str, tuple[str, tuple[int, ...] | None]]:
    """A sentence, and `Expected.differing`, of the earliest field in the dataflow."""
    for name in sorted(numpy_values, key=_place_in_dataflow):
        value = numpy_values[name]
        other, says = torch_values[name], f"the oracles disagree on {name}: "
        if isinstance(value, Interval) != isinstance(other, Interval):
            return f"{says}only one of them gives an interval", (name, None)
        if value.dtype.name != other.dtype.name or value.shape != other.shape:
            return f"{says}numpy {value.dtype}{value.shape}, torch {other.dtype}{other.shape}", (name, None)
        if isinstance(value, Interval):
            found = value.disagreement(other)
            if found:
                return f"{says}{found}", (name, None)
            continue
        differing = np.flatnonzero(value.reshape(-1).view(np.uint8) != other.reshape(-1).view(np.uint8))
        if differing.size:
            index = np.unravel_index(int(differing[0]) // value.dtype.itemsize, value.shape)
            at, by = tuple(int(i) for i in index), partial(decoded, name, declared=fields[name].format)
            return (
                f"the oracles disagree on {differing.size} bytes of {name}, first at byte {differing[0]}: entry "
                f"{list(at)} is {by(value[at])} by NumPy, {by(other[at])} by torch"
            ), (name, at)
    return "", ("", None)
