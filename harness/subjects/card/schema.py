"""The form of a card: pydantic models, as for suites."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from harness.contract.case import FlagValue
from harness.subjects.convention import Convention

SCALARS = {
    "i8": 1, "u8": 1, "i16": 2, "u16": 2, "f16": 2, "bf16": 2,
    "i32": 4, "u32": 4, "f32": 4, "i64": 8, "u64": 8, "f64": 8,
}  # fmt: skip
KINDS = ("array", "struct", "pointers", "tensors", "map", "pad", *SCALARS)  # kinds of arguments
FLOATS = ("f16", "bf16", "f32", "f64")
MOST_NUMBERS = 65536  # of an array by value; CUDA has as many bytes for all `__constant__` variables
MOST_MEMBERS = 4096  # bytes of a `pad`; CUDA allows no more for all parameters of a launch


def _number(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("an integer or an expression such as `(rows + 127) // 128` belongs here")
    return value


def _real(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("a number, or an expression such as `cols`, belongs here")
    return value


def _each(check: Callable[[object], object]) -> BeforeValidator:
    """Check a number, or each of a list."""

    def checked(value: object) -> object:
        if isinstance(value, list):
            if not 0 < len(value) <= MOST_NUMBERS:
                raise ValueError(f"a list of 1 to {MOST_NUMBERS} numbers belongs here, not of {len(value)}")
            return [check(each) for each in value]
        return check(value)

    return BeforeValidator(checked)


def _arch(value: str) -> str:
    if not re.fullmatch(r"sm_\d+[af]?", value):
        raise ValueError(f"'{value}' is no architecture; one reads sm_100a")
    return value


def _listed(value: object) -> object:
    return value if isinstance(value, list) else [value]


Whole = Annotated[int | str, BeforeValidator(_number)]
Wholes = Annotated[int | str | list[int | str], _each(_number)]
Reals = Annotated[int | float | str | list[int | float | str], _each(_real)]
Extents = Annotated[list[Whole], Field(min_length=1, max_length=3), BeforeValidator(_listed)]
Dimensions = Annotated[list[Whole], Field(min_length=1, max_length=5)]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Map(Part):
    """A tensor map (CUtensorMap), as cuTensorMapEncodeTiled makes it. Extents count from the innermost dimension."""

    array: str
    """The array that it is of."""
    type: Literal[
        "uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64", "bfloat16",
        "float32_ftz", "tfloat32", "tfloat32_ftz", "uint4",
    ]  # fmt: skip
    """Its elements; `uint4` is packed, two in a byte."""
    extents: Dimensions
    """Elements, innermost first."""
    strides: list[Whole] = []
    """Bytes from one entry of each dimension but the innermost to the next; that of a dense array, if absent."""
    box: Dimensions
    """Elements of a copy, innermost first."""
    steps: list[Whole] = []
    """Between elements of a dimension; 1, if absent."""
    swizzle: Literal["none", "32B", "64B", "128B", "128B_atom_32B", "128B_atom_32B_flip_8B", "128B_atom_64B"] = "none"
    """How rows of the box are permuted in shared memory."""
    interleave: Literal["none", "16B", "32B"] = "none"
    """Bytes of the slices that the innermost dimension is cut into."""
    fills_nan: bool = False
    """Whether elements outside of the array arrive as NaN, not as zeros."""

    @model_validator(mode="after")
    def _one_rank(self) -> Map:
        rank = len(self.extents)
        for name, values, wanted in (
            ("box", self.box, (rank,)), ("strides", self.strides, (0, rank - 1)), ("steps", self.steps, (0, rank)),
        ):  # fmt: skip
            if len(values) not in wanted:
                raise ValueError(f"{name} has {len(values)} entries; extents have {rank}, so it needs {wanted[-1]}")
        return self


class Argument(Part):
    """One parameter of a kernel, one member of a struct, or a variable: exactly one of these keys, and `offset` beside
    `array`. Numbers may be a list, of an array by value."""

    array: str | None = None
    """A pointer to an array of the recipe, or of `scratch` or `workspace`."""
    offset: Whole = 0
    """Bytes into the array."""
    i8: Wholes | None = None
    u8: Wholes | None = None
    i16: Wholes | None = None
    u16: Wholes | None = None
    i32: Wholes | None = None
    u32: Wholes | None = None
    i64: Wholes | None = None
    u64: Wholes | None = None
    f16: Reals | None = None
    bf16: Reals | None = None
    f32: Reals | None = None
    f64: Reals | None = None
    struct: list[Argument] | None = None
    """A struct by value: members in order, each at its natural alignment."""
    pointers: list[str] | None = None
    """A pointer to an array of pointers, in memory, to these arrays."""
    tensors: str | None = None
    """A pointer to an array of pointers, in memory, one for each tensor of a group: to its part of this array."""
    map: Map | None = None
    """A tensor map by value."""
    pad: Annotated[int, Field(ge=1, le=MOST_MEMBERS)] | None = None
    """So many zero bytes, of a struct's member that does not matter."""

    @model_validator(mode="after")
    def _one(self) -> Argument:
        said = self.kinds()
        if len(said) != 1:
            what = f"it has {' and '.join(said)}" if said else "it has none"
            raise ValueError(f"an argument has one of {', '.join(KINDS)}; {what}")
        if self.offset != 0 and self.array is None:
            raise ValueError("offset goes with array")
        return self

    def kinds(self) -> list[str]:
        return [name for name in KINDS if getattr(self, name) is not None]

    @property
    def kind(self) -> str:
        return self.kinds()[0]


class CardLaunch(Part):
    """One launch of a kernel, or an array set to zero bytes before the next."""

    kernel: str | None = None
    """The entry of the PTX or cubin by its (mangled) name; of PTX, also a part of it with `*` for all else, which fits
    one entry alone; of a `.cu`, a C++ expression such as `k<float, 4>`."""
    zero: str | None = None
    """In place of a kernel: an output or a workspace that is filled with zeros, as by cudaMemsetAsync."""
    grid: Extents = [1]
    """Blocks along x, y and z: integers or expressions of `+`, `*`, `//`, brackets, and the numbers of a case: `rows`,
    `cols` (of a product `M`, `K`, `N`), `elements`, `seed`, `offset`, and flags that are numbers."""
    block: Extents = [1]
    """Threads along x, y and z."""
    cluster: Extents | None = None
    """Blocks of a cluster, if the kernel does not say it itself."""
    shared: Whole = 0
    """Bytes of dynamic shared memory."""
    early: bool = False
    """Launched with programmatic stream serialization, so that it may begin before the launch ahead of it ends."""
    cooperative: bool = False
    """Launched as by cudaLaunchCooperativeKernel: all its blocks run at once and may wait for one another, as in
    `grid.sync()` of cooperative groups."""
    arguments: list[Argument] = []
    """In the order of the kernel's parameters."""

    @model_validator(mode="after")
    def _one_of_two(self) -> CardLaunch:
        if (self.kernel is None) == (self.zero is None):
            raise ValueError("a launch has either the key 'kernel' or the key 'zero'")
        return self


class ArrayForm(Part):
    """How the kernel keeps an array of the recipe, where that is not the contract's way.

    Of an output it is what the kernel promises, of an input what it demands.
    """

    layout: Literal["compact", "swizzled"] | None = None
    """Scale bytes as rows of the padded matrix, or as 128x4 tiles."""
    padding: Literal["written", "absent", "anything"] = "written"
    """Scale bytes have padding rows and columns of zeros (`written`), none at all (`absent`), or some whose bytes are
    neither promised nor demanded (`anything`)."""
    form: Literal["amax", "encode", "decode"] = "amax"
    """An amax is kept as itself, as the scale `448 * 6 / amax` that it gives, or as that scale's reciprocal."""
    masked: Literal["anything", "zero"] = "anything"
    """What the rows of an allocation hold that lie beyond the tensor's own, `masked_m`."""
    nibbles: Literal["low", "high"] = "low"
    """The half of a byte of codes that has the even element, low or high."""
    zeros: Literal["signed", "unsigned", "any"] | None = None
    """Whether a negative that rounds to zero stays -0 in codes, is +0, or may be either. An output is `signed` unless
    it says otherwise, and an input takes `any`."""
    reads: Literal["any", "promised"] = "any"
    """With `promised`, loading a byte of an input that is not promised is an error, even if no output depends on it."""


class CardFile(Part):
    """Compiled kernels, what to launch, and the recipe that says what their bytes must be."""

    code: str = Field(min_length=1)
    """PTX, a cubin (for a GPU), or a `.cu` that NVRTC compiles; a path from the card's folder."""
    arch: Annotated[str, AfterValidator(_arch)] = "sm_100a"
    """What a `.cu` is compiled for; on a GPU, the GPU's own."""
    options: list[str] = []
    """More options for NVRTC, of a `.cu`."""
    recipe: str
    """The recipe whose oracles say what the bytes must be."""
    flags: dict[str, Annotated[list[FlagValue], Field(min_length=1), BeforeValidator(_listed)]] = {}
    """Flag → the values, or value, that the kernels are for; cases with others are excluded. Any, if absent."""
    multiple_of: dict[Literal["rows", "cols", "M", "K", "N"], Annotated[int, Field(ge=1)]] = {}
    """Extents of which the kernels take only multiples; other cases are excluded."""
    most_elements: Annotated[int, Field(ge=1)] | None = None
    """The largest tensor that the kernels take, such as 2147483647 if they have an index of 32 bits; larger cases are
    excluded. Any, if absent."""
    given: list[str] = []
    """Outputs of the recipe that the kernels read; the oracle's are put there, and a PASS becomes a CONVENTION."""
    conventions: list[Convention] = []
    """How its bytes may differ from the contract's."""
    arrays: dict[str, ArrayForm] = {}
    """Arrays that the kernels keep otherwise than the contract."""
    scratch: dict[str, Whole] = {}
    """Memory of its own: name → bytes. All zero before the first launch and after the last."""
    workspace: dict[str, Whole] = {}
    """As `scratch`, but with any contents before the first launch and after the last."""
    constants: dict[str, Argument] = {}
    """What a host program copies into `__constant__` and `__device__` variables, before the launches. Names are the
    PTX's, of which `*` may stand for a part."""
    launches: list[CardLaunch] = Field(min_length=1)
    """In the order of the stream."""
