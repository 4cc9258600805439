"""Hypotheses that ask the recipe's own NumPy oracle with one building block of NUMERICS 2 done in another way.

They serve every oracle that is made of `harness.oracles.nvfp4`, a user's too, whether its steps are replayed here or
not. MISTAKES of a recipe's oracle are tried alike: a name, functions of that file, and what wrong kernels do in their
place. The changed function stands in the module while the oracle answers, and the right one again afterwards. A mistake
may also have been made in a part of a tensor: everywhere in some lines, blocks or tiles, and nowhere else.
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
from harness.expected.expected import oracle_of
from harness.expected.formats import BLOCK, E2M1_MIDPOINTS, unpacked
from harness.verify.diagnosis import casts
from harness.verify.diagnosis.casts import SIGNS
from harness.verify.diagnosis.difference import compacted
from harness.verify.diagnosis.evidence import FEW, Cause, Evidence, Hypothesis
from harness.verify.diagnosis.oracle_blocks import UNMOVED, WAYS, Blocks, Ways, cast_of
from harness.verify.diagnosis.steps import side_and_kind


def part_of(e: Evidence, predicted: np.ndarray, chosen: np.ndarray | slice = slice(None)) -> str:
    """In which part of the root a mistake was made, as a phrase; empty if it was not.

    Wherever a cell has a wrong entry, all entries of that cell must be those that the mistake gives. Each of them
    beyond a cell's first could have contradicted, and so many must not have.

    predicted: the root with the mistake made everywhere, compact; chosen: the lines of the root that it has
    """
    if e.kind == "amax":
        same = predicted.shape == e.actual.shape and np.array_equal(predicted, e.actual, equal_nan=True)
        return "as far as the amaxes show" if same else ""
    right, actual = e.right[chosen], e.actual[chosen]
    if predicted.ndim != 2 or predicted.shape[0] != right.shape[0] or predicted.shape[1] > right.shape[1]:
        return ""
    right, actual = right[:, : predicted.shape[1]], actual[:, : predicted.shape[1]]
    width = 1
    if e.kind == "data":
        right, actual, predicted, width = unpacked(right), unpacked(actual), unpacked(predicted), BLOCK
    bits = f"u{right.dtype.itemsize}"
    right, actual, predicted = (np.ascontiguousarray(array).view(bits) for array in (right, actual, predicted))
    wrong, changed = right != actual, right != predicted
    if not wrong.any() or (wrong & (actual != predicted)).any():
        return ""
    numbers = np.arange(e.right.shape[0])[chosen]
    for called, cells in _partitions(numbers, right.shape[1], width):
        flat = np.broadcast_to(cells, right.shape).reshape(-1)
        made, could = (np.bincount(flat[mask.reshape(-1)], minlength=flat.max() + 1) for mask in (wrong, changed))
        hit = made > 0
        if hit.sum() == np.count_nonzero(could):
            continue  # made everywhere, which other fields of the side deny
        if (made[hit] == could[hit]).all() and (could[hit] - 1).sum() >= FEW:
            return f"in {np.count_nonzero(hit)} of {np.count_nonzero(could)} {called}"
    return ""


def _partitions(lines: np.ndarray, length: int, width: int) -> Iterator[tuple[str, np.ndarray]]:
    """Ways to part a root into cells, each with the number of every entry's cell. width: entries of a block"""
    columns = np.arange(length)
    if width > 1:
        yield "positions of blocks", (columns % width)[None, :]
    yield "lines", lines[:, None] - lines[0]
    yield "columns of blocks", (columns // width)[None, :]
    yield "lines of 16", lines[:, None] % BLOCK
    yield "tiles of 16 lines by a block", (lines[:, None] - lines[0]) // BLOCK * length + columns[None, :] // width


OWN = "mistake that the recipe names"
LARGEST = 1 << 16  # in `Case.work`; beyond it, all questions together take more than a second or two
_MIDPOINTS = E2M1_MIDPOINTS.size


class Answer(NamedTuple):
    """The oracle's answer with one block changed. arrays: by field, as the kernel writes them"""

    name: str
    explanation: str
    arrays: dict[str, np.ndarray]


def answers(e: Evidence) -> list[Answer]:
    """The answers that differ from the right one in the root's field; none for a case that is too large."""
    if e.case.work > LARGEST or e.root in e.intervals or not (e.wrong & e.valued).any():
        return []
    ask, kind = _Oracle(e), side_and_kind(e.root)[1]
    found = [
        Answer(OWN, name, made)
        for name, functions in getattr(ask.module, "MISTAKES", {}).items()
        if (made := ask(lambda module, functions=functions: functions, ask.module))
    ]
    found += [
        Answer(way.name, way.explanation, made)
        for of, ways in WAYS.get(e.case.scale_format, WAYS["e4m3"]).items()
        if kind not in UNMOVED.get(of, ()) or "scale_inv" not in "".join(e.of_side)
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
        self.module = sys.modules[self._oracle.__name__]  # also of a user's, whose answers are checked on the way
        self._case = e.case
        if e.side and e.case.flags.get("outputs") == "both":
            self._case = replace(e.case, flags=e.case.flags.replace(outputs=e.side), seed_of=e.case.seed_name)
        loaded = [module for name, module in list(sys.modules.items()) if name.startswith("harness.oracles.")]
        modules = {id(module): module for module in (*loaded, self.module) if module is not None}
        self._places: dict[int, list[tuple[ModuleType, str]]] = {}  # also where an oracle imported a function by name
        for module in modules.values():
            for name, value in vars(module).items():
                self._places.setdefault(id(value), []).append((module, name))

    def __call__(self, blocks: Ways, module: ModuleType | None = None) -> dict[str, np.ndarray] | None:
        """The answer under changed blocks, of `nvfp4` or of another module; None if the root stays, or for an error."""
        module = module or self._nvfp4
        try:
            with np.errstate(all="ignore"), self._in_place(blocks(module), module):
                made = self._oracle.numpy_oracle(self._case, dict(self._e.tensors))
        except Exception:  # a user's oracle may raise anything where a block gives what it does not expect
            return None
        root, right = made.get(self._e.root), self._e.expected[self._e.root]
        if root is None or isinstance(root, Interval) or root.shape != right.shape or _same(root, right):
            return None
        return {name: array for name, array in made.items() if not isinstance(array, Interval)}

    @contextmanager
    def _in_place(self, blocks: Blocks, module: ModuleType) -> Iterator[None]:
        right = {name: getattr(module, name) for name in blocks}
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
        if answer.name == casts.TIES:
            unexplained &= answer.arrays[e.root] == right
    if unexplained.any():
        return []
    flips = set()
    for flip in ((midpoint, negative) for midpoint in range(_MIDPOINTS) for negative in (False, True)):
        made = ask(partial(cast_of, casts.flipped_ties({flip})))
        if made is not None and _shares_a_code(made[e.root] ^ right, actual ^ right):
            flips.add(flip)
    made = ask(partial(cast_of, casts.flipped_ties(flips))) if flips else None
    if made is None:
        return []
    where = ", ".join(f"{E2M1_MIDPOINTS[m]:g}" for m in sorted({m for m, _ in flips}))
    return [Answer(casts.TIES, f"a product of exactly {where} went to the other neighbour", made)]


def _shares_a_code(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two changes of bytes are the same, and not none, in some nibble."""
    return any(((one & nibble != 0) & (one & nibble == other & nibble)).any() for nibble in (0x0F, 0xF0))


def hypotheses(in_part: bool = False) -> list[Hypothesis]:
    """A hypothesis for each cause: that it was so everywhere, or `in_part` in some part of the tensor alone."""
    names = dict.fromkeys(way.name for ways in WAYS["e4m3"].values() for way, _ in ways)
    own = [] if in_part else [Hypothesis(OWN, "", _own)]
    return own + [Hypothesis(name, "", partial(_in_part if in_part else _everywhere, name)) for name in names]


def _everywhere(name: str, e: Evidence) -> str:
    found = (a.explanation for a in e.once("blocks", answers) if a.name == name and _is_exact(e, a))
    return next(found, "")


def _own(e: Evidence) -> Cause | None:
    found = [a.explanation for a in e.once("blocks", answers) if a.name == OWN and _is_exact(e, a)]
    return Cause(" or ".join(found), "a mistake that the recipe's oracle names gives these bytes") if found else None


def _in_part(name: str, e: Evidence) -> str:
    for answer in e.once("blocks", answers):
        if answer.name == name and name not in SIGNS and not any(_spoiled(e, field, answer) for field in e.of_side):
            where = part_of(e, compacted(e.field, answer.arrays[e.root]))
            if where:
                return f"{answer.explanation}, {where}"
    return ""
