"""Quantize and dequantize the caller's tensors: on a CPU by the NumPy oracle, on a GPU by the recipe's kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.api.arrays import Library, as_dtype, dtype_of, require_aligned, taken
from harness.api.cases import make_case, require_text
from harness.contract.case import Case, FlagValue
from harness.contract.dtypes import DTYPES
from harness.contract.field import Field, granularity_of
from harness.errors import UsageError
from harness.expected.expected import oracle_of
from harness.suite.suite import suite_of
from harness.text import nearest, one_line

if TYPE_CHECKING:
    from harness.device.cuda import CudaDevice

_DTYPES = ("bf16", "fp16", "fp32")
_SIDES = ("rowwise", "columnwise")
_INPUT = "normal"  # fills the input's place in the case id of a caller's tensor; nothing is drawn


class MissingField(UsageError, KeyError):
    """There is no such field; `get` and `in` of a mapping need the KeyError."""

    def __str__(self) -> str:
        return one_line(self.args[0])  # KeyError's own has quotes round it


@dataclass(frozen=True, eq=False)
class Quantized(Mapping[str, Any]):
    """A quantized tensor: a mapping of its arrays, in the library and on the device of what was quantized.

    recipe, flags: how it was made; shape: the tensor's shape, as case ids spell it
    fields: `rowwise_data` (rows, cols/2) packed e2m1, `rowwise_scale_inv` e4m3 padded to (128, 4),
        `rowwise_amax` float32, unless global_scale=False, and their columnwise twins, as far as the recipe writes them
    """

    recipe: str
    flags: Mapping[str, FlagValue]
    shape: str
    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        if name not in self.fields:
            raise MissingField(f"there is no field {name!r} in this tensor{nearest(str(name), tuple(self.fields))}")
        return self.fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    __eq__, __hash__ = object.__eq__, object.__hash__  # arrays have no one answer to whether they are equal


def quantize(
    x: Any, recipe: str = "per_tensor", /, *, shape: str = "", seed: int = 0, offset: int = 0, dtype: str | None = None,
    **flags: FlagValue,
) -> Quantized:  # fmt: skip
    """Quantize a tensor by a recipe.

    x: (rows, cols) bf16, fp16 or fp32, contiguous, of NumPy, torch or CuPy, or of any library through DLPack. NumPy's
        bf16 is ml_dtypes'; 16-bit integers are its bits if dtype="bf16".
    shape: of a group, as in `128+0+256x512`; x then has the tensors back to back
    seed, offset: the Philox key and the last word of its counter; used only with rounding="sr"
    flags: the recipe's flags that differ from their defaults; `harness recipes` lists them; outputs="rowwise",
        scale_layout="swizzled", rht=True, ...

    On a GPU the recipe's kernels are queued on the stream that is current for the caller (torch's or CuPy's), and
    nothing waits for them; on a CPU the NumPy oracle computes the same bytes. Raises UsageError for an array, a
    flag or a shape that the recipe does not take, in one sentence.
    """
    case, whole, library = case_of_tensor(x, recipe, shape, seed, offset, dtype, flags)
    if library.gpu is None:
        arrays = host_inputs(case, whole, library)
        made = {name: library.like(array) for name, array in oracle_of(recipe).numpy_oracle(case, arrays).items()}
    else:
        require_aligned("x", whole, library)
        made = _on_gpu(case, library, {"input": whole}, oracle_of(recipe).outputs(case))
    return Quantized(recipe, MappingProxyType(dict(case.flags)), case.shape, MappingProxyType(made))


def case_of_tensor(
    x: Any, recipe: str, shape: str, seed: int, offset: int, dtype: str | None, flags: Mapping[str, FlagValue]
) -> tuple[Case, Any, Library]:
    """The case that quantizes a tensor, see `quantize`, and the tensor with its library. Raises UsageError."""
    require_text(recipe=recipe)
    whole, library = taken("x", x)
    case = _case(whole, recipe, shape, dtype_of("x", whole, dtype), flags)
    case = replace(case, philox_seed=_number("seed", seed, 64), philox_offset=_number("offset", offset, 32))
    fields = oracle_of(recipe).outputs(case)
    if not any(f"{side}_data" in fields for side in _SIDES):
        raise UsageError(f"{recipe} with these flags makes no codes and scales, but {', '.join(fields)}")
    return case, whole, library


def host_inputs(case: Case, x: Any, library: Library) -> dict[str, np.ndarray]:
    """The arrays of NumPy that a case reads of a tensor."""
    host = as_dtype(library.host(x), str(case.flags.get("dtype", "bf16")))
    return oracle_of(case.recipe).inputs(case, host.reshape(-1) if case.is_group else host)


def dequantize(quantized: Quantized, dtype: str = "bf16", side: str = "rowwise") -> Any:
    """The values of a quantized tensor, (rows, cols) in `bf16`, `fp16` or `fp32`, by the recipe `dequantize`.

    side: `rowwise` or `columnwise`, which copy to read; a rotation (rht) of the columnwise one is not undone
    A tensor without rows has values without rows. A group is refused.
    Where the codes lie on a GPU, its kernel is queued on the caller's stream. Raises UsageError.
    """
    if not isinstance(quantized, Quantized):
        raise UsageError(f"dequantize takes what quantize returned, not a {type(quantized).__name__}")
    if dtype not in _DTYPES:
        raise UsageError(f"there is no dtype {dtype!r} to dequantize to; it is one of {', '.join(_DTYPES)}")
    if side not in _SIDES or f"{side}_data" not in quantized.fields:
        there = [name for name in _SIDES if f"{name}_data" in quantized.fields]
        raise UsageError(f"there is no {side} copy in this tensor; it has {' and '.join(there)}")
    made_by = make_case(quantized.recipe, quantized.shape, _INPUT, **quantized.flags)
    if made_by.is_group:
        raise UsageError("a group is not dequantized as a whole; quantize and dequantize its tensors one by one")
    fields = oracle_of(quantized.recipe).outputs(made_by)
    arrays, library = _copy_of(quantized, side, fields)
    if not made_by.elements:
        values = Field((made_by.rows, made_by.cols), DTYPES[dtype].name)
        host = library.gpu is None
        return library.like(np.empty(values.shape, DTYPES[dtype])) if host else library.empty(values)
    swizzled = fields[f"{side}_scale_inv"].swizzled
    case = _decoder(made_by, side, granularity_of(arrays["amax"].shape if "amax" in arrays else (1,)), dtype, swizzled)
    fields = oracle_of(case.recipe).outputs(case)
    if library.gpu is None:
        hosts = {name: library.host(array) for name, array in arrays.items()}
        output = library.like(oracle_of(case.recipe).numpy_oracle(case, hosts)["output"])
    else:
        for part, array in arrays.items():
            require_aligned(f"{side}_{part}", array, library)
        output = _on_gpu(case, library, arrays, fields)["output"]
    return output.T if side == "columnwise" else output


def _copy_of(quantized: Quantized, side: str, fields: Mapping[str, Field]) -> tuple[dict[str, Any], Library]:
    """Codes, scales and amaxes of one copy, and their library. Raises UsageError if they are not what quantize made."""
    arrays: dict[str, Any] = {}
    found = []
    for part in ("data", "scale_inv", "amax"):
        name = f"{side}_{part}"
        if name not in fields and part == "amax":
            continue  # without a global scale
        arrays[part], library = taken(name, quantized[name])
        here, right = (str(arrays[part].dtype).rpartition(".")[2], tuple(arrays[part].shape)), fields[name]
        if here != (right.dtype, right.shape):
            raise UsageError(f"{name} is {here[0]} {here[1]}; {quantized.recipe} makes {right.dtype} {right.shape}")
        found.append(library)
    if len({(type(library), library.gpu) for library in found}) > 1:
        raise UsageError(f"the {side} arrays are of different libraries or devices; give all of one")
    return arrays, found[0]


def _case(x: Any, recipe: str, shape: str, dtype: str, flags: Mapping[str, FlagValue]) -> Case:
    axes = suite_of(recipe).file.axes
    if flags.get("stage", "full") != "full":
        raise UsageError("quantize makes amaxes and codes in one call; leave out stage")
    if flags.get("activation", "none") != "none":
        raise UsageError("quantize takes the tensor that is quantized, and no activation's; leave out activation")
    if not shape and len(x.shape) != 2:
        raise UsageError(f"x has the shape {tuple(x.shape)}; it must have two dimensions, rows and cols")
    typed = {"dtype": dtype, **flags} if "dtype" in axes else flags
    case = make_case(recipe, shape or tuple(map(int, x.shape)), _INPUT, **typed)
    elements = int(np.prod(x.shape))
    if not case.is_group and not case.is_gemm and tuple(x.shape) != (case.rows, case.cols):
        raise UsageError(f"x has the shape {tuple(x.shape)}, and shape says {case.shape}; leave it out, or reshape x")
    if case.is_gemm or case.elements != elements:
        raise UsageError(f"x has {elements} elements; {recipe} of shape {case.shape} takes {case.elements}")
    return case


def _decoder(case: Case, side: str, granularity: str, dtype: str, swizzled: bool) -> Case:
    """The case of `dequantize` that reads one copy; a columnwise copy counts as the transposed tensor, (cols, rows)."""
    rows, cols = (case.rows, case.cols) if side == "rowwise" else (case.cols, case.rows)
    return make_case(
        "dequantize",
        (rows, cols),
        _INPUT,
        dtype=dtype,
        scale_layout="swizzled" if swizzled else "compact",
        granularity=granularity,
        e4m3_max=case.e4m3_max,
        scale_format=case.scale_format,
        global_scale=case.two_levels,
    )


def _number(name: str, value: Any, bits: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or not 0 <= value.__index__() < 1 << bits:
        raise UsageError(f"{name} is {value!r}; it must be an integer from 0 to 2^{bits} - 1")
    return value.__index__()


def _on_gpu(case: Case, library: Library, arrays: Mapping[str, Any], fields: Mapping[str, Field]) -> dict[str, Any]:
    """Queue the case's kernels on the caller's stream; arrays by parameter."""
    from harness.device.cuda_program import CudaProgram, launches_of
    from harness.device.memory import Lent, upload

    device = _device(library.gpu)
    with library.on_stream():
        inputs = {name: library.flat(array) for name, array in arrays.items()}
        if case.is_group:  # a group's kernels also read its extents, which follow from the shape
            inputs |= {name: upload(array) for name, array in case.problem.arrays.items()}
        made = {name: library.empty(field) for name, field in fields.items()}
        outputs = {name: Lent(library.flat(array)) for name, array in made.items()}
        memory = SimpleNamespace(inputs=inputs, outputs=outputs)
        CudaProgram(launches_of(device, case, device.targets[0]), case, memory, wait=False).launch()
    return made


@lru_cache(maxsize=16)
def _device(index: int) -> CudaDevice:
    """Open a GPU without changing which one is current for the caller."""
    import cupy
    import torch

    from harness.device.cuda import CudaDevice

    before = cupy.cuda.Device().id, torch.cuda.current_device()
    try:
        return CudaDevice(index)
    finally:
        cupy.cuda.Device(before[0]).use()
        torch.cuda.set_device(before[1])
