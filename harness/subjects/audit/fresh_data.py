"""Data of the same kind as a case's own that no oracle has seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from harness.contract.case import Case
from harness.verify.expected import high_precision, make_inputs, oracle_of

DISTANCE = 0x9E3779B9  # elements; far, and a multiple of no block size


def moved_along(case: Case, distance: int = DISTANCE) -> dict[str, np.ndarray]:
    """The kernels' inputs if the elements of every tensor of the case were rotated by a distance.

    Drawing new ones takes a minute for the largest case. It is done where rotating changes nothing, as for a GEMM whose
    operands are drawn as bytes. An input that is the same for every seed stays the same.
    """
    own = make_inputs(case)
    tensors = {name: np.roll(x.reshape(-1), distance).reshape(x.shape) for name, x in high_precision(case).items()}
    moved = oracle_of(case.recipe).inputs(case, **tensors)
    if any(moved[name].tobytes() != array.tobytes() for name, array in own.items()):
        return moved
    other = replace(case, seed_of=f"{case.data_id}/{distance}")
    return oracle_of(case.recipe).inputs(other, **high_precision(other))
