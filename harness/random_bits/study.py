"""All tests of one kernel's random bits, with one rate of false alarms between them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.oracles.nvfp4 import BLOCK
from harness.random_bits import design, significance
from harness.random_bits.design import HALF_CODES, INTERVALS, PROBES, Cell
from harness.random_bits.sample import Codes, Sampler
from harness.random_bits.significance import Count, Test

# Differences in (seed, offset) between two launches, as callers number tensors, steps and ranks.
LAUNCHES = {
    "a launch": (0, 0),
    "seed + 1": (1, 0),
    "offset + 1": (0, 1),
    "seed + 2^32": (1 << 32, 0),
    "seed + 1, offset - 1": (1, -1),
}
SEED, OFFSET = 0x5EED, 1000
_DILUTED = 1.0  # the most standard deviations that a bias alone may add to a sum of products


@dataclass(frozen=True)
class BitTest:
    """One line of the report.

    side: rowwise or columnwise; what: the test; n: elements, or pairs; found: bias or share; seen: the smallest that
    would be detected; wrong: whether chance is excluded; note: more about it; strength: of bits that repeat, in
    standard deviations
    """

    side: str
    what: str
    n: int
    found: float
    seen: float
    wrong: bool
    note: str = ""
    strength: float = 0.0


@dataclass(frozen=True)
class Plan:
    """The plan of a study.

    rows, cols: of the tensors; launches: how many are counted together; alpha: chance of any false alarm
    """

    rows: int
    cols: int
    launches: int
    alpha: float
    bits: int
    dtype: str

    @property
    def cells(self) -> list[Cell]:
        return design.cells(self.dtype, self.bits)

    def alphas(self, sides: int) -> tuple[float, float]:
        """Alpha of one test of bias, and of one test of repetition, which looks at all distances."""
        judged = sum(_judged(cell, self.bits) for cell in self.cells)
        fractions = len({cell.fraction for cell in self.cells if not cell.probe})
        biases = sides * (judged + 2 * len(INTERVALS) + fractions + 1 + BLOCK)
        pairs = sides * (1 + len(list(itertools.combinations(LAUNCHES, 2)))) + 3
        return self.alpha / 2 / biases, self.alpha / 2 / pairs


def examine(sampler: Sampler, plan: Plan) -> list[BitTest]:
    """Every test on every direction that the kernel writes."""
    places = design.spread(plan.rows, plan.cols, plan.cells)
    values = np.array([cell.value for cell in plan.cells])
    x = design.tensor(values[places])
    rounded = [sampler.round(x, SEED + i, OFFSET + i) for i in range(plan.launches)]
    halves = design.tensor(design.halves(plan.rows, plan.cols))
    bits = {name: sampler.round(halves, SEED + s, OFFSET + o) for name, (s, o) in LAUNCHES.items()}
    found = []
    for side in sampler.sides:
        at = places.T if side == "columnwise" else places
        found += _places(side, plan, [each[side] for each in rounded], at, len(sampler.sides))
        found += _bits(side, plan, {name: each[side] for name, each in bits.items()}, len(sampler.sides))
    return found + list(_between_sides(plan, bits["a launch"]))


def _judged(cell: Cell, bits: int) -> bool:
    return not cell.probe or cell.fraction >= 2.0**-bits


def _places(side: str, plan: Plan, rounded: Sequence[Codes], at: np.ndarray, sides: int) -> Iterator[BitTest]:
    alpha, _ = plan.alphas(sides)
    cells, wanted = plan.cells, len(plan.cells)
    here = np.stack([each.counted for each in rounded]) & ~design.diagonals(*at.shape)
    codes, numbers = np.stack([each.codes for each in rounded]), np.broadcast_to(at, here.shape)
    low = np.array([cell.interval for cell in cells])[numbers]
    negative = np.array([cell.negative for cell in cells])[numbers]
    up = (codes & 7) == low + 1
    right = (up | ((codes & 7) == low)) & (((codes >> 3).astype(bool) == negative) | ((codes & 7) == 0))
    strange = int(np.count_nonzero(here & ~right))
    ups, ns = (np.bincount(numbers[here & right & mask], minlength=wanted) for mask in (up, np.ones_like(up)))
    total = int(np.count_nonzero(here))
    yield BitTest(side, "neither neighbour", total, strange / max(1, total), 1 / max(1, total), strange > 0)
    counts = [Count(int(k), int(n), cell.fraction) for k, n, cell in zip(ups, ns, cells, strict=True)]
    pairs = list(zip(cells, counts, strict=True))
    for (number, (one, other)), negative_cells in itertools.product(enumerate(INTERVALS), (False, True)):
        chosen = [
            c for cell, c in pairs if (cell.interval, cell.negative, cell.probe) == (number, negative_cells, False)
        ]
        sign = "-" if negative_cells else "+"
        yield _pooled(side, f"{sign}[{one:g}, {other:g}]", chosen, alpha)
    for fraction in sorted({cell.fraction for cell in cells if not cell.probe}):
        chosen = [count for cell, count in pairs if cell.fraction == fraction and not cell.probe]
        yield _pooled(side, f"{fraction:g} of the way up", chosen, alpha)
    yield _pooled(side, "all intervals", [count for cell, count in pairs if not cell.probe], alpha)
    judged = [each for each in pairs if _judged(each[0], plan.bits)]
    cell, count = min(judged, key=lambda each: significance.chance(each[1]))
    worst = significance.exact(count, alpha)
    yield _row(side, f"one place, the worst of {len(judged)}", worst, alpha, f"at {cell.value:g}, p = {worst.p:.2g}")
    yield _resolution(side, pairs)


def _pooled(side: str, what: str, counts: Sequence[Count], alpha: float) -> BitTest:
    return _row(side, what, significance.pooled(counts, alpha), alpha)


def _row(side: str, what: str, test: Test, alpha: float, note: str = "") -> BitTest:
    return BitTest(side, what, test.n, test.bias, test.seen, test.p < alpha, note)


def _resolution(side: str, pairs: Sequence[tuple[Cell, Count]]) -> BitTest:
    """A row on how fine the random numbers are.

    It is never wrong itself: the tests of the places judge the probes that the declared number of bits can resolve.
    """

    def of(bits: int, what: str) -> int:
        return sum(getattr(count, what) for cell, count in pairs if cell.probe and cell.fraction == 2.0**-bits)

    idle = next((bits for bits in PROBES if not of(bits, "ups")), None)
    if idle is None:
        return BitTest(side, "how fine they are", of(PROBES[-1], "n"), 2.0 ** -PROBES[-1], math.nan, False,
                   f"elements 2^-{PROBES[-1]} of the way up still go there")  # fmt: skip
    n, finest = of(idle, "n"), 2.0 ** (1 - idle)
    note = f"0 of {n} went up from 2^-{idle} of the way, {n * finest / 2:.0f} if bits were that fine"
    return BitTest(side, "how fine they are", n, finest, math.nan, False, note)


def _bits(side: str, plan: Plan, launches: dict[str, Codes], sides: int) -> Iterator[BitTest]:
    of_bias, of_repeats = plan.alphas(sides)
    signs = {name: _signs(codes) for name, codes in launches.items()}
    counts = [_count([each[:, place::BLOCK] for each in signs.values()]) for place in range(BLOCK)]
    place = min(range(BLOCK), key=lambda place: significance.chance(counts[place]))
    worst = significance.exact(counts[place], of_bias)
    yield _row(side, f"one place of {BLOCK} in a block", worst, of_bias, f"place {place}, p = {worst.p:.2g}")
    first = signs["a launch"]
    yield _repeat(side, "within a launch", first, first, of_repeats)
    pairs = itertools.combinations(signs, 2)
    found = [_repeat(side, f"{one} and {other}", signs[one], signs[other], of_repeats) for one, other in pairs]
    wrong = [row for row in found if row.wrong]
    strongest = max(found, key=lambda row: row.strength)
    yield from wrong or [replace(strongest, what=f"between launches, {len(found)} pairs",
                                 note=f"{strongest.what}: {strongest.note}")]  # fmt: skip


def _between_sides(plan: Plan, launch: dict[str, Codes]) -> Iterator[BitTest]:
    """Rows on repetition between directions: by rounded element, by place in the output, and by number there."""
    if len(launch) < 2:
        return
    _, alpha = plan.alphas(len(launch))
    rows, columns = _signs(launch["rowwise"]), _signs(launch["columnwise"])
    by = {"by element": columns.T, "by place": columns}
    if rows.shape != columns.shape:
        by["in their order"] = columns.reshape(rows.shape)
    for name, other in by.items():
        yield _repeat("both", f"rowwise and columnwise, {name}", rows, np.ascontiguousarray(other), alpha)


def _repeat(side: str, what: str, one: np.ndarray, other: np.ndarray, alpha: float) -> BitTest:
    n = int(np.count_nonzero(one))
    if _diluted(one, other):
        return BitTest(side, what, n, math.nan, math.nan, False, "not tested, since bits that are biased agree by that")
    found = significance.strongest(one, other, alpha, itself=one is other)
    place = f"{found.lag[0]} rows and {found.lag[1]} columns apart" if any(found.lag) else "in the same place"
    note = f"{place}, {found.strength:.1f} of {found.limit:.1f} standard deviations"
    return BitTest(side, what, n, found.share, found.seen, found.found, note, found.strength)


def _signs(codes: Codes) -> np.ndarray:
    """+1 where a half was rounded up, -1 where it was rounded down, 0 where nothing is known."""
    known = codes.counted & ~design.diagonals(*codes.codes.shape) & np.isin(codes.codes, HALF_CODES)
    return np.where(known, np.where(codes.codes == HALF_CODES[1], 1.0, -1.0), 0.0)


def _count(signs: Sequence[np.ndarray]) -> Count:
    ups, n = (sum(int(np.count_nonzero(condition(each))) for each in signs) for condition in (_is_up, _is_known))
    return Count(ups, n, 0.5)


def _is_up(signs: np.ndarray) -> np.ndarray:
    return signs > 0


def _is_known(signs: np.ndarray) -> np.ndarray:
    return signs != 0


def _diluted(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether the bits are so far from fair that they agree at every distance."""
    means = [float(each.sum() / max(1, np.count_nonzero(each))) for each in (one, other)]
    return abs(means[0] * means[1]) * np.sqrt(max(1, np.count_nonzero(one))) > _DILUTED
