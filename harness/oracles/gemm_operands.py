"""The operands of a GEMM: how they are quantized, which copy is read, and which tensors are refused.

A kernel reads A as (M, K) and B as (N, K), both packed along K. Through `tn` both are rowwise copies; through `nn` B,
through `nt` A and B are columnwise copies, of tensors that were quantized as (K, N) and (K, M).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from harness.contract.case import Case
from harness.contract.field import QuantizedTensor, round_up
from harness.contract.problem import Dense
from harness.errors import ContractError
from harness.oracles import (
    four_over_six,
    gemm_flags,
    layout,
    local_1x64,
    nvfp4,
    per_tensor,
    per_token,
    quantizer,
    row_scaled,
)
from harness.oracles.layout import ROWWISE

PARTS = ("data", "scale_inv", "amax")
QUANTIZERS = {
    "per_tensor": per_tensor,
    "row_scaled": row_scaled,
    "four_over_six": four_over_six,
    "per_token": per_token,
    "local_1x64": local_1x64,
}
DRAWN_AS_BYTES = ("exact_sum", "wide_sum")

_ONE_TO_TWO = {"e4m3": (0x38, 0x40), "ue5m3": (0x78, 0x80)}  # bytes of 1 and 2
_NAN = {"e4m3": nvfp4.E4M3_NAN, "ue5m3": nvfp4.UE5M3_NAN}  # the lowest byte that is none of the numbers from 0 on
_SIGN = np.uint8(8)  # bit of a code
# Ranges of the binary exponents of amaxes: usual ones, and extreme ones, where factors in another order than the
# contract's lose bits to subnormals and even bf16 shows it.
_EXPONENTS = {"a": ((-2, 12), (-126, -123)), "b": ((-2, 12), (60, 76))}


def inputs(
    case: Case, a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None, bias: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """`a_data`, `a_scale_inv` and `a_amax`, the same three for b, and `c` and `bias` if they are given.

    a, b: high precision, of the flags `a_dtype` and `b_dtype`, (M, K) and (N, K), or (K, M) and (K, N) if their
        columnwise copies are read
    c, bias: (M, N) and (N,) in the output's dtype
    The inputs `exact_sum` and `wide_sum`, which test sums, ignore a and b: their bytes are drawn by the case's seed
    alone, so that both oracles and every kernel of the case read the same.
    """
    gemm_flags.refuse(case)
    make = packed if case.input in DRAWN_AS_BYTES else quantize
    tensors = bind(case, make(case, "a", a), make(case, "b", b), c, bias)
    require_finite_factors(case, tensors)
    return tensors


def quantize(case: Case, name: str, x: np.ndarray) -> QuantizedTensor:
    """Quantize an operand by the recipe that the epilogue and `e4m3_max` call for."""
    direction, lines = gemm_flags.direction(case, name), gemm_flags.lines(case, name)
    if direction.extents(*x.shape) != (lines, case.cols):
        raise ContractError(f"{case.recipe}: operand {name.upper()} has the shape {x.shape}, which is not its case's")
    bound = case.flags[f"{name}_e4m3_max"]
    flags = {"outputs": direction.name, "dtype": case.flags[f"{name}_dtype"]}
    if case.scale_format != "e4m3" or not gemm_flags.two_levels(case, name):
        flags |= {"scale_format": case.scale_format, "global_scale": gemm_flags.two_levels(case, name)}
    recipe, *others = gemm_flags.recipes(case, name)
    if bound != nvfp4.E4M3_MAX:
        (recipe,) = others
        flags |= {"e4m3_max": bound, "row_scaled": gemm_flags.granularity(case, name) == "row"}
    oracle = QUANTIZERS[recipe]
    if direction is ROWWISE:  # pad a few rows with zeros to the extents that the recipe takes
        x = np.pad(x, ((0, round_up(lines, oracle.MULTIPLE) - lines), (0, 0)))
    whole = replace(case, problem=Dense(*x.shape))
    fields = quantizer.quantize_plain(whole, x, oracle, **flags)
    fields = {key: _first_lines(case, name, key, field) for key, field in fields.items()}
    return _tensor(case, name, recipe, fields)


def _first_lines(case: Case, name: str, key: str, field: np.ndarray) -> np.ndarray:
    """The rows of a field that the case reads, scale bytes in the case's layout."""
    lines = gemm_flags.lines(case, name)
    if key.endswith("scale_inv"):
        valid = layout.gather(field, (lines, case.cols // nvfp4.BLOCK), "compact")
        return layout.arrange(valid, case.flags[f"{name}_scale_layout"])
    return field[:lines]


def packed(case: Case, name: str, x: np.ndarray) -> QuantizedTensor:
    """Draw an operand as bytes; `x` is not read."""
    side = gemm_flags.direction(case, name).name
    fields = {f"{side}_{part}": array for part, array in _fields(case, name).items()}
    return _tensor(case, name, gemm_flags.recipes(case, name)[0], fields)


def _fields(case: Case, name: str) -> dict[str, np.ndarray]:
    """`data` (lines, K/2), `scale_inv` whole allocation, and `amax` float32, if it has one, of the operand `a` or `b`.

    exact_sum: any codes under scales of 1 and 2, so that no sum of up to 16,384 products rounds
    wide_sum: any codes under any scales but NaN, so that sums round at every step; in even rows of A the second half of
        the blocks cancels the first half, so that only roundings are left
    """
    rng = np.random.default_rng([case.seed, "ab".index(name)])
    lines, blocks = gemm_flags.lines(case, name), case.cols // nvfp4.BLOCK
    codes = rng.integers(0, 16, (lines, blocks, nvfp4.BLOCK), np.uint8)
    if case.input == "exact_sum":
        scale_inv = rng.choice(np.uint8(_ONE_TO_TWO[case.scale_format]), (lines, blocks))
    else:
        scale_inv = rng.integers(0, _NAN[case.scale_format], (lines, blocks), np.uint8)
        _cancel(name, codes, scale_inv)
    fields = {
        "data": nvfp4.pack(codes.reshape(lines, case.cols)),
        "scale_inv": layout.arrange(scale_inv, case.flags[f"{name}_scale_layout"]),
    }
    return fields | ({"amax": _amax(case, name, rng)} if gemm_flags.two_levels(case, name) else {})


def _cancel(name: str, codes: np.ndarray, scale_inv: np.ndarray) -> None:
    step = 2 if name == "a" else 1
    half = codes.shape[1] // 2
    codes[::step, half : 2 * half] = codes[::step, :half] ^ (_SIGN if name == "a" else 0)
    scale_inv[::step, half : 2 * half] = scale_inv[::step, :half]


def _amax(case: Case, name: str, rng: np.random.Generator) -> np.ndarray:
    """Amaxes (1,), (lines,) or (lines, K/64), float32 with full mantissas; for windows with exact sums, 1 and 2."""
    count = _amax_shape(case, name)
    if gemm_flags.granularity(case, name) == "window" and case.input == "exact_sum":
        return rng.integers(1, 3, count).astype(np.float32)
    usual, far = (rng.integers(*ends, count) for ends in _EXPONENTS[name])
    exponents = np.where(rng.integers(0, 2, count) == 0, usual, far)
    return np.ldexp(rng.uniform(1, 2, count).astype(np.float32), exponents)


def _tensor(case: Case, name: str, recipe: str, fields: dict[str, np.ndarray]) -> QuantizedTensor:
    lines, rowwise = gemm_flags.lines(case, name), gemm_flags.direction(case, name) is ROWWISE
    return QuantizedTensor(
        recipe,
        *((lines, case.cols) if rowwise else (case.cols, lines)),
        fields,
        gemm_flags.granularity(case, name),
        case.flags[f"{name}_e4m3_max"],
        case.flags[f"{name}_scale_layout"],
        case.scale_format,
        gemm_flags.two_levels(case, name),
    )


def _parts(case: Case, name: str) -> tuple[str, ...]:
    """The arrays of an operand that the case reads, of PARTS."""
    return PARTS if gemm_flags.two_levels(case, name) else PARTS[:2]


def bind(
    case: Case, a: QuantizedTensor, b: QuantizedTensor, c: np.ndarray | None = None, bias: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """The arrays of both operands by the names that a kernel of this case gives them.

    Raises ContractError, with operand and field, for a tensor of another recipe, amax granularity, e4m3_max, scale
    layout, scale format or extents than the flags state, with an amax that they leave out, or without the copy that the
    layout reads.
    """
    tensors = {}
    for name, tensor in (("a", a), ("b", b)):
        _require_metadata(case, name, tensor)
        side = gemm_flags.direction(case, name).name
        tensors |= {f"{name}_{part}": tensor.fields[f"{side}_{part}"] for part in _parts(case, name)}
    tensors |= {name: array for name, array in (("c", c), ("bias", bias)) if array is not None}
    require_shapes(case, tensors)
    return tensors


def _require_metadata(case: Case, name: str, tensor: QuantizedTensor) -> None:
    who, flags, taken = f"{case.recipe}: operand {name.upper()}", case.flags, gemm_flags.recipes(case, name)
    if tensor.recipe not in taken:
        raise ContractError(
            f"{who} was quantized by {tensor.recipe}; with the epilogue {flags.epilogue} it must be by "
            f"{' or '.join(taken)}"
        )
    direction = gemm_flags.direction(case, name)
    for field in (f"{direction.name}_{part}" for part in _parts(case, name)):
        if field not in tensor.fields:
            raise ContractError(
                f"{who} has no {field}, which layout {flags.layout} reads; it has {', '.join(sorted(tensor.fields))}"
            )
    for field, given, right in (
        ("amax granularity", tensor.granularity, gemm_flags.granularity(case, name)),
        ("e4m3_max", tensor.e4m3_max, flags[f"{name}_e4m3_max"]),
        ("scale layout", tensor.scale_layout, flags[f"{name}_scale_layout"]),
        ("scale format", tensor.scale_format, case.scale_format),
        ("global scale", *(str(two).lower() for two in (tensor.two_levels, gemm_flags.two_levels(case, name)))),
        ("K", direction.extents(tensor.rows, tensor.cols)[1], case.cols),
        ("M" if name == "a" else "N", direction.extents(tensor.rows, tensor.cols)[0], gemm_flags.lines(case, name)),
    ):
        if given != right:
            raise ContractError(f"{who} has the {field} {given}; this GEMM reads {right}")


def _amax_shape(case: Case, name: str) -> tuple[int, ...]:
    lines = gemm_flags.lines(case, name)
    by_granularity = {"tensor": (1,), "row": (lines,), "window": (lines, case.cols // nvfp4.WINDOW)}
    return by_granularity[gemm_flags.granularity(case, name)]


def shapes(case: Case) -> dict[str, tuple[int, ...]]:
    """The shape of every array that the case reads."""
    found: dict[str, tuple[int, ...]] = {}
    for name in "ab":
        lines = gemm_flags.lines(case, name)
        found[f"{name}_data"] = (lines, case.cols // nvfp4.CODES_PER_BYTE)
        found[f"{name}_scale_inv"] = layout.padded_shape(lines, case.cols // nvfp4.BLOCK)
        if gemm_flags.two_levels(case, name):
            found[f"{name}_amax"] = _amax_shape(case, name)
    if case.flags.beta != 0 or case.flags.accumulate:
        found["c"] = (case.rows, case.problem.n)
    if case.flags.bias:
        found["bias"] = (case.problem.n,)
    return found


def require_shapes(case: Case, tensors: Mapping[str, Any], right: Mapping[str, tuple[int, ...]] | None = None) -> None:
    """Raise ContractError, with operand and field, unless every array, from either library, has its shape.

    right: the shapes, if they are not those of `shapes(case)`
    """
    right = right or shapes(case)
    for key in {"c", "bias", "a_amax", "b_amax"} & (tensors.keys() - right.keys()):
        raise ContractError(f"{case.recipe}: {key} is given, and no flag asks for it; nothing that is given is ignored")
    for key, shape in right.items():
        name, _, part = key.partition("_")
        who = f"{case.recipe}: {part} of operand {name.upper()}" if part else f"{case.recipe}: {key}"
        if key not in tensors:
            raise ContractError(f"{who} is missing; it must have the shape {shape}")
        if tuple(tensors[key].shape) != shape:
            what = f", one amax per {gemm_flags.granularity(case, name)}" if part == "amax" else ""
            raise ContractError(f"{who} must have the shape {shape}{what}, not {tuple(tensors[key].shape)}")


def require_finite_factors(case: Case, tensors: Mapping[str, Any]) -> None:
    """Raise ContractError if the product of finite amaxes and alpha overflows float32; arrays from either library.

    An infinite amax is the tensor's own and goes on into the output.
    """
    if gemm_flags.granularity(case, "b") == "row":
        return
    a, b = (amax_of(case, tensors, name) for name in "ab")
    if gemm_flags.granularity(case, "b") == "window":
        _require_finite_windows(case, a, b)
        return
    with np.errstate(over="ignore"):
        per_tensor = case.flags.epilogue == "per_tensor"
        alpha = np.float32(case.flags.alpha) if per_tensor else nvfp4.ONE
        products = (alpha * a) * b
    overflowing = np.flatnonzero(np.isinf(products) & np.isfinite(a) & np.isfinite(b))
    if overflowing.size:
        row = overflowing[0]
        what = f"alpha = {alpha:g} times " if per_tensor else ""
        raise ContractError(
            f"{case.recipe}: {what}amax {a[row]:g} of operand A{'' if per_tensor else f', row {row},'} times amax "
            f"{b[0]:g} of operand B overflows float32; their product must be finite"
        )


def _require_finite_windows(case: Case, a: np.ndarray, b: np.ndarray) -> None:
    a, b = (np.where(np.isfinite(amax), amax, np.float32(0)).max(axis=0) for amax in (a, b))
    with np.errstate(over="ignore"):
        overflowing = np.flatnonzero(np.isinf(a * b))
    if overflowing.size:
        window = overflowing[0]
        raise ContractError(
            f"{case.recipe}: in window {window} along K an amax {a[window]:g} of operand A times an amax {b[window]:g} "
            "of operand B overflows float32; their product must be finite"
        )


def require(case: Case, tensors: Mapping[str, Any]) -> None:
    """Raise ContractError for arrays, from either library, that no kernel of this case may read."""
    require_shapes(case, tensors)
    for name in {"a_amax", "b_amax"} & tensors.keys():
        layout.require_magnitudes(case, name, tensors[name])
    require_finite_factors(case, tensors)


def decoded(case: Case, tensors: Mapping[str, np.ndarray], name: str) -> tuple[np.ndarray, np.ndarray]:
    """The values of an operand's codes, (lines, K), and of its scale bytes, (lines, K/16), float32."""
    valid = gemm_flags.lines(case, name), case.cols // nvfp4.BLOCK
    stored = layout.gather(tensors[f"{name}_scale_inv"], valid, case.flags[f"{name}_scale_layout"])
    decode = nvfp4.decode_ue5m3 if case.scale_format == "ue5m3" else nvfp4.decode_e4m3
    return nvfp4.decode_e2m1(nvfp4.unpack(tensors[f"{name}_data"])), decode(stored)


def amax_of(case: Case, tensors: Mapping[str, Any], name: str) -> np.ndarray:
    """The amaxes of an operand, float32 of NumPy; 6 E, (1,), where it has none. tensors: arrays of either library"""
    if gemm_flags.two_levels(case, name):
        return _host(tensors[f"{name}_amax"])
    return np.full(1, nvfp4.E2M1_MAX * gemm_flags.scale_max(case, name), np.float32)


def _host(array: Any) -> np.ndarray:
    return array.cpu().numpy() if hasattr(array, "cpu") else array
