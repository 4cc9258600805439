"""The smallest cases of every suite, for tests of what all recipes and pipelines must go through."""

from __future__ import annotations

from harness.contract.case import Case
from harness.files import SUITES
from harness.suite.suite import suite_of


def smallest() -> list[Case]:
    """The smallest eager smoke cases of each suite: one with a capacity and one without, where there are such cases."""
    found: dict[tuple[str, bool], Case] = {}
    for recipe in sorted(path.stem for path in SUITES.glob("*.yaml")):
        for case in suite_of(recipe).cases("smoke"):
            kind = recipe, case.problem.capacity is not None
            if case.mode == "eager" and (kind not in found or case.work < found[kind].work):
                found[kind] = case
    return list(found.values())
