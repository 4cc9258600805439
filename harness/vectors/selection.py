"""The cases of a set of vectors: the plain recipe on every input, every value at least once, then pairs as they fit.

Greedy covers by small cases of the recipe's suite: the next case is the one that adds the most per byte.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import suppress

from harness.contract.case import Case
from harness.errors import ContractError, UsageError
from harness.expected.expected import fields_of, make_inputs
from harness.suite.suite import Suite

ELEMENTS = 1 << 17  # elements of the largest case that may be chosen
ENOUGH = 1 << 16  # the same of one whose flags smaller ones have, too: as many as there are values of 16 bits
SMALL = 1 << 13  # the same of a set of what is provisional
BYTES = 500_000  # bytes per recipe; beyond them no case is added for pairs
PLAIN = 3000  # elements, at least, of the shape on which every input is tried
OVERHEAD = 3000  # bytes of a case's words in the index and of its file's header
_SETS = ("smoke", "full")
_AT_ITS_SHAPES = "exhaustive"  # this input has a place for every value, so a small tensor has only some of them
_ITEMSIZES = {"bf16": 2, "fp16": 2, "fp32": 4}
_BLOCK = 16
_SHAPE, _INPUT = "the shape", "the input"

Feature = tuple[object, ...]


def choose(suite: Suite, provisional: bool = False) -> list[Case]:
    """The cases of a recipe, small ones first. None of a pipeline: its stages are other recipes'.

    provisional: only those of flags that NUMERICS 1.9 calls so, which the others are without
    """
    if suite.file.pipeline:
        return []
    small = [case for case in candidates(suite) if case.is_provisional == provisional]
    small = [case for case in small if case.elements <= SMALL] if provisional else small
    always = [] if provisional else plain(suite, small)
    known = {case.id for case in always}
    cases = [*always, *(case for case in small if case.id not in known)]
    costs = [cost(case) for case in cases]
    smoke = {case.shape for case in suite.cases("smoke")}
    alone = [{each for each in features(case) if each[0] != _SHAPE or each[1] in smoke} for case in cases]
    chosen = _cover(costs, alone, range(len(always)))
    chosen = _cover(costs, [pairs(case) for case in cases], chosen, BYTES)
    return sorted((cases[at] for at in chosen), key=lambda case: (case.elements, case.id))


def candidates(suite: Suite) -> list[Case]:
    """The eager cases of at most ENOUGH that write something, from the sets that verify.

    For values of flags that none of them has, those of at most ELEMENTS.
    """
    cases = [case for name in _SETS if name in suite.sets for case in suite.cases(name)]
    small = {case.id: case for case in cases if case.mode == "eager" and case.work <= ELEMENTS and _writes(case)}
    met = {item for case in small.values() if case.work <= ENOUGH for item in case.flags.items()}
    return [case for case in small.values() if case.work <= ENOUGH or not met >= set(case.flags.items())]


def _writes(case: Case) -> bool:
    """Whether there is a byte to compare: the tensors of a group may all be empty."""
    dense = case.elements and not case.is_group
    return bool(dense or any(field.nbytes for field in fields_of(case).values()))


def plain(suite: Suite, small: Sequence[Case]) -> list[Case]:
    """The recipe with default flags on each input, because most implementations offer these.

    The shape is the smallest in the smoke set with PLAIN elements and, of a product, more than one block along K, which
    may be of zeros alone; products and groups lack some inputs there.
    """
    shapes = sorted({case.elements: case for case in suite.cases("smoke") if _is_plain(suite, case)}.items())
    shape = next((case.shape for elements, case in shapes if elements >= PLAIN and _is_taken(suite, case)), None)
    found = []
    for name in dict.fromkeys(case.input for case in small if case.input != _AT_ITS_SHAPES) if shape else ():
        # A file's tensor may be smaller than the shape, and a product may refuse amaxes that overflow.
        with suppress(UsageError, ContractError):
            case = suite.find(f"{suite.recipe}/default/{shape}/{name}/eager")
            if case.is_gemm:
                make_inputs(case)
            found.append(case)
    return found


def _is_plain(suite: Suite, case: Case) -> bool:
    """Whether the shape of an eager case is one for the default flags."""
    kind = "shape_representation"
    long = not case.is_gemm or case.cols > _BLOCK
    alike = case.flags.get(kind) == suite.defaults.get(kind)
    return alike and long and case.mode == "eager" and case.problem.capacity is None


def _is_taken(suite: Suite, case: Case) -> bool:
    """Whether the default flags take the shape of a case, which may have others."""
    with suppress(UsageError, ContractError):
        return bool(fields_of(suite.find(f"{suite.recipe}/default/{case.shape}/{case.input}/eager")))
    return False


def features(case: Case) -> set[Feature]:
    """The features that a set must cover: each value of a flag, each input, each shape of the smoke set."""
    return {*case.flags.items(), (_INPUT, case.input), (_SHAPE, case.shape)}


def pairs(case: Case) -> set[Feature]:
    """The pairs of values of two flags, and of a flag's value and an input."""
    return set(itertools.combinations([*case.flags.items(), (_INPUT, case.input)], 2))


def cost(case: Case) -> int:
    """An estimate of the bytes that a case takes, without drawing its tensors."""
    itemsize = 1 if case.is_gemm else _ITEMSIZES[str(case.flags.get("dtype", "bf16"))]
    return OVERHEAD + case.elements * itemsize + sum(field.nbytes for field in fields_of(case).values())


def _cover(
    costs: Sequence[int], has: Sequence[set[Feature]], chosen: Sequence[int], most: int | None = None
) -> list[int]:
    """Extend `chosen`, indices into `costs`, by cases that add missing features, up to `most` bytes."""
    bit = {each: 1 << at for at, each in enumerate(dict.fromkeys(itertools.chain.from_iterable(has)))}
    masks = [sum(bit[each] for each in one) for one in has]
    chosen, missing = list(chosen), (1 << len(bit)) - 1
    for at in chosen:
        missing &= ~masks[at]
    used = sum(costs[at] for at in chosen)
    while missing:
        fit = [at for at in range(len(costs)) if most is None or used + costs[at] <= most]
        best = max(fit, key=lambda at: (masks[at] & missing).bit_count() / costs[at], default=None)
        if best is None or not masks[best] & missing:
            break
        missing &= ~masks[best]
        used += costs[best]
        chosen.append(best)
    return chosen
