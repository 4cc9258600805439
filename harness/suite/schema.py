"""The schema of `suites/S.yaml`: pydantic models, and a sentence for each kind of mistake."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema, model_validator
from pydantic_core import ErrorDetails

from harness.contract.case import FlagValue
from harness.contract.group_shape import LARGEST_EXTENT
from harness.errors import SuiteError
from harness.ground.yaml_lines import Document, Route
from harness.text import nearest, spell

Cover = Literal["pairwise", "product", "each"]
Mode = Literal["eager", "graph"]


# Case ids put flags between slashes as name=value, separated by commas, and are one line and one shell word.
_WORD = re.compile(r"[^\s/,=\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


def _flag_value(value: Any) -> FlagValue:
    if not isinstance(value, bool | int | float | str):
        raise ValueError("a flag's value is a word, true, false or a number")
    if not _WORD.fullmatch(spell(value)):
        raise ValueError("a flag's value stands in case ids, so it has a letter and no space, slash, comma or '='")
    return value


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


_VALUE_SCHEMA = {"type": ["string", "boolean", "number"]}
Value = Annotated[FlagValue, BeforeValidator(_flag_value), WithJsonSchema(_VALUE_SCHEMA)]
Values = Annotated[
    list[Value],
    Field(min_length=1),
    BeforeValidator(_listed),
    WithJsonSchema({"oneOf": [_VALUE_SCHEMA, {"type": "array", "items": _VALUE_SCHEMA, "minItems": 1}]}),
]
Extent = Annotated[int, Field(strict=True, ge=1, le=LARGEST_EXTENT)]
Size = Extent | str
Rows = Annotated[int, Field(strict=True, ge=0, le=LARGEST_EXTENT)]
Shape = tuple[Rows, Extent] | tuple[Extent, Extent, Extent] | str
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]*$")]


Model = TypeVar("Model", bound=BaseModel)


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Exclusion(_Part):
    """A combination of flags that is refused, and why."""

    when: dict[Name, Values] = Field(min_length=1)
    """Flag → the values, or value, it applies to; all of them must hold."""
    because: str = Field(min_length=1)
    """The reason, counted and shown wherever the combination was asked for."""


class Degenerate(_Part):
    """Cases whose expected fields have few different values, and why. What is absent does not matter."""

    inputs: list[str] = []
    """The inputs for which it is so."""
    when: dict[Name, Values] = {}
    """The flags for which it is so."""
    shapes: list[str] = []
    """The shapes for which it is so, as case ids spell them."""
    fields: list[str] = []
    """The fields that have few values."""
    because: str = Field(min_length=1)
    """The reason."""

    @model_validator(mode="after")
    def _narrow(self) -> Degenerate:
        if not (self.inputs or self.shapes or self.fields):
            raise ValueError("an entry names inputs, shapes or fields; one that names none would excuse every case")
        return self


class Corner(_Part):
    """Cases that the emulator also runs as the last rows and columns of larger tensors, to catch an index of 32 bits.

    Every byte of the case must be the same there: nothing may depend on where in the tensor it stands.
    """

    shape: str
    """The shape of the cases, as their ids spell it: whole tiles."""
    when: dict[Name, Values] = {}
    """Their flags; any, if absent."""
    tensors: list[Shape] = Field(min_length=1)
    """The shape of each larger tensor or product, as in a set; each extent a multiple of the case's."""


class SuiteLaunch(_Part):
    """One kernel of the recipe, or one call of a library; launches run in the order written."""

    kernel: Name | None = None
    """Name of the `__global__` function in the recipe's `.cu`."""
    library: Name | None = None
    """A call of `harness/device/cublas.py`, in place of a kernel. It needs a GPU."""
    when: dict[Name, Values] = {}
    """The flags for which it is launched; always, if absent."""
    unless: dict[Name, Values] = {}
    """The flags for which it is not launched, even if `when` holds."""
    rows_at_most: Extent | None = None
    """The most rows (M of a GEMM) for which it is launched; any number, if absent."""
    rows_above: Extent | None = None
    """It is launched for more rows (M of a GEMM) than this only."""
    scratch: dict[Name, Size] = {}
    """Memory the kernel needs: parameter name → bytes. All zero before the first launch, and again after the last.
    Bytes are an integer or an expression of `+`, `*`, `//`, brackets, integers and `rows`, `cols`, `elements`,
    `num_tensors`: `4 * cols`. A GEMM has `M`, `K`, `N` instead of `rows`, `cols`; its `elements` are M * N."""
    workspace: dict[Name, Size] = {}
    """As `scratch`, but with any contents before the first launch and after the last."""
    reads: dict[Name, Name] = {}
    """Parameter → the workspace that it takes in place of the array of its own name, because an earlier launch wrote
    there what this one reads."""
    flags: dict[Name, Value] = {}
    """Flags for its template parameters in place of the case's, as of a kernel that reads what is activated already."""
    fits: bool | None = None
    """`true`: its blocks wait for each other, so it is launched only where the device runs all of them at once.
    `false`: it is launched where they do not fit, or where the flags allow no launch of that kind."""
    early: bool = False
    """`true`: it may begin before the launch ahead of it has ended, on a GPU that can do so (sm_90 and later), and its
    kernel waits itself before it touches what that one writes. The first launch of a case is never early."""

    @model_validator(mode="after")
    def _one_of_two(self) -> SuiteLaunch:
        if (self.kernel is None) == (self.library is None):
            raise ValueError("a launch has either the key 'kernel' or the key 'library'")
        if self.early and (self.library or self.fits):
            which = "of a library, which waits for nothing" if self.library else "whose blocks all run at once"
            raise ValueError(f"a launch {which}, cannot be early; leave the key 'early' out")
        return self

    @property
    def name(self) -> str:
        return str(self.kernel or self.library)

    @property
    def memory(self) -> dict[str, dict[str, Size]]:
        return {"scratch": self.scratch, "workspace": self.workspace}

    def takes(self, rows: int) -> bool:
        """Whether it is launched for so many rows."""
        few_enough = self.rows_at_most is None or rows <= self.rows_at_most
        return few_enough and (self.rows_above is None or rows > self.rows_above)


class Also(_Part):
    """Flags that a stage has under further flags of its pipeline."""

    when: dict[Name, Values] = Field(min_length=1)
    """The flags of the pipeline for which they hold."""
    flags: dict[Name, Value] = Field(min_length=1)
    """Flags of the stage's recipe."""


class Stage(_Part):
    """One recipe of a pipeline, at work on one tensor, or on two that earlier stages quantized."""

    stage: Name
    """The beginning of its arrays' names: the tensor `x`, which is drawn from the input, `x.rowwise_data`, ..."""
    recipe: Name
    """The suite whose launches it makes: a quantizer, or a GEMM."""
    when: dict[Name, Values] = {}
    """The flags of the pipeline for which there is this stage; always, if absent."""
    flags: dict[Name, Value] = {}
    """Flags of its recipe. One that is absent has the value of the pipeline's flag of that name, or its default."""
    also: list[Also] = []
    """Flags that depend on those of the pipeline; a later entry replaces what an earlier one says."""
    extents: list[Literal["M", "K", "N"]] = Field(min_length=2, max_length=3)
    """Its rows and cols in terms of the pipeline's M, K and N; of a GEMM, its own M, K and N in terms of them."""
    a: Name | None = None
    """The stage whose copy is operand A of a GEMM; the flag `layout` says which copy."""
    b: Name | None = None
    """The stage whose copy is operand B."""
    of: Name | None = None
    """The stage whose tensor it quantizes once more, whose block scales `swizzle` moves, or whose codes `dequantize`
    decodes. A product with moved scales reads codes and amax of the tensor that they belong to."""
    given: bool = False
    """Whether an oracle makes its outputs beforehand, as inputs of the pipeline that are not timed."""

    @model_validator(mode="after")
    def _operands(self) -> Stage:
        if (self.a is None) != (self.b is None):
            raise ValueError("a stage has both operands, 'a' and 'b', or neither")
        if len(self.extents) != (2 if self.a is None else 3):
            right = "two extents, as [M, K]" if self.a is None else "three extents, as [M, K, N]"
            raise ValueError(f"a stage {'with' if self.a else 'without'} operands has {right}")
        if self.a is not None and self.given:
            raise ValueError("only a quantized tensor can be given, not a product")
        if self.of is not None and (self.given or self.a is not None):
            raise ValueError("a stage `of` another is run, and is no product")
        return self


class Block(_Part):
    """Some of the cases of a set."""

    cover: Cover = "pairwise"
    """`pairwise`: every legal pair of flag values, shapes and inputs meets in some case. `product`: everything meets
    everything. `each`: the first values, then one flag changed at a time."""
    axes: Literal["default"] | dict[Name, Values] = {}
    """Flag → the values to use; a flag that is absent takes all of its values, or only its default after
    `others: default`. `axes: default` keeps every flag at its default."""
    shapes: list[Shape] = Field(min_length=1)
    """[rows, cols] of the high-precision tensor, elements; the tensors of a group if the recipe has the flag
    `shape_representation`, as in `128+0+256x512` or `8*1024x2048`: each side is N for all, n*N, or A+B+C, and
    `128+0+256of1024x512` lies in an allocation of 1024 rows. Of a GEMM, [M, K, N], and of a grouped one
    `128+0+256x512x1024`, N last, or `128+256x384+512x256+384` where every extent may differ."""
    inputs: list[str] = Field(min_length=1)
    """Names of distributions, or `file:<path>#<tensor>`."""
    modes: list[Mode] = Field(default=["eager"], min_length=1)
    """How the kernels are launched; every mode runs every case of the block."""
    excuse: str | None = None
    """Why the block is smaller than a reader would expect."""
    tests: list[str] = []
    """Tests of a source, `FILE::TEST`, of which these are the cases; such blocks of a set may share cases."""


class SuiteFile(_Part):
    """One recipe: its flags, what it refuses, its launches, and named sets of cases."""

    recipe: Name
    """Stem of `kernels/S.cu`, `oracles/S.py` and this file."""
    contract: str = ""
    """The section of the byte contract that the recipe implements; a recipe outside of the harness may have none."""
    multiple_of: Extent = 16
    """Rows and cols are multiples of this; of a GEMM, K and N; of a pipeline, M as well."""
    no_rows: bool = False
    """Whether it also takes a tensor without rows."""
    tile: Extent | None = None
    """Rows and cols of its kernels' tiles. Launches and template parameters then have a flag that no id has, `edges`:
    whether a tile reaches beyond the tensor. The tensors of a group have whole tiles."""
    gemm: bool = False
    """Whether the recipe multiplies two quantized tensors, (M, K) by (N, K) transposed."""
    quality: list[str] = []
    """The variants that `harness quality` compares by default, `default` or `flag=value,...`."""
    axes: dict[Name, Annotated[list[Value], Field(min_length=1)]]
    """Flag → its values. The first is the default; the order of the flags is their order in a case id."""
    exclude: list[Exclusion] = []
    """Illegal combinations, as data."""
    apart: list[dict[Name, Values]] = []
    """Legal combinations that `pairwise` blocks leave to others, as before they were legal: ids stay."""
    degenerate: list[Degenerate] = []
    """Cases that are expected to have few different values; any other such case is an error."""
    corners: list[Corner] = []
    """Cases that the emulator also runs at the end of larger tensors."""
    launches: list[SuiteLaunch] = []
    """The kernels, in order."""
    pipeline: list[Stage] = []
    """In place of launches: stages of other recipes, in order. Such a suite has neither a kernel nor an oracle of its
    own. Its shapes are [M, K, N], all of them multiples."""
    sets: dict[Name, Annotated[list[Block], Field(min_length=1)]] = Field(min_length=1)
    """Named lists of cases; `smoke`, `full` and `bench` are always there in the harness. A recipe outside of it has at
    least one; `smoke` and `bench` are what is run without --set."""

    @property
    def sections(self) -> tuple[int, ...]:
        """The numbers of the contract's sections, by which lists of recipes are sorted."""
        return tuple(map(int, re.findall(r"\d+", self.contract)))

    @model_validator(mode="after")
    def _one_of_two(self) -> SuiteFile:
        if bool(self.launches) == bool(self.pipeline):
            raise ValueError("a suite has either the key 'launches' or the key 'pipeline', and something in it")
        if self.pipeline and not self.gemm:
            raise ValueError("the shapes of a pipeline are those of a product, [M, K, N]; add `gemm: true`")
        return self


_PARTS: dict[str, type[BaseModel]] = {
    "exclude": Exclusion,
    "degenerate": Degenerate,
    "corners": Corner,
    "launches": SuiteLaunch,
    "pipeline": Stage,
    "also": Also,
    "sets": Block,
}


def parse(document: Document) -> SuiteFile:
    """Parse the file into a model. Raises SuiteError with one sentence about the first mistake."""
    return validated(SuiteFile, document, sentence_of)


def validated(model: type[Model], document: Document, sentence: Callable[[Document, ErrorDetails], str]) -> Model:
    """The file as a model. Raises SuiteError with a sentence about the first mistake."""
    try:
        return model.model_validate(document.data)
    except ValidationError as refusal:
        # A misspelt key is also reported as missing; the misspelling is the more helpful error.
        def priority(error: ErrorDetails) -> tuple[bool, int]:
            return error["type"] != "extra_forbidden", document.lines[route_of(document, error)]

        first = min(refusal.errors(), key=priority)
        raise SuiteError(document.where(*route_of(document, first)), sentence(document, first)) from None


def json_schema() -> str:
    """The text of `suites/schema.json`, for editors."""
    return json.dumps(SuiteFile.model_json_schema(), indent=2, ensure_ascii=False) + "\n"


def route_of(document: Document, error: ErrorDetails) -> Route:
    """The route in the file to a mistake."""
    # Pydantic's location also contains the union branch that it tried, which is not a key of the file.
    route: Route = ()
    for part in error["loc"]:
        if (*route, part) in document.lines:
            route = (*route, part)
    return route


def sentence_of(document: Document, error: ErrorDetails, whole: str = "the suite") -> str:
    """A sentence on what is wrong and what would be right. whole: the name for the file if no key is to blame"""
    route, kind, value = route_of(document, error), error["type"], error["input"]
    name = ".".join(str(part) for part in route if isinstance(part, str)) or whole
    match kind:
        case "missing" | "too_long" | "tuple_type" if name.endswith("shapes"):
            shape = "[M, K, N]" if document.data.get("gemm") is True else "[rows, cols]"
            found = functools.reduce(lambda data, part: data[part], route, document.data)
            return f"{name} has {json.dumps(found)} where a shape {shape} belongs"
        case "extra_forbidden":
            part = next((_PARTS[key] for key in reversed(route[:-1]) if key in _PARTS), SuiteFile)
            return f"unknown key '{route[-1]}'{nearest(route[-1], part.model_fields)}"
        case "missing":
            return f"{name} lacks the key '{error['loc'][-1]}'"
        case "literal_error" if name.endswith("axes"):
            return f"axes is '{spell(value)}'; write `default` or a mapping of flags to values"
        case "literal_error":
            choices = str(error["ctx"]["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
            return f"{name} has no '{spell(value)}'{nearest(value, choices)}"
        case "too_short":
            return f"{name} is empty; it needs at least one entry"
        case "greater_than_equal" | "int_type":
            return f"{name} has '{spell(value)}' where a positive integer belongs"
        case "less_than_equal":
            return f"{name} has a number beyond {LARGEST_EXTENT}, which no kernel takes"
        case "string_pattern_mismatch":
            return f"'{value}' is not a name; names are made of a-z, 0-9 and _"
        case "value_error":
            return f"{name}: {error['ctx']['error']}"
        case _:
            return f"{name}: {error['msg'][0].lower()}{error['msg'][1:]}"
