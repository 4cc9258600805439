"""Hypotheses that ask the recipe's own NumPy oracle with one building block of NUMERICS 2 done in another way.

They serve every oracle that is made of `harness.oracles.nvfp4`, a user's too, whether its steps are replayed here or
not. The changed function stands in the module while the oracle answers, and the right one again afterwards.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import NamedTuple

import numpy as np

from harness.contract.interval import Interval
from harness.verify.diagnosis import other_casts
from harness.verify.diagnosis.casts import E2M1_MIDPOINTS
from harness.verify.diagnosis.difference import compacted
from harness.verify.diagnosis.evidence import Evidence, Hypothesis
from harness.verify.diagnosis.in_part import part_of
from harness.verify.diagnosis.oracle_blocks import UNMOVED, WAYS, Blocks, Ways, cast_of
from harness.verify.diagnosis.other_casts import SIGNS
from harness.verify.expected import oracle_of

LARGEST = 1 << 16  # in `Case.work`; beyond it, all questions together take more than a second or two
_MIDPOINTS = E2M1_MIDPOINTS.size


class Answer(NamedTuple):
    """What the oracle gives with one block changed. arrays: by field, as the kernel writes them"""

    name: str
    explanation: str
    arrays: dict[str, np.ndarray]


def answers(e: Evidence) -> list[Answer]:
    """The answers that differ from the right one in the root's field; none for a case that is too large."""
    if e.case.work > LARGEST or e.root in e.intervals or not (e.wrong & e.valued).any():
        return []
    ask = _Oracle(e)
    found = [
        Answer(way.name, way.explanation, made)
        for of, ways in WAYS.items()
        if e.kind not in UNMOVED.get(of, ()) or "scale_inv" not in "".join(e.of_side)
        for way, blocks in ways
        if (made := ask(blocks))
    ]
    return found + _some_ties(e, ask, found)


def _is_exact(e: Evidence, answer: Answer) -> bool:
    """Whether an answer is what the kernel wrote, in every field of the root's side."""
    return all(_same(answer.arrays.get(name), e.actual_of(name)) for name in e.of_side)


def _spoiled(e: Evidence, name: str, answer: Answer) -> bool:
    """Whether an answer changes a field that the kernel has right."""
    return name not in e.differences and not _same(answer.arrays.get(name), e.actual_of(name))


def _same(one: np.ndarray | None, other: np.ndarray) -> bool:
    return one is not None and one.dtype.name == other.dtype.name and one.tobytes() == other.tobytes()


class _Oracle:
    """The NumPy oracle of the evidence's case, for the root's side alone, with functions of `nvfp4` changed."""

    def __init__(self, e: Evidence) -> None:
        self._e, self._oracle = e, oracle_of(e.case.recipe)
        self._nvfp4 = sys.modules["harness.oracles.nvfp4"]
        self._case = e.case
        if e.side and e.case.flags.get("outputs") == "both":
            self._case = replace(e.case, flags=e.case.flags.replace(outputs=e.side), seed_of=e.case.seed_name)
        loaded = [module for name, module in list(sys.modules.items()) if name.startswith("harness.oracles.")]
        modules = {id(module): module for module in (*loaded, self._oracle) if module is not None}
        self._places: dict[int, list[tuple[ModuleType, str]]] = {}  # also where an oracle imported a function by name
        for module in modules.values():
            for name, value in vars(module).items():
                self._places.setdefault(id(value), []).append((module, name))

    def __call__(self, blocks: Ways) -> dict[str, np.ndarray] | None:
        """The answer under changed blocks; None if that changes nothing of the root or cannot be computed."""
        try:
            with np.errstate(all="ignore"), self._in_place(blocks(self._nvfp4)):
                made = self._oracle.numpy_oracle(self._case, dict(self._e.tensors))
        except Exception:  # a user's oracle may raise anything where a block gives what it does not expect
            return None
        root, right = made.get(self._e.root), self._e.expected[self._e.root]
        if root is None or isinstance(root, Interval) or root.shape != right.shape or _same(root, right):
            return None
        return {name: array for name, array in made.items() if not isinstance(array, Interval)}

    @contextmanager
    def _in_place(self, blocks: Blocks) -> Iterator[None]:
        right = {name: getattr(self._nvfp4, name) for name in blocks}
        try:
            for name, function in blocks.items():
                for module, attribute in self._places[id(right[name])]:
                    setattr(module, attribute, function)
            yield
        finally:
            for function in right.values():
                for module, attribute in self._places[id(function)]:
                    setattr(module, attribute, function)


def _some_ties(e: Evidence, ask: _Oracle, found: list[Answer]) -> list[Answer]:
    """Ties at some of the midpoints alone, of either sign: those that the kernel shows to be wrong, together."""
    right, actual = e.expected[e.root], e.actual_of(e.root)
    if right.dtype != np.uint8:
        return []
    unexplained = right != actual
    for answer in found:
        if answer.name == other_casts.TIES:
            unexplained &= answer.arrays[e.root] == right
    if unexplained.any():
        return []
    flips = set()
    for flip in ((midpoint, negative) for midpoint in range(_MIDPOINTS) for negative in (False, True)):
        made = ask(partial(cast_of, other_casts.flipped_ties({flip})))
        if made is not None and _shares_a_code(made[e.root] ^ right, actual ^ right):
            flips.add(flip)
    made = ask(partial(cast_of, other_casts.flipped_ties(flips))) if flips else None
    if made is None:
        return []
    where = ", ".join(f"{E2M1_MIDPOINTS[m]:g}" for m in sorted({m for m, _ in flips}))
    return [Answer(other_casts.TIES, f"a product of exactly {where} went to the other neighbour", made)]


def _shares_a_code(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two changes of bytes are the same, and not none, in some nibble."""
    return any(((one & nibble != 0) & (one & nibble == other & nibble)).any() for nibble in (0x0F, 0xF0))


def hypotheses(in_part: bool = False) -> list[Hypothesis]:
    """A hypothesis for each cause: that it was so everywhere, or `in_part` in some part of the tensor alone."""
    names = dict.fromkeys(way.name for ways in WAYS.values() for way, _ in ways)
    return [Hypothesis(name, "", partial(_in_part if in_part else _everywhere, name)) for name in names]


def _everywhere(name: str, e: Evidence) -> str:
    found = (a.explanation for a in e.once("blocks", answers) if a.name == name and _is_exact(e, a))
    return next(found, "")


def _in_part(name: str, e: Evidence) -> str:
    for answer in e.once("blocks", answers):
        if answer.name == name and name not in SIGNS and not any(_spoiled(e, field, answer) for field in e.of_side):
            where = part_of(e, compacted(e.field, answer.arrays[e.root]))
            if where:
                return f"{answer.explanation}, {where}"
    return ""
