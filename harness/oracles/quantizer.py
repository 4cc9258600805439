"""The frame around the steps of every quantizer: directions, stages, given amaxes, and slabs of lines.

A recipe brings the granularity of its amax and `encode`, its numbered steps from that amax to bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np

from harness.contract.case import Case, Flags, FlagValue
from harness.contract.field import Field
from harness.errors import ContractError
from harness.oracles import layout, nvfp4
from harness.oracles.layout import COLUMNWISE, ROWWISE, Direction, Slab

Encode = Callable[[Case, Slab, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""(case, slab, amax of every block) → scale bytes (lines, length/16) and codes (lines, length), uint8."""
Prepare = Callable[[Case, Slab], np.ndarray]
"""(case, slab) → the float32 values to quantize in place of the slab's own."""

# The flags that this file reads; a recipe adds its own.
PLAIN = {"block": "block_1x16", "outputs": "rowwise", "rounding": "rne", "scale_layout": "compact", "stage": "full"}


def require(case: Case, flag: str, value: FlagValue, because: str) -> None:
    """Raise ContractError with the reason unless a flag has the one value the recipe defines."""
    if case.flags[flag] != value:
        given, right = (str(v).lower() if isinstance(v, bool) else v for v in (case.flags[flag], value))
        raise ContractError(f"{case.recipe}: {flag} must be {right}, not {given}: {because}")


def require_one_of(case: Case, flag: str, values: Sequence[FlagValue]) -> None:
    """Raise ContractError unless a flag has one of the values."""
    if case.flags[flag] not in values:
        *others, last = map(str, values)
        raise ContractError(f"{case.recipe}: {flag} must be {', '.join(others)} or {last}, not {case.flags[flag]}")


def require_group(case: Case, representation: str, *multiples: int, **more: bool) -> None:
    """Raise ContractError, with the recipe, for a group whose shape its representation does not allow."""
    try:
        case.problem.group.require(representation, *multiples, **more)
    except ContractError as error:
        raise ContractError(f"{case.recipe}: {error}") from None


def directions(case: Case) -> tuple[Direction, ...]:
    return {"both": (ROWWISE, COLUMNWISE), "rowwise": (ROWWISE,), "columnwise": (COLUMNWISE,)}[case.flags.outputs]


def outputs(case: Case, granularity: str) -> dict[str, Field]:
    """The data, scale_inv and amax of each requested direction that the stage writes."""
    flags, fields = case.flags, {}
    swizzled = flags.scale_layout == "swizzled"
    for direction in directions(case):
        name, of = direction.name, (case.rows, case.cols, direction)
        if _stage(case) != "amax":
            fields[f"{name}_data"] = layout.data_field(*of)
            format = "" if case.scale_format == "e4m3" else case.scale_format
            fields[f"{name}_scale_inv"] = replace(layout.scale_field(*of, flags.block, swizzled), format=format)
        if _stage(case) != "encode" and case.two_levels:
            fields[f"{name}_amax"] = layout.amax_field(*of, granularity)
    return fields


def inputs(case: Case, x: np.ndarray, granularity: str, prepare: Prepare | None = None) -> dict[str, np.ndarray]:
    """`input` (rows, cols), and for stage=encode the amaxes, float32."""
    tensors = {"input": x}
    if _stage(case) == "encode":
        for direction in directions(case):
            tensors[f"{direction.name}_amax"] = _amax(case, x, direction, granularity, prepare)
    return tensors


def given_amaxes(case: Case, tensors: Mapping[str, Any], granularity: str) -> dict[str, Any]:
    """The amax fields that stage=encode reads, from either library; ContractError for one that is no amax."""
    given = {}
    if _stage(case) == "encode":
        for direction in directions(case):
            name = f"{direction.name}_amax"
            given[name] = tensors[name]
            layout.require_amax(case, name, tensors[name], direction, granularity)
    return given


def quantize(
    case: Case, tensors: dict[str, np.ndarray], granularity: str, encode: Encode, prepare: Prepare | None = None
) -> dict[str, np.ndarray]:
    """Every field of `outputs(case, granularity)`."""
    given, written = given_amaxes(case, tensors, granularity), {}
    for direction in directions(case):
        name = f"{direction.name}_amax"
        if name in given:
            written[name] = given[name]
        else:
            written[name] = _amax(case, tensors["input"], direction, granularity, prepare)
        if _stage(case) == "amax":
            continue
        lines, length = direction.extents(case.rows, case.cols)
        data = np.empty((lines, length // nvfp4.CODES_PER_BYTE), np.uint8)
        scale_inv = np.empty((lines, length // nvfp4.BLOCK), np.uint8)
        for slab in _slabs(case, tensors["input"], direction, prepare):
            amax = layout.amax_of_blocks(written[name], slab.lines, granularity)
            scale_inv[slab.lines], codes = encode(case, slab, amax)
            data[slab.lines] = nvfp4.pack(codes)
        written[f"{direction.name}_data"] = data
        written[f"{direction.name}_scale_inv"] = layout.arrange(scale_inv, case.flags.scale_layout)
    return {name: written[name] for name in outputs(case, granularity)}


def cast(case: Case, slab: Slab, product: np.ndarray) -> np.ndarray:
    """2.8 or 2.9  e2m1 codes of a slab's products, (lines, length), under the rounding of the case."""
    if case.flags.rounding != "sr":
        return nvfp4.e2m1(product)
    random = nvfp4.random_bytes(_block_numbers(case, slab), slab.direction.counter, case.offset, case.seed)
    return nvfp4.e2m1_stochastic(product, random.reshape(product.shape))


def _block_numbers(case: Case, slab: Slab) -> np.ndarray:
    """The row-major number of each block of a slab in its output, or in that of which the case is the end, uint64."""
    lines, length = slab.direction.extents(case.rows, case.cols)
    all_lines, whole = slab.direction.extents(*(case.end_of or (case.rows, case.cols)))
    line = np.arange(slab.lines.start, slab.lines.stop, dtype=np.uint64) + np.uint64(all_lines - lines)
    block = np.arange((whole - length) // nvfp4.BLOCK, whole // nvfp4.BLOCK, dtype=np.uint64)
    return (line[:, None] * np.uint64(whole // nvfp4.BLOCK) + block).reshape(-1)


def quantize_plain(case: Case, x: np.ndarray, oracle: ModuleType, **flags: FlagValue) -> dict[str, np.ndarray]:
    """Quantize `x` for a case that reads quantized tensors: by `oracle.PLAIN`, as bf16, changed by `flags`."""
    recipe = oracle.__name__.rpartition(".")[2]
    quantized_case = replace(case, recipe=recipe, flags=Flags({**oracle.PLAIN, "dtype": "bf16", **flags}))
    dtype = str(quantized_case.flags.dtype)
    plain = np.empty(x.shape, nvfp4.DTYPES[dtype])
    for part in layout.slabs(*x.shape):
        plain[part] = nvfp4.convert(x[part].astype(np.float32), dtype)
    return oracle.numpy_oracle(quantized_case, {"input": plain})


def _stage(case: Case) -> FlagValue:
    return case.flags.get("stage", "full")


def _slabs(case: Case, x: np.ndarray, direction: Direction, prepare: Prepare | None) -> Iterator[Slab]:
    for slab in direction.slabs(x):
        yield slab._replace(v=prepare(case, slab)) if prepare else slab


def _amax(case: Case, x: np.ndarray, direction: Direction, granularity: str, prepare: Prepare | None) -> np.ndarray:
    """2.2  The raw amax of every granule, in the shape of its field."""
    if not x.size:
        return np.zeros(layout.amax_field(case.rows, case.cols, direction, granularity).shape, np.float32)
    amax = {"tensor": nvfp4.amax, "row": nvfp4.line_amax, "window": nvfp4.window_amax}[granularity]
    found = np.concatenate([amax(slab.v) for slab in _slabs(case, x, direction, prepare)])
    return nvfp4.amax(found) if granularity == "tensor" else found
