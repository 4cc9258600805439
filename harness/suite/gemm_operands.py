"""The high-precision tensors of a GEMM, D (M, N) = A (M, K) * B (N, K)^T: which extents they have, and their draw.

Those of a grouped GEMM are its groups' one below the other.

The flag `layout` says through which copy an operand is read. One that is read through its columnwise copy was
quantized the other way round, as (K, M) or (K, N).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.contract.case import Case

if TYPE_CHECKING:
    import numpy as np

COLUMNWISE = {"tn": "", "nn": "b", "nt": "ab"}  # layout → the operands that are read through their columnwise copy
PLAIN = "normal"  # what C and the bias are where only operands can be the input: drawn as bytes, or of a file
_ORDER = ("a", "b", "c", "bias")


def quantized(case: Case) -> dict[str, tuple[int, int]]:
    """The (rows, cols) that A and B are quantized as."""
    transposed = COLUMNWISE[str(case.flags.get("layout", "tn"))]
    lines = {"a": case.rows, "b": case.problem.n}
    return {name: (case.cols, m) if name in transposed else (m, case.cols) for name, m in lines.items()}


def drawn(case: Case) -> tuple[tuple[int, int], ...]:
    """(rows, cols) of every tensor that is drawn from the input of a case of any kind."""
    if not case.is_gemm:
        return case.problem.grid_extents
    return tuple(extents for group in case.parts for extents in quantized(group).values())


def draw(case: Case) -> dict[str, np.ndarray]:
    """`a`, `b` in bf16 and, where the flags ask for them, `c` (M, N) and `bias` (N,) in the output's type.

    Each has a seed of its own, the case's, or its group's, plus its place in this list.
    """
    if not case.is_group:
        return _draw(case)
    import numpy as np

    groups = [_draw(part) for part in case.parts]
    return {name: np.concatenate([group[name] for group in groups]) for name in groups[0]}


def _draw(case: Case) -> dict[str, np.ndarray]:
    # Imported here because suites are read without NumPy.
    import numpy as np

    from harness.inputs import tensor_file
    from harness.inputs.draw import make
    from harness.inputs.dtypes import DTYPES
    from harness.oracles.gemm_packed import INPUTS

    def filled(number: int, name: str, rows: int, cols: int, dtype: str) -> np.ndarray:
        # Of an empty group, A has no rows, and no distribution makes such a thing.
        return make(name, rows, cols, dtype, case.seed + number) if rows else np.empty((0, cols), DTYPES[dtype])

    flags = case.flags
    made = {name: (case.input, *shape, "bf16") for name, shape in quantized(case).items()}
    plain = PLAIN if case.input in INPUTS or case.input.startswith(tensor_file.PREFIX) else case.input
    if flags.get("beta", 0) or flags.get("accumulate", False):
        made["c"] = (plain, case.rows, case.problem.n, str(flags.dtype))
    if flags.get("bias", False):
        made["bias"] = (plain, 1, case.problem.n, str(flags.dtype))
    arrays = {name: filled(_ORDER.index(name), *what) for name, what in made.items()}
    return {name: array.reshape(-1) if name == "bias" else array for name, array in arrays.items()}
