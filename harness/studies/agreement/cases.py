"""The cases that subjects are asked: those of the vectors, and the flags that others have on every input."""

from __future__ import annotations

from collections.abc import Iterable
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


def cases(suites: Iterable[Suite]) -> list[Case]:
    """Without those of 0 elements, small ones first within a recipe."""
    found: dict[str, Case] = {}
    for suite in suites:
        chosen = [*choose(suite), *_offered(suite)]
        found |= {case.id: case for case in sorted(chosen, key=lambda case: (case.elements, case.id)) if case.elements}
    return list(found.values())


def _offered(suite: Suite) -> list[Case]:
    made = []
    for variant in OFFERED.get(suite.recipe, ()):
        for case in plain(suite, candidates(suite)):
            with suppress(UsageError, ContractError):  # an input that these flags do not take
                made.append(suite.find(f"{suite.recipe}/{variant}/{case.shape}/{case.input}/eager"))
    return made
