"""The cases that subjects are asked: those of the vectors, and the flags that others have on every input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from harness.contract.case import Case
from harness.errors import ContractError, UsageError
from harness.suite.suite import Suite
from harness.vectors.selection import candidates, choose, plain

# What public quantizers offer, beside the defaults.
OFFERED = {
    "per_tensor": (
        "outputs=rowwise,stage=encode", "block=block_16x16", "rounding=sr", "scale_layout=swizzled", "dtype=fp32",
    ),
    "four_over_six": ("outputs=rowwise", "error=mse", "block=block_16x16"),
}  # fmt: skip

# What kernels of frameworks take, which are given the amaxes and read whole tiles of 32x32.
GIVEN_AMAXES = {
    "per_tensor": ("stage=encode", "block=block_16x16,stage=encode", "fast_math=true,stage=encode"),
    "row_scaled": ("stage=encode",),
}
TILED = "64x96"


def cases(suites: Iterable[Suite]) -> list[Case]:
    """Without those of 0 elements, small ones first within a recipe."""
    found: dict[str, Case] = {}
    for suite in suites:
        offered = (*_offered(suite, OFFERED), *_offered(suite, GIVEN_AMAXES, TILED))
        chosen = [*choose(suite), *offered]
        found |= {case.id: case for case in sorted(chosen, key=lambda case: (case.elements, case.id)) if case.elements}
    return list(found.values())


def _offered(suite: Suite, offered: Mapping[str, Sequence[str]], shape: str = "") -> list[Case]:
    """The variants that a subject offers, on every input of the plain recipe. shape: in place of the plain one's"""
    made = []
    for variant in offered.get(suite.recipe, ()):
        for case in plain(suite, candidates(suite)):
            with suppress(UsageError, ContractError):  # an input that these flags do not take, or that is too small
                made.append(suite.find(f"{suite.recipe}/{variant}/{shape or case.shape}/{case.input}/eager"))
    return made
