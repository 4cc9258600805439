"""The cases for subjects: the vectors' cases, and the flags that public implementations offer on every input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from harness.contract.case import Case
from harness.errors import ContractError, UsageError
from harness.suite.suite import Suite
from harness.vectors.selection import candidates, choose, plain

# Flags that public quantizers offer besides the defaults.
OFFERED = {
    "per_tensor": (
        "outputs=rowwise,stage=encode", "block=block_16x16", "rounding=sr", "scale_layout=swizzled", "dtype=fp32",
    ),
    "four_over_six": ("outputs=rowwise", "error=mse", "block=block_16x16"),
}  # fmt: skip

# Flags for kernels of frameworks, which are given the amaxes and read whole tiles of 32x32.
GIVEN_AMAXES = {
    "per_tensor": ("stage=encode", "block=block_16x16,stage=encode", "fast_math=true,stage=encode"),
    "row_scaled": ("stage=encode",),
}
TILED = "64x96"


def cases(suites: Iterable[Suite]) -> list[Case]:
    """All cases with elements, small ones first within a recipe."""
    found: dict[str, Case] = {}
    for suite in suites:
        offered = (*_offered(suite, OFFERED), *_offered(suite, GIVEN_AMAXES, TILED))
        chosen = [*choose(suite), *offered]
        found |= {case.id: case for case in sorted(chosen, key=lambda case: (case.elements, case.id)) if case.elements}
    return list(found.values())


def _offered(suite: Suite, offered: Mapping[str, Sequence[str]], shape: str = "") -> list[Case]:
    """The variants that subjects offer, on every input of the plain recipe. shape: replaces the plain case's"""
    made = []
    for variant in offered.get(suite.recipe, ()):
        for case in plain(suite, candidates(suite)):
            with suppress(UsageError, ContractError):  # these flags do not take the input, or it is too small
                made.append(suite.find(f"{suite.recipe}/{variant}/{shape or case.shape}/{case.input}/eager"))
    return made
