"""Check the quantized tensors that a case reads: decoded, they equal the drawn tensors within the format's error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import NamedTuple

import numpy as np

from harness.contract.case import Case
from harness.expected.witness import magnitudes
from harness.expected.witness.magnitudes import SIDES
from harness.oracles.by_recipe import oracle_of
from harness.suite.stages import is_pipeline, stages

_MOST = 1 << 22  # elements; of a larger tensor about this many are decoded, in whole tiles of 16 lines from all over it
_FEWEST_TILES = 8
_SLACK = 1 + 2.0**-6
_LEAST = 1e-12  # some recipes replace a smaller amax by a floor
_STEPS = {"e4m3": 2.0**-10, "ue5m3": 2.0**-18}  # half of the smallest value
COLUMNWISE = {"tn": "", "nn": "b", "nt": "ab"}


class Operand(NamedTuple):
    """One quantized tensor.

    x: the tensor that was quantized, (lines, length); data, amax: None if the case does not read them
    e4m3_max: the largest scale that is aimed at, in either format
    two_levels: whether the tensor has an amax, which is else that of a scale of 1
    two_scales: whether the scale of a block may be half as large again
    """

    name: str
    x: np.ndarray
    data: np.ndarray | None
    scale_inv: np.ndarray
    amax: np.ndarray | None
    swizzled: bool = False
    e4m3_max: int = 448
    square: bool = False
    stochastic: bool = False
    one_amax: bool = False
    two_scales: bool = False
    scale_format: str = "e4m3"
    two_levels: bool = True


def objection(case: Case, drawn: Mapping[str, np.ndarray], inputs: Mapping[str, np.ndarray]) -> str:
    """A sentence about an operand that differs from its drawn tensor, or an empty text.

    Operands that are drawn as bytes are left to `packed`.
    """
    for operand in _operands(case, drawn, inputs):
        found = wrong(operand)
        if found:
            return f"{operand.name} is not the tensor that was drawn: {found}"
    return ""


def wrong(operand: Operand) -> str:
    """How a quantized tensor differs from its drawn tensor by more than quantization can explain, or an empty text."""
    x = operand.x
    valid = (x.shape[0], x.shape[1] // 16)
    place = magnitudes.places(operand.scale_inv.shape, valid, operand.swizzled)
    stored = operand.scale_inv.reshape(-1)
    if np.count_nonzero(stored) != np.count_nonzero(stored[place]):
        return "a scale byte of the padding is not 0"
    amax = _amax(operand) if operand.two_levels else np.float32([[6 * operand.e4m3_max]])
    if operand.amax is not None and not np.array_equal(operand.amax.reshape(-1), amax.reshape(-1)):
        return f"the amaxes are {operand.amax.reshape(-1)[:3]}..., the largest magnitudes {amax.reshape(-1)[:3]}..."
    lines = _some_lines(*x.shape)
    of_blocks = np.repeat(amax, 4, axis=1) if amax.shape[1] > 1 else amax
    unit = np.broadcast_to(of_blocks.astype(np.float64), (len(x), valid[1]))[lines] / (6 * operand.e4m3_max)
    some = operand._replace(x=x[lines], data=None if operand.data is None else operand.data[lines])
    decode = magnitudes.e4m3 if operand.scale_format == "e4m3" else magnitudes.ue5m3
    return _by_block(some, decode(stored[place[lines]]), unit)


def _some_lines(lines: int, length: int) -> np.ndarray | slice:
    if lines * length <= _MOST:
        return slice(None)
    tiles = lines // 16  # lines behind the last whole tile are included
    chosen = np.arange(0, tiles, magnitudes.step(tiles, max(_FEWEST_TILES, _MOST // (16 * length))))
    return np.unique(
        np.concatenate([(chosen[:, None] * 16 + np.arange(16)).reshape(-1), np.arange(lines - lines % 16, lines)])
    )


def _by_block(operand: Operand, scale: np.ndarray, unit: np.ndarray) -> str:
    """Compare the lines of an operand.

    scale: (lines, blocks); unit: (lines, blocks), the value of code 1 under a scale of 1
    """
    x = operand.x
    blocks = x.astype(np.float64).reshape(*scale.shape, 16)
    half_step = _STEPS[operand.scale_format]
    usable = np.isfinite(unit) & (unit * 6 * operand.e4m3_max >= _LEAST) & ~np.isinf(blocks).any(axis=2)
    largest = np.fmax.reduce(np.abs(blocks), axis=2, initial=0)
    if operand.square:
        largest = np.repeat(largest.reshape(len(largest) // 16, 16, largest.shape[1]).max(axis=1), 16, axis=0)
    if not operand.two_levels:
        usable &= largest <= 6 * operand.e4m3_max  # beyond, the scale saturates
    reach, step = 6 * scale * unit, 6 * half_step * unit
    low, high = (
        largest * (1 - 1 / 16) - step,
        largest * (17 / 16) * (1.5 if operand.two_scales or operand.e4m3_max in (256, 288, 320) else 1) + 1.5 * step,
    )
    with np.errstate(invalid="ignore"):
        if (usable & ((reach * _SLACK < low) | (reach > high * _SLACK))).any():
            return "the scale of a block does not fit its largest magnitude"
    if operand.data is None:
        return ""
    values = magnitudes.e2m1(operand.data).reshape(blocks.shape)
    present = usable[..., None] & ~np.isnan(blocks)
    if (present & (np.signbit(values) != np.signbit(blocks))).any():
        return "a code has another sign"
    off = np.abs(values * (scale * unit)[..., None] - blocks)
    most = np.maximum(scale, 6 * half_step) * unit * _SLACK * (2 if operand.stochastic else 1)
    if (present & (off > most[..., None])).any():
        return "a value is farther off than rounding it can be"
    if (np.isnan(blocks) & (values != 6)).any():
        return "the code of a NaN is not 7"
    return ""


def _amax(operand: Operand) -> np.ndarray:
    """The amaxes of x, (1, 1), (lines, 1) or (lines, windows), in the granularity of the operand's own."""
    x = operand.x
    if operand.amax is None or operand.amax.size == 1:
        return magnitudes.amax(x).reshape(1, 1)
    if operand.amax.ndim == 2:
        return magnitudes.amax(x.reshape(-1, 64), 1).reshape(len(x), x.shape[1] // 64)
    lines = magnitudes.amax(x) if operand.one_amax else magnitudes.amax(x, 1)
    return np.broadcast_to(lines.reshape(-1, 1), (len(x), 1))


def _operands(case: Case, drawn: Mapping[str, np.ndarray], inputs: Mapping[str, np.ndarray]) -> Iterator[Operand]:
    if is_pipeline(case):
        yield from _of_stages(case, drawn, inputs)
    elif case.is_gemm and "a_data" in inputs and case.input not in ("exact_sum", "wide_sum"):
        for name in "ab":
            yield from _of_product(case, name, drawn[name], inputs)
    elif (
        {"scale_inv", "swizzled_scale_inv"} & set(inputs)
        and "input" not in inputs
        and "x" in drawn
        and case.input != "exhaustive"
    ):
        columnwise = "columnwise" in (case.flags.get("direction"), case.flags.get("outputs"))
        unswizzles = "swizzled_scale_inv" in inputs
        if case.is_group:
            yield from _of_group(case, drawn["x"], inputs)
            return
        yield Operand(
            "the operand",
            np.ascontiguousarray(drawn["x"].T if columnwise else drawn["x"], np.float32),
            inputs.get("data"),
            inputs["swizzled_scale_inv" if unswizzles else "scale_inv"],
            inputs.get("amax"),
            unswizzles or case.flags.get("scale_layout") == "swizzled",
            case.scale_max,
            case.flags.get("block") == "block_16x16",
            scale_format=case.scale_format,
            two_levels=case.two_levels,
        )


def _of_group(case: Case, x: np.ndarray, inputs: Mapping[str, np.ndarray]) -> Iterator[Operand]:
    """The operands of a group: every non-empty tensor, each quantized alone."""
    name = "swizzled_scale_inv" if "swizzled_scale_inv" in inputs else "scale_inv"
    element = byte = 0
    for number, (rows, cols) in enumerate(case.problem.tensors):
        own = x[element : element + rows * cols].reshape(rows, cols)
        lines = np.ascontiguousarray(own.T if case.flags.direction == "columnwise" else own, np.float32)
        padded = -(-lines.shape[0] // 128) * 128, -(-lines.shape[1] // 64) * 4
        scales = inputs[name][byte : byte + padded[0] * padded[1]].reshape(padded)
        element, byte = element + rows * cols, byte + scales.size
        if own.size:
            yield Operand(f"the operand of tensor {number}", lines, None, scales, None, name != "scale_inv")


def _of_product(case: Case, name: str, x: np.ndarray, inputs: Mapping[str, np.ndarray]) -> Iterator[Operand]:
    """Operand `a` or `b` of a product, or of every non-empty product of a group."""
    flags = case.flags
    columnwise = name in COLUMNWISE[str(flags.layout)]
    groups = [astuple(part.problem) for part in case.parts]
    x = x.reshape(-1)
    two_levels = bool(flags.get(f"{name}_global_scale", True))
    data, scales = (inputs[f"{name}_{part}"] for part in ("data", "scale_inv"))
    amaxes = inputs[f"{name}_amax"] if two_levels else np.ones(len(groups), np.float32)
    data, scales = data.reshape(-1), scales.reshape(-1)
    one_amax = amaxes.size == len(groups) and (flags.epilogue == "per_tensor" or flags.b_granularity == "tensor")
    start = scale_start = amax_start = first = 0
    for group, (m, k, n) in enumerate(groups):
        lines = m if name == "a" else n
        own, first = x[first : first + lines * k], first + lines * k
        own = own.reshape((k, lines) if columnwise else (lines, k))
        codes, padded = lines * k // 2, (-(-lines // 128) * 128, -(-k // 64) * 4)
        bytes_of_scales = padded[0] * padded[1]
        amax = amaxes[group : group + 1] if one_amax else amaxes[amax_start : amax_start + lines]
        if lines and k:
            yield Operand(
                f"operand {name.upper()}" + (f" of group {group}" if case.is_group else ""),
                np.ascontiguousarray(own.T) if columnwise else own,
                data[start : start + codes].reshape(lines, -1),
                scales[scale_start : scale_start + bytes_of_scales].reshape(padded),
                amax if two_levels else None,
                flags[f"{name}_scale_layout"] == "swizzled",
                case.scale_max if case.scale_format == "ue5m3" else int(flags[f"{name}_e4m3_max"]),
                scale_format=case.scale_format,
                two_levels=two_levels,
            )
        start, scale_start, amax_start = start + codes, scale_start + bytes_of_scales, amax_start + lines


def _of_stages(case: Case, drawn: Mapping[str, np.ndarray], inputs: Mapping[str, np.ndarray]) -> Iterator[Operand]:
    """The tensors that a pipeline's oracle quantizes beforehand; a group's tensors separately."""
    for stage in stages(case):
        for side in SIDES if stage.given else ():
            keys = [stage.key(f"{side}_{part}") for part in ("data", "scale_inv", "amax")]
            if keys[0] not in inputs:
                continue
            name = keys[0].rpartition("_")[0]
            fields = oracle_of(stage.case.recipe).outputs(stage.case)
            own = [fields[key.rpartition(".")[2]] for key in keys]
            arrays, x = [inputs[key] for key in keys], drawn[stage.name]
            if not stage.case.is_group:
                yield _made_by(stage.case, name, side, x, arrays, own[1].swizzled)
                continue
            element = 0
            for g, part in enumerate(stage.case.parts):
                of_part = x[element : element + part.elements].reshape(part.rows, part.cols)
                element += part.elements
                if part.elements:
                    cut = [field.part(array, g) for field, array in zip(own, arrays, strict=True)]
                    yield _made_by(part, f"{name} of tensor {g}", side, of_part, cut, own[1].parts[g].swizzled)


def _made_by(case: Case, name: str, side: str, x: np.ndarray, arrays: Sequence[np.ndarray], swizzled: bool) -> Operand:
    """One copy of a tensor that a quantizer made. arrays: its codes, scales and amaxes"""
    flags = case.flags
    if side == "columnwise":
        x = magnitudes.rotated(x, int(flags.sign_mask)) if flags.rht else np.ascontiguousarray(x.T)
        if flags.rht and case.recipe == "per_tensor":
            x = magnitudes.to_bf16(x)
    return Operand(
        name,
        x,
        *arrays,
        swizzled=swizzled,
        e4m3_max=case.scale_max,
        square=bool(flags.get("weight_2d")) or flags.get("block") == "block_16x16",
        stochastic=flags.rounding == "sr",
        one_amax=bool(flags.get("weight_2d")),
        two_scales=case.recipe == "four_over_six",
    )
