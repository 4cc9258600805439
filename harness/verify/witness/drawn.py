"""Check each drawn tensor of a case against the promise of its input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from harness.contract.case import Case
from harness.inputs import tensor_file
from harness.inputs.promises.registry import SAME_FOR_EVERY_SEED, broken
from harness.suite.stages import is_pipeline, stages
from harness.verify.witness.operands import COLUMNWISE

_BYTES = ("exact_sum", "wide_sum")  # inputs of products whose operands are drawn as bytes, so that A and B are not read
_SEEN = 1 << 16  # at most this many elements are compared with other tensors'


class Drawn(NamedTuple):
    """One tensor. input: its distribution or file; x: (rows, cols)"""

    name: str
    input: str
    x: np.ndarray
    dtype: str


def objection(case: Case, drawn: Mapping[str, np.ndarray], again: Mapping[str, np.ndarray] | None) -> str:
    """A sentence about wrong tensors of a case, or an empty text. again: the same drawn with another seed, or None"""
    own = list(tensors(case, drawn))
    for one in own:
        found = broken(one.input, one.x, one.dtype)
        if found:
            return f"{one.name}: {found}"
    seeded = [one for one in own if _seeded(one)]
    for number, one in enumerate(seeded):
        for other in seeded[:number]:
            if _same(one, other):
                return f"{other.name} and {one.name} are the same; each tensor is drawn with a seed of its own"
    for one, other in zip(own, tensors(case, again), strict=True) if again else ():
        if _seeded(one) and _same(one, other):
            return f"{one.name} is the same for another seed; the input {one.input} depends on the seed"
    return ""


def tensors(case: Case, drawn: Mapping[str, np.ndarray]) -> Iterator[Drawn]:
    """Every tensor that kernels read as drawn or that is quantized for them; the tensors of a group separately."""
    if is_pipeline(case):
        for stage in stages(case):
            if stage.draws:
                for label, part in _parts(stage.case, stage.name, drawn[stage.name]):
                    yield Drawn(label, stage.case.input, part, str(stage.case.flags.dtype))
        return
    for name, x in drawn.items():
        if case.is_gemm:
            yield from _of_product(case, name, x)
        else:
            dtype = str(case.flags.get("dtype", "bf16"))
            for label, part in _parts(case, name, x):
                yield Drawn(label, case.input, part, dtype)


def _of_product(case: Case, name: str, x: np.ndarray) -> Iterator[Drawn]:
    if name in ("a", "b"):
        if case.input not in _BYTES:
            for label, part in _parts(case, name, x):
                drawn_as = tensor_file.of_operand(case.input, "ab".index(name))
                yield Drawn(label, drawn_as, part, str(case.flags[f"{name}_dtype"]))
        return
    plain = "normal" if case.input in _BYTES or case.input.startswith(tensor_file.PREFIX) else case.input
    for label, part in _parts(case, name, x):
        yield Drawn(label, plain, part, str(case.flags.dtype))


def _parts(case: Case, name: str, x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Every non-empty tensor; an empty one keeps any promise."""
    if not case.is_group:
        if x.size:
            yield name, x.reshape(1, -1) if x.ndim == 1 else x
        return
    shapes = case.problem.tensors
    if case.is_gemm:
        n = case.problem.n
        shapes = [{"a": (m, k), "b": (n, k), "c": (m, n), "bias": (1, n)}[name] for m, k in shapes]
        if name in COLUMNWISE[str(case.flags.layout)]:
            shapes = [each[::-1] for each in shapes]
    flat, start = x.reshape(-1), 0
    for number, (rows, cols) in enumerate(shapes):
        if rows * cols:
            yield f"{name} of group {number}", flat[start : start + rows * cols].reshape(rows, cols)
        start += rows * cols


def _seeded(one: Drawn) -> bool:
    fixed = one.input in SAME_FOR_EVERY_SEED or one.input.startswith(tensor_file.PREFIX)
    return not fixed and bool(one.x.reshape(-1)[:_SEEN].any())


def _same(one: Drawn, other: Drawn) -> bool:
    return (one.x.dtype, one.x.shape) == (other.x.dtype, other.x.shape) and (
        one.x.reshape(-1)[:_SEEN].tobytes() == other.x.reshape(-1)[:_SEEN].tobytes()
    )
