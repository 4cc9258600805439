"""The smallest input at which a subject still writes bytes that nothing it declares explains: one block and an amax."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from harness.contract.case import Case
from harness.contract.problem import Dense
from harness.oracles import layout
from harness.subjects.audit.differing import Arrays, differing
from harness.verify.expected import Expected, expect_on, oracle_of

MOST = 64  # at most this many blocks of a case are tried
SHAPE = (32, 16)

# A subject's and the expected bytes for a case and inputs; None if they are equal or explained.
Unexplained = Callable[[Case, Expected], str | None]


def smallest(case: Case, expected: Expected, written: Arrays, unexplained: Unexplained) -> str:
    """A sentence with 16 values and an amax, or an empty one if no block of the case is wrong by itself."""
    for direction, values, amax in _blocks(case, expected, written):
        x = np.zeros(SHAPE, expected.inputs["input"].dtype)
        x[0], x[-1, -1] = values, amax
        x = np.ascontiguousarray(x.T) if direction.transposed else x
        small = replace(case, problem=Dense(*x.shape), seed_of=case.seed_name)
        found = unexplained(small, expect_on(small, oracle_of(case.recipe).inputs(small, x=x)))
        if found:
            shown = ", ".join(f"{value:.9g}" for value in values)
            return f"a block of {shown} beside an amax of {amax:.9g}: {found}"
    return ""


def _blocks(case: Case, expected: Expected, written: Arrays) -> Iterator[tuple[layout.Direction, np.ndarray, float]]:
    """The differing blocks: direction, 16 values, and the amax of their tensor."""
    for direction in layout.DIRECTIONS.values():
        name = direction.name
        if f"{name}_data" not in expected.fields or case.flags.get("rht"):
            continue
        amax = {**expected.values, **expected.inputs}[f"{name}_amax"]
        field, x = expected.fields[f"{name}_scale_inv"], expected.inputs["input"]
        blocks = differing(case, direction, field, x, amax, expected.values, written)
        for values, granule in list(zip(blocks.x, blocks.amax, strict=True))[:MOST]:
            yield direction, values, float(granule)
