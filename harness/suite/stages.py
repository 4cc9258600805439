"""Pipelines: cases made of stages, each of which is a case of another recipe, as the key `pipeline` of a suite says.

Every other case counts as one stage without a name, so that launching, binding and counting work the same for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.contract.case import Case, Flags, FlagValue
from harness.contract.field import Field, granularity_of
from harness.contract.group_shape import SCALE_PADDING
from harness.contract.problem import Dense, Gemm, Grouped, GroupedGemm, OnDevice, Problem
from harness.errors import ContractError
from harness.inputs import tensor_file
from harness.oracles.by_recipe import oracle_of
from harness.suite import schema
from harness.suite.flag_values import holds
from harness.suite.gemm_operands import COLUMNWISE
from harness.suite.suite_file import defaults_of, file_of

SWIZZLE = "swizzle"  # the recipe whose stage moves block scales that another stage wrote
DECODE = "dequantize"  # the recipe whose stage decodes what another stage wrote
_PARTS = ("data", "scale_inv", "amax")


@dataclass(frozen=True)
class Stage:
    """One recipe at work.

    name: begins the names of its arrays in the pipeline; empty if the stage is the whole case
    case: of its recipe, with a seed of its own
    reads: parameter → name in the pipeline of the array that another stage writes or that is drawn
    given: whether an oracle runs it beforehand, so that its outputs are inputs
    """

    name: str
    case: Case
    reads: Mapping[str, str] = field(default_factory=dict)
    given: bool = False

    @property
    def draws(self) -> bool:
        """Whether it quantizes a tensor that is drawn from the input; the tensor then has the stage's name."""
        return self.reads.get("input") == self.name

    @property
    def multiplies(self) -> bool:
        return "a_data" in self.reads

    @property
    def added(self) -> dict[str, str]:
        """The drawn array that a product adds, `c` or `bias`, and its name in the pipeline."""
        flags = self.case.flags if self.multiplies else {}
        asked = {"c": flags.get("beta", 0) or flags.get("accumulate", False), "bias": flags.get("bias", False)}
        return {name: self.key(name) for name, wanted in asked.items() if wanted}

    def key(self, name: str) -> str:
        """The pipeline's name for an array of the stage."""
        return self.reads.get(name, f"{self.name}.{name}" if self.name else name)

    def keyed(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Rename arrays of the stage to their names in the pipeline."""
        return {self.key(name): array for name, array in arrays.items()}

    def select(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Select the stage's own arrays from the pipeline's, by their names in the stage."""
        start = self.key("")
        return {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}

    def read(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Select the pipeline's arrays that the stage reads, by their names in the stage."""
        return {name: arrays[key] for name, key in self.reads.items()}


def is_pipeline(case: Case) -> bool:
    return bool(_entries(case))


def stages(case: Case) -> tuple[Stage, ...]:
    """The stages of a pipeline that its flags select, in order; any other case is one stage.

    Raises ContractError if a stage reads one that the flags leave out.
    """
    entries = _entries(case)
    return stages_of(case, entries) if entries else (Stage("", case),)


def stages_of(case: Case, entries: Sequence[schema.Stage]) -> tuple[Stage, ...]:
    """`stages` for the entries of a suite that is still being checked."""
    made: dict[str, Stage] = {}
    for entry in entries:
        if holds(entry.when, case.flags):
            number = sum(stage.draws for stage in made.values())
            named = _named(entry, case.flags)
            alone = _case(case, entry, named, tensor_file.of_operand(case.input, number))
            reads = _reads(case, entry, alone, made)
            alone = replace(alone, flags=_of_operands(entry, named, alone.flags, reads, made))
            made[entry.stage] = Stage(entry.stage, alone, reads, entry.given)
    return tuple(made.values())


def terms(case: Case) -> int:
    """How many products all GEMMs of a case add up."""
    return sum(stage.case.terms for stage in stages(case))


def _entries(case: Case) -> Sequence[schema.Stage]:
    return file_of(case.recipe).pipeline if case.is_gemm else ()  # only a suite of products can have the key


def _case(case: Case, entry: schema.Stage, named: Mapping[str, FlagValue], input_name: str) -> Case:
    """The stage as a case of its recipe, with a seed from the pipeline's problem and the stage's name.

    named: the flags that the entry names
    input_name: what it draws, if it draws
    """
    defaults = defaults_of(file_of(entry.recipe))
    shared = {name: value for name, value in case.flags.items() if name in defaults}
    return Case(
        entry.recipe,
        defaults.replace(**{**shared, **named}),
        _problem(case.problem, entry.extents),
        input_name,
        case.mode,
        defaults,
        case.where,
        seed_of=f"{case.seed_name}/{entry.stage}",
        dense_defaults={
            str(name): defaults_of(file_of(str(name))) for name in file_of(entry.recipe).axes.get("recipe", ())
        },
    )


def _named(entry: schema.Stage, flags: Flags) -> dict[str, FlagValue]:
    """The flags that an entry names for these flags of its pipeline."""
    named = dict(entry.flags)
    for also in entry.also:
        if holds(also.when, flags):
            named |= also.flags
    return named


def _problem(whole: Problem, letters: Sequence[str]) -> Problem:
    """The problem of a stage. In a group, every tensor or product with an extent M has its own part of M."""
    extents = [whole.numbers[letter] for letter in letters]
    if not isinstance(whole, GroupedGemm):
        return Gemm(*extents) if len(extents) == 3 else Dense(*extents)
    count = len(whole.tensors)
    varying = letters.index("M") if "M" in letters else None
    if varying is None:
        rows, cols = extents
        return Grouped(count * rows, cols, ((rows, cols),) * count)
    capacity = None if whole.capacity is None else extents[0] * extents[1]
    if isinstance(whole.tensors, OnDevice):
        return _group(extents, whole.tensors, capacity, varying)
    tensors = [list(extents[:2]) for _ in range(count)]
    for tensor, (rows, _) in zip(tensors, whole.tensors, strict=True):
        tensor[varying] = rows
    return _group(extents, tuple((rows, cols) for rows, cols in tensors), capacity, varying)


def _group(extents: Sequence[int], tensors: Sequence[Any], capacity: int | None, varying: int) -> Problem:
    if len(extents) == 3:
        return GroupedGemm(*extents, tensors, capacity, by_k=varying == 1)
    return Grouped(*extents, tensors, capacity)


def written(stage: Stage) -> dict[str, Field]:
    """The fields that a stage writes, by their names in the stage; for a group, the fields of one tensor of 128x128."""
    case = stage.case
    if not case.is_group:
        return oracle_of(case.recipe).outputs(case)
    extents = (SCALE_PADDING, SCALE_PADDING)
    alone = replace(case, problem=Grouped(*extents, (extents,)))
    return {name: field.parts[0] for name, field in oracle_of(case.recipe).outputs(alone).items()}


def _reads(case: Case, entry: schema.Stage, alone: Case, made: Mapping[str, Stage]) -> dict[str, str]:
    for source in filter(None, (entry.a, entry.b, entry.of)):
        if source not in made:
            raise ContractError(
                f"{case.recipe}: stage {entry.stage} reads {source}, and with {case.variant} there is no such stage "
                f"before it; there are {', '.join(made)}"
            )
    if entry.of is not None and entry.recipe == SWIZZLE:
        return {"scale_inv": made[entry.of].key(f"{alone.flags.direction}_scale_inv")}
    if entry.of is not None and entry.recipe == DECODE:
        return {part: made[entry.of].key(f"{alone.flags.outputs}_{part}") for part in _PARTS}
    if entry.a is None or entry.b is None:
        return {"input": entry.of or entry.stage}
    reads = {}
    for operand, source in (("a", entry.a), ("b", entry.b)):
        side = "columnwise" if operand in COLUMNWISE[str(alone.flags.layout)] else "rowwise"
        swizzled = made[source] if made[source].case.recipe == SWIZZLE else None
        tensor = swizzled.reads["scale_inv"].partition(".")[0] if swizzled else source
        reads |= {f"{operand}_{part}": made[tensor].key(f"{side}_{part}") for part in _PARTS}
        if swizzled:
            reads[f"{operand}_scale_inv"] = swizzled.key("swizzled_scale_inv")
    return reads


def _of_operands(
    entry: schema.Stage,
    named: Mapping[str, FlagValue],
    flags: Flags,
    reads: Mapping[str, str],
    made: Mapping[str, Stage],
) -> Flags:
    """The flags of a product or decoder.

    Flags that the entry does not name are taken from the operands: the largest scale, the layout of the scales, and the
    granularity of the amaxes.
    """
    found: dict[str, FlagValue] = {}
    for operand in ("a_", "b_") if entry.a else ("",) if entry.recipe == DECODE else ():
        source = made[reads[f"{operand}data"].partition(".")[0]]
        try:
            fields = written(source)
        except ContractError:  # `stage_checks` raises it again, and names the stage
            return flags
        scales, amax = (fields.get(reads[f"{operand}{part}"].partition(".")[2]) for part in ("scale_inv", "amax"))
        found[f"{operand}e4m3_max"] = source.case.e4m3_max
        found[f"{operand}scale_layout"] = "swizzled" if scales is None or scales.swizzled else "compact"
        if amax is not None and (not entry.a or (operand == "b_" and flags.get("epilogue") == "row_scaled")):
            found[f"{operand}granularity"] = granularity_of(amax.shape)
    return flags.replace(**{name: value for name, value in found.items() if name in flags and name not in named})
