"""The high-precision tensors of a GEMM, D (M, N) = A (M, K) * B (N, K)^T: their extents, and how they are drawn.

A grouped GEMM has its groups' operands one below the other, or flat, one behind the other, where N differs. An operand
that the flag `layout` reads through its columnwise copy was quantized the other way round, as (K, M) or (K, N).
"""

from __future__ import annotations

import numpy as np

from harness.contract.case import Case
from harness.errors import ContractError
from harness.inputs import tensor_file
from harness.inputs.drawn_once import tensor
from harness.oracles.gemm_operands import DRAWN_AS_BYTES

COLUMNWISE = {"tn": "", "nn": "b", "nt": "ab"}  # layout → the operands that are read through their columnwise copy
_PLAIN = "normal"  # the input for C and the bias if the operands are drawn as bytes or read from a file
_ORDER = ("a", "b", "c", "bias")


def input_extents(case: Case) -> tuple[tuple[int, int], ...]:
    """(rows, cols) of every tensor that is drawn from the input; also for cases that are no GEMM."""
    if not case.is_gemm:
        return case.problem.grid_extents
    return tuple(extents for group in case.parts for extents in _operand_extents(group).values())


def _operand_extents(case: Case) -> dict[str, tuple[int, int]]:
    """The (rows, cols) that A and B are quantized as."""
    transposed = COLUMNWISE[str(case.flags.get("layout", "tn"))]
    lines = {"a": case.rows, "b": case.problem.n}
    return {name: (case.cols, m) if name in transposed else (m, case.cols) for name, m in lines.items()}


def shape_of_tensors(layout: str, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int, int]:
    """(M, K, N) of the product of two tensors as they are quantized. Raises ContractError if they have no K in common.

    a, b: (rows, cols); an operand that the layout reads through its columnwise copy has K rows
    """
    transposed = COLUMNWISE[layout]
    (m, k), (n, other) = (extents[::-1] if name in transposed else extents for name, extents in (("a", a), ("b", b)))
    if k != other:
        sides = [f"{'rows' if name in transposed else 'cols'} of {name.upper()}" for name in "ab"]
        raise ContractError(
            f"with layout={layout} the {sides[0]} and the {sides[1]} are K, and they are {k} and {other}"
        )
    return m, k, n


def draw(case: Case, operands: bool = True) -> dict[str, np.ndarray]:
    """`a`, `b` in the types they are quantized from and, where the flags ask for them, `c` (M, N) and `bias` (N,) in
    the output's type.

    operands: whether `a` and `b` are drawn, which other stages write in a pipeline
    """
    if not case.is_group:
        return _draw(case, operands)
    groups = [_draw(part, operands) for part in case.parts]
    flat = case.problem.n_dims is not None
    return {
        name: np.concatenate([group[name].reshape(-1) if flat else group[name] for group in groups])
        for name in groups[0]
    }


def _draw(case: Case, operands: bool) -> dict[str, np.ndarray]:
    flags = case.flags
    wanted = {
        name: (tensor_file.of_operand(case.input, number), *extents, str(flags.get(f"{name}_dtype", "bf16")))
        for number, (name, extents) in enumerate(_operand_extents(case).items())
        if operands
    }
    plain = _PLAIN if case.input in DRAWN_AS_BYTES or case.input.startswith(tensor_file.PREFIX) else case.input
    if flags.get("beta", 0) or flags.get("accumulate", False):
        wanted["c"] = (plain, case.rows, case.problem.n, str(flags.dtype))
    if flags.get("bias", False):
        wanted["bias"] = (plain, 1, case.problem.n, str(flags.dtype))
    made = {}
    for name, (input_name, rows, cols, dtype) in wanted.items():
        made[name] = tensor(input_name, rows, cols, dtype, case.tensor_seed + _ORDER.index(name))
    return {name: array.reshape(-1) if name == "bias" else array for name, array in made.items()}
