"""Unseen data of the same kind as a case's own: other data to verify on, and new data for every copy in every round."""

from __future__ import annotations

import operator
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.interval import Interval
from harness.device.device import Outcome
from harness.expected.expected import Expected, expect_on, fields_of, high_precision, make_inputs, oracle_of
from harness.subjects.audit.findings import same
from harness.subjects.cuda_program import CudaSubjectProgram

DISTANCE = 0x9E3779B9  # elements; a large distance that is no multiple of a block size
GROUPS_OF = (128, 16)  # rows that move together: whole tiles of swizzled scales, or whole blocks
FEWEST_GROUPS = 8  # 8 groups have 40,320 orders
TILE_ROWS = 128  # rows of a tile of swizzled scales
SMALL = 1 << 20  # elements; up to this size many sets are drawn if rows cannot be permuted
FEW, MANY = 2, 8


def moved_along(case: Case, distance: int = DISTANCE) -> dict[str, np.ndarray]:
    """The kernels' inputs with the elements of every tensor of the case rotated by a distance.

    Drawing new data takes a minute for the largest case. It is only done where rotating has no effect, as for a GEMM
    whose operands are drawn as bytes. An input that is the same for every seed stays the same.
    """
    own = make_inputs(case)
    tensors = {name: np.roll(x.reshape(-1), distance).reshape(x.shape) for name, x in high_precision(case).items()}
    moved = oracle_of(case.recipe).inputs(case, **tensors)
    if any(moved[name].tobytes() != array.tobytes() for name, array in own.items()):
        return moved
    other = replace(case, seed_of=f"{case.data_id}/{distance}")
    return oracle_of(case.recipe).inputs(other, **high_precision(other))


@dataclass(frozen=True)
class Draw:
    """The data of one copy in one round. number: the set's; order: of its groups of rows, None for the drawn order"""

    number: int
    order: np.ndarray | None = None


class FreshData:
    """Sets of inputs drawn by the operating system's randomness, with a new permutation of row groups for every draw.

    How outputs change is not assumed but tested once: the oracles are asked for one permutation, and a field follows if
    its bytes for permuted rows are its bytes permuted, or the same. Where a field follows and changes, every round has
    data of its own, and is compared in the fields that follow; in the others, such as codes whose random bits
    go by position, it must have been written and not be what the unpermuted set gave, and the oracles judge a sample.
    Where none does (a product, a group, an amax alone, fewer than eight groups of rows), a round has one of a few sets,
    which a subject could come to know by their contents.
    """

    def __init__(self, case: Case, where: str, numpy_largest: int):
        self.case, self._asked = case, (where, numpy_largest)
        self.fields = fields_of(case)
        # Distances below the number of elements, so that no two rotations are equal.
        distances = secrets.SystemRandom().sample(range(1, max(case.elements, 2 * MANY)), MANY)
        self.sets = [moved_along(case, distance) for distance in distances[:FEW]]
        self._random = np.random.default_rng(secrets.randbits(128))
        self.groups = 0
        self.follows: dict[str, int] = {}  # field → parts with permuted groups, 0 if it does not change
        rows = next((rows for rows in GROUPS_OF if case.rows % rows == 0 and case.rows >= FEWEST_GROUPS * rows), 0)
        if rows and not case.is_group and not case.is_gemm:
            self._try(case.rows // rows)
        if not self.groups and case.elements <= SMALL:
            self.sets += [moved_along(case, distance) for distance in distances[FEW:]]

    def draw(self) -> Draw:
        number = int(self._random.integers(len(self.sets)))
        return Draw(number, self._random.permutation(self.groups) if self.groups else None)

    def inputs(self, drawn: Draw, uploaded: Mapping[str, Any], of: Any = np) -> dict[str, Any]:
        """The flat bytes of the inputs of a draw, from those of its set."""
        if drawn.order is None:
            return dict(uploaded)
        order = of.asarray(drawn.order)
        shapes = self.sets[drawn.number]
        return {
            name: permuted(array, 1, order) if self._by_rows(shapes[name]) else array
            for name, array in uploaded.items()
        }

    def on_host(self, drawn: Draw) -> dict[str, np.ndarray]:
        """The inputs of a draw, in the dtypes and shapes that the oracles take."""
        own = self.sets[drawn.number]
        flat = {name: np.ascontiguousarray(array).reshape(-1).view(np.uint8) for name, array in own.items()}
        found = self.inputs(drawn, flat)
        return {name: found[name].view(array.dtype).reshape(array.shape) for name, array in own.items()}

    def expected(self, drawn: Draw) -> Expected:
        return expect_on(self.case, self.on_host(drawn), *self._asked)

    def output(self, name: str, payload: Any, drawn: Draw, of: Any = np) -> Any | None:
        """The expected bytes of a field for a draw, from its bytes for the set; None if it does not follow."""
        if drawn.order is None:
            return payload
        parts = self.follows.get(name)
        return payload if parts == 0 else parts and permuted(payload, parts, of.asarray(drawn.order))

    def _by_rows(self, array: np.ndarray) -> bool:
        return array.ndim > 0 and array.shape[0] == self.case.rows

    def _try(self, groups: int) -> None:
        """Ask the oracles how the fields change if this many groups of rows are permuted."""
        self.groups = groups
        drawn = Draw(0, np.roll(np.arange(groups), 1))
        before, after = self.expected(Draw(0)), self.expected(drawn)
        changes = False
        for name, output in self.fields.items():
            one, other = before.values[name], after.values[name]
            if isinstance(one, Interval) or before.disagreement or after.disagreement:
                continue
            one, other = (np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (one, other))
            if np.array_equal(one, other):
                self.follows[name] = 0
                continue
            parts = _parts(output)
            if one.size % (parts * groups) == 0 and np.array_equal(permuted(one, parts, drawn.order), other):
                self.follows[name], changes = parts, True
        if not changes:
            self.groups, self.follows = 0, {}


def _parts(field: Field) -> int:
    """The number of parts of a field that each hold all groups of rows in order."""
    if not field.transposed:
        return 1
    return field.shape[0] // TILE_ROWS if field.swizzled else field.shape[0]


def permuted(array: Any, parts: int, order: Any) -> Any:
    """Flat bytes with their groups permuted, in the same way in each part."""
    return array.reshape(parts, len(order), -1).take(order, axis=1).reshape(-1)


@dataclass
class Written:
    """The subject's outputs for each set of data as drawn. steady: whether it writes the same each time"""

    outcomes: list[Outcome] = field(default_factory=list)
    steady: bool = True


class FreshCopies:
    """The copies of one program.

    uploaded: the inputs of every set of `fresh`, on the GPU; poison: what outputs hold before each round
    wrong: for each round, whether each copy that it wrote was wrong; drawn: the data of those copies
    """

    def __init__(
        self, program: CudaSubjectProgram, fresh: FreshData, uploaded: Sequence[Mapping[str, Any]], poison: int,
        written: Written,
    ):  # fmt: skip
        self.program, self._fresh, self._uploaded, self._poison = program, fresh, uploaded, poison
        self._written = written
        self.number = len(program.memories)
        self.wrong: list[dict[int, Any]] = []
        self.drawn: dict[int, Draw] = {}

    def capture(self) -> None:
        """Capture the subject's call on every copy, after calling it once."""
        same_data = {copy: Draw(0) for copy in range(self.number)}
        self._fill(same_data)
        self.program.launch(0)
        self.program.capture_timed()
        self._fill(same_data)
        self.program.launch(None)

    def remember(self) -> None:
        """Call the subject twice on each set, and keep its outputs."""
        for number in range(len(self._fresh.sets)):
            first, again = (self._reference(number) for _ in range(2))
            self._written.outcomes.append(first)
            self._written.steady &= same(first.outputs, again.outputs)

    def _reference(self, number: int) -> Outcome:
        self._fill({0: Draw(number)})
        self.program.launch(0)
        return self.program.outcome(self._poison)

    def fill(self, copies: Iterable[int]) -> None:
        """Draw the data of these copies for the next round."""
        self.drawn = {copy: self._fresh.draw() for copy in copies}
        self._fill(self.drawn)

    def compare(self) -> None:
        """Compare the outputs of the last round."""
        if self.drawn:
            self.wrong.append({copy: self._differs(copy, drawn) for copy, drawn in self.drawn.items()})

    def trespass(self) -> str:
        """A sentence on forbidden writes and their copy; empty if there are none."""
        for number, memory in enumerate(self.program.memories):
            sentence = memory.trespass(self._poison)
            if sentence:
                return f"copy {number + 1} of {self.number}: {sentence}"
        return ""

    def outcome(self, copy: int) -> tuple[Draw, Outcome]:
        return self.drawn[copy], self.program.outcome(self._poison, copy)

    def _fill(self, drawn: Mapping[int, Draw]) -> None:
        for copy, one in drawn.items():
            memory = self.program.memories[copy]
            memory.put(self._fresh.inputs(one, self._uploaded[one.number], self.program.of))
            for guarded in memory.outputs.values():
                guarded.poison(self._poison)

    def _differs(self, copy: int, drawn: Draw) -> Any:
        before, flags = self._written.outcomes[drawn.number].outputs, []
        for name, guarded in self.program.memories[copy].outputs.items():
            payload = guarded.payload
            wanted = self._fresh.output(name, before[name], drawn, self.program.of) if self._written.steady else None
            if wanted is not None:
                flags.append((payload != wanted).any())
            elif payload.size:
                flags.append((payload == self._poison).all())
                if drawn.order is not None:
                    flags.append((payload == before[name]).all())
        return reduce(operator.or_, flags, False)
