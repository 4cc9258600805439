"""A bound on the error of a product of quantized tensors, computed without quantizing anything.

NUMERICS 10.8 derives it. It reads the tensors and the flags of the stages, and shares no code with the oracles, so that
a mistake of theirs shows as an error beyond the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from harness.contract.case import Case
from harness.errors import UsageError
from harness.oracles.by_recipe import oracle_of
from harness.suite.stages import Stage, stages

BLOCK, WINDOW = 16, 64
LARGEST_CODE = 6.0
LARGEST_SCALE = 448.0
SMALLEST_EXPONENT, MANTISSA_BITS = -6, 3  # e4m3's
BF16_ROUNDING = 2.0**-8
SLAB = 1 << 21  # elements that are processed at a time


def relative_bounds(case: Case, drawn: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The bound of NUMERICS 10.8 for each product of a pipeline, relative to the L2 norm of the exact product.

    drawn: the tensors that the stages quantize, by the tensors' own names; (rows, cols), finite
    Raises UsageError for a tensor that is not finite, because its products have no norm.
    """
    for name, x in drawn.items():
        if not np.isfinite(x.astype(np.float32)).all():
            raise UsageError(f"{name} has elements that are not finite, so its products have no norm to lose a part of")
    made = {stage.name: stage for stage in stages(case)}
    drawn = of_stages(case, drawn)
    return {stage.name: _relative(stage, made, drawn) for stage in made.values() if stage.multiplies}


def of_stages(case: Case, drawn: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensor of every stage that quantizes one, by stage name; two stages may quantize the same tensor."""
    return {stage.name: drawn[stage.reads["input"]] for stage in stages(case) if "input" in stage.reads}


def exact_operands(stage: Stage, drawn: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """A (M, K) and B (N, K) of a product before quantization, float64. drawn: from `of_stages`"""
    return tuple(_lines(drawn, *_copy(stage, operand)) for operand in "ab")


def _relative(stage: Stage, made: Mapping[str, Stage], drawn: Mapping[str, np.ndarray]) -> float:
    a, b = exact_operands(stage, drawn)
    norm = float(np.linalg.norm(a @ b.T))
    (error_a, square_a), (error_b, square_b) = (
        _sums(made[name].case, side, lines)
        for (name, side), lines in zip((_copy(stage, operand) for operand in "ab"), (a, b), strict=True)
    )
    error = float(error_a @ square_b + square_a @ error_b + error_a @ error_b)
    return math.hypot(math.sqrt(error) / norm, 2 * BF16_ROUNDING) if norm else math.inf


def _copy(stage: Stage, operand: str) -> tuple[str, str]:
    """The stage that quantized an operand, and the copy that is read, `rowwise` or `columnwise`."""
    name, _, field = stage.reads[f"{operand}_data"].partition(".")
    return name, field.partition("_")[0]


def _lines(drawn: Mapping[str, np.ndarray], name: str, side: str) -> np.ndarray:
    x = drawn[name].astype(np.float64)
    return np.ascontiguousarray(x.T) if side == "columnwise" else x


def _sums(case: Case, side: str, lines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each of the K elements of a line, the sums over all lines of the mean square errors and of the squares.

    Rotated lines are summed as rotated, because both operands of a product are.
    """
    error = np.zeros(lines.shape[1])
    square = np.zeros(lines.shape[1])
    amaxes = _amaxes(case, side, lines)
    for start, part in _slabs(case, side, lines):
        error += _mean_squares(case, part, amaxes(start, part), _rotated(case, side)).sum(axis=0)
        square += (part * part).sum(axis=0)
    return error, square


def _slabs(case: Case, side: str, lines: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield slabs of whole 16x16 blocks, as the quantizer sees them, each with its first line."""
    height = max(BLOCK, SLAB // lines.shape[1] // BLOCK * BLOCK)
    for start in range(0, len(lines), height):
        part = lines[start : start + height]
        yield start, _rotate(part, int(case.flags.sign_mask)) if _rotated(case, side) else part


def _rotated(case: Case, side: str) -> bool:
    return side == "columnwise" and bool(case.flags.get("rht", False))


def _rotate(lines: np.ndarray, sign_mask: int) -> np.ndarray:
    """Multiply each block by signs, then by Sylvester's orthonormal Hadamard matrix of order 16."""
    matrix = np.ones((1, 1))
    for _ in range(4):
        matrix = np.block([[matrix, matrix], [matrix, -matrix]]) / math.sqrt(2)
    signs = np.array([-1.0 if sign_mask >> i & 1 else 1.0 for i in range(BLOCK)])
    return ((lines.reshape(-1, BLOCK) * signs) @ matrix).reshape(lines.shape)


def _amaxes(case: Case, side: str, lines: np.ndarray) -> Callable[[int, np.ndarray], np.ndarray]:
    """A function from a slab to the amax that governs each of its blocks, broadcastable to (lines, blocks)."""
    dimensions = oracle_of(case.recipe).outputs(case)[f"{side}_amax"].shape
    if dimensions == (1,) or _square(case):
        whole = max(float(np.abs(part).max()) for _, part in _slabs(case, side, lines))
        return lambda start, part: np.full((1, 1), whole)
    if len(dimensions) == 1:
        return lambda start, part: np.abs(part).max(axis=1, keepdims=True)
    return lambda start, part: np.repeat(_largest(part, WINDOW), WINDOW // BLOCK, axis=1)


def _square(case: Case) -> bool:
    return case.flags.get("block") == "block_16x16" or bool(case.flags.get("weight_2d", False))


def _largest(lines: np.ndarray, length: int) -> np.ndarray:
    return np.abs(lines).reshape(len(lines), -1, length).max(axis=2)


def _mean_squares(case: Case, lines: np.ndarray, amaxes: np.ndarray, rotated: bool) -> np.ndarray:
    """The largest mean square error of each element, steps 1 to 3 of 10.8."""
    blocks = _largest(lines, BLOCK)
    if _square(case):
        blocks = np.repeat(blocks.reshape(-1, BLOCK, blocks.shape[1]).max(axis=1), BLOCK, axis=0)
    to_scale = LARGEST_CODE * float(case.flags.get("e4m3_max", LARGEST_SCALE))
    enc = np.divide(to_scale, amaxes, out=np.ones_like(amaxes), where=amaxes > 0)
    scale = blocks / LARGEST_CODE * enc
    exponent = np.floor(np.log2(scale, out=np.full_like(scale, -np.inf), where=scale > 0))
    half = np.exp2(np.maximum(exponent, SMALLEST_EXPONENT) - MANTISSA_BITS - 1)
    low, high = (
        np.repeat(end / enc, BLOCK, axis=1)
        for end in (np.maximum(scale - half, 0), np.minimum(scale + half, LARGEST_SCALE))
    )
    size = np.abs(lines)
    code = np.divide(size, low, out=np.where(size > 0, LARGEST_CODE, 0.0), where=low > 0)
    step = np.where(code < 2, 0.5, np.where(code < 4, 1.0, 2.0)) * high
    little = size * step if case.flags.get("rounding") == "sr" else size * size
    beyond = np.maximum(size - LARGEST_CODE * low, 0)
    found = np.maximum(np.minimum(step * step / 4, little), beyond * beyond)
    return found + (BF16_ROUNDING * lines) ** 2 if rotated else found
