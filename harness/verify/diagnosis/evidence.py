"""The evidence for a cause: a kernel's inputs and outputs, the expected outputs, and the steps of its recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.interval import Interval, order
from harness.contract.problem import Dense
from harness.expected.formats import BLOCK, format_of, unpacked
from harness.verify.diagnosis.decode_steps import DecodeSteps, steps_of
from harness.verify.diagnosis.difference import Difference, compacted, comparable, compare, owned, wrong_entries
from harness.verify.diagnosis.steps import Encoded, Steps, side_and_kind

SAMPLE = 1 << 18  # at most this many elements of wrong lines are encoded again for a hypothesis
FEW = 8  # fewer wrong entries may agree with a hypothesis by chance

_DATAFLOW = ("amax", "scale_inv", "data")
_AMAX_CHOICES = attrgetter(
    "rotation", "rotation_strides", "rotation_turned", "rotation_norm", "rotation_rounded", "amax_of", "granularity"
)


class Cause(NamedTuple):
    """name: stable and short, for tables; explanation: one line for a person."""

    name: str
    explanation: str

    def __str__(self) -> str:
        return f"{self.name}: {self.explanation}"


# Causes that several hypotheses can show.
OTHER_GRANULE = Cause(
    "amax of another granule", "an amax came from the neighbouring line, from the first, or from some other"
)
OTHER_TENSOR = Cause("another tensor of the group", "an array of another tensor in place of its own gives these bytes")


@dataclass(frozen=True, eq=False)
class Evidence:
    """A wrong output, and its root: the earliest wrong field, which may have made the later ones wrong.

    field, right, actual, wrong, valued: of the root: its field, its expected and actual array, and masks of its wrong
        entries and of those that are not padding; all in compact order, whatever the layout
    tensors: what the kernel read, by parameter name
    expected: bytes by field
    runs: what the kernel wrote, one mapping for each run; the first is the one that is explained
    poisons: the byte each run's outputs were filled with before it
    intervals: for fields that the contract bounds; `expected` then has the values nearest to the first run's
    others: the inputs of the group's other tensors, if this tensor is in a group
    """

    case: Case
    tensors: Mapping[str, np.ndarray]
    fields: Mapping[str, Field]
    expected: Mapping[str, np.ndarray]
    runs: tuple[Mapping[str, np.ndarray], ...]
    poisons: tuple[int, ...] = ()
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    others: tuple[Mapping[str, np.ndarray], ...] = ()

    @cached_property
    def differences(self) -> dict[str, Difference]:
        """Describe the error of each wrong field, in the order of the dataflow: amax, scale_inv, data, the rest."""
        found = {
            name: compare(name, field, self.expected[name], self.actual_of(name)) for name, field in self.fields.items()
        }
        rank = {kind: number for number, kind in enumerate(_DATAFLOW)}
        ordered = sorted(found, key=lambda name: rank.get(side_and_kind(name)[1], len(rank)))
        return {name: difference for name in ordered if (difference := found[name]) is not None}

    @cached_property
    def root(self) -> str:
        return next(iter(self.differences))

    @cached_property
    def _computed(self) -> dict[str, Any]:
        return {}

    def once(self, name: str, compute: Callable[[Evidence], Any]) -> Any:
        """Compute a value from the evidence once; it is kept under a name for the hypotheses that share it."""
        if name not in self._computed:
            self._computed[name] = compute(self)
        return self._computed[name]

    @property
    def of_side(self) -> list[str]:
        """The fields of the root's side; all fields if it has no side."""
        return [name for name in self.fields if not self.side or name.startswith(f"{self.side}_")]

    @cached_property
    def outside(self) -> set[str]:
        """Fields with entries outside their intervals; other wrong fields with an interval only differ between runs."""
        return {
            name
            for name, interval in self.intervals.items()
            if comparable(interval, self.actual_of(name))
            and (order(interval.nearest(self.actual_of(name))) != order(self.actual_of(name))).any()
        }

    @property
    def side(self) -> str:
        """`rowwise`, `columnwise`, or empty for a field that has no side."""
        return side_and_kind(self.root)[0]

    @property
    def kind(self) -> str:
        """`amax`, `scale_inv`, `data`, or the root's whole name if it has no side.

        Of bytes that are not NVFP4's with their format ahead, as in `e8m0_scale_inv`: what is known of the others'
        mistakes says nothing about them.
        """
        kind, declared = side_and_kind(self.root)[1], self.field.format
        own = declared in ("", format_of(kind)) or kind.startswith(f"{declared}_")
        return kind if own else f"{declared}_{kind}"

    @property
    def field(self) -> Field:
        return self.fields[self.root]

    @property
    def comparable(self) -> bool:
        return self.differences[self.root].kind in ("bytes", "padding")

    def actual_of(self, name: str, run: int = 0) -> np.ndarray:
        return self.runs[run][name]

    @cached_property
    def right(self) -> np.ndarray:
        return compacted(self.field, self.expected[self.root])

    @cached_property
    def actual(self) -> np.ndarray:
        return compacted(self.field, self.actual_of(self.root))

    @cached_property
    def wrong(self) -> np.ndarray:
        return compacted(self.field, wrong_entries(self.root, self.expected[self.root], self.actual_of(self.root)))

    @cached_property
    def valued(self) -> np.ndarray:
        return compacted(self.field, owned(self.field))

    @cached_property
    def steps(self) -> Steps | DecodeSteps | None:
        """The contract's steps to the root; None if no steps are known."""
        return steps_of(self.case, self.side)

    @cached_property
    def by_line(self) -> Evidence:
        """The evidence with decoded lines as rows: for a columnwise copy, the output transposed."""
        if not (isinstance(self.steps, DecodeSteps) and self.steps.transposed and self.comparable):
            return self

        def turned(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {name: np.ascontiguousarray(array.T) for name, array in arrays.items()}

        case = replace(
            self.case,
            flags=self.case.flags.replace(outputs="rowwise"),
            problem=Dense(self.case.cols, self.case.rows),
            seed_of=self.case.seed_of or self.case.data_id,
        )
        fields = {name: replace(field, shape=field.shape[::-1]) for name, field in self.fields.items()}
        runs = tuple(map(turned, self.runs))
        return replace(self, case=case, fields=fields, expected=turned(self.expected), runs=runs)

    @cached_property
    def lines(self) -> np.ndarray:
        """Numbers of the lines to replay: groups of 16, all of them if they are few.

        Of many, those with wrong entries come first, evenly spread; right ones fill what is left, because a mistake
        that would have made them wrong is then not this one. A wrong amax belongs to no single line.
        """
        count, length = (self.case.cols, self.case.rows) if self.field.transposed else (self.case.rows, self.case.cols)
        groups, most = np.arange(count // BLOCK), max(2, SAMPLE // (length * BLOCK))
        if len(groups) > most and self.kind != "amax":
            wrong = np.unique(np.flatnonzero((self.wrong & self.valued).any(axis=1)) // BLOCK)
            wrong = _spread(wrong, most - most // 4)
            groups = np.sort(np.concatenate([wrong, _spread(np.setdiff1d(groups, wrong), most - len(wrong))]))
        groups = _spread(groups, most)
        return (groups[:, None] * BLOCK + np.arange(BLOCK)).reshape(-1)

    @cached_property
    def baseline(self) -> Encoded:
        """The contract's steps on `lines`, for a root that is data or scale_inv."""
        return self._encode(self.steps)

    @cached_property
    def codes(self) -> tuple[np.ndarray, np.ndarray]:
        """Expected and actual codes of `lines`, for a root that is data."""
        return unpacked(self.right[self.lines]), unpacked(self.actual[self.lines])

    def explained_by(self, steps: Steps | DecodeSteps) -> bool:
        """Whether other steps give the bytes that the kernel wrote, in every field of the side, as `lines` show."""
        for kind, array in self.replay(steps).items():
            name = f"{self.side}_{kind}" if self.side else kind
            if name not in self.expected:
                continue
            actual = self.sampled(name, compacted(self.fields[name], self.actual_of(name)))
            if actual.shape != array.shape:
                if kind == self.kind:
                    return False
                continue
            if wrong_entries("", actual, array).any():
                return False
        return True

    def overflowed_by(self, steps: Steps | DecodeSteps) -> bool:
        """Whether other steps overflow wherever the root is wrong, though the contract's steps do not.

        Anything that makes an amax inf gives the same bytes, so these say nothing for the steps.
        """
        if not isinstance(steps, Steps) or self.kind not in _DATAFLOW:
            return False
        if self.kind == "amax":
            right, other, wrong = ~np.isinf(self._amax(self.steps)), ~np.isinf(self._amax(steps)), self.wrong
        else:
            right, other = _finite_blocks(self.baseline), _finite_blocks(self._encode(steps))
            wrong = self.sampled(self.root, self.wrong).reshape(*right.shape, -1).any(axis=2)
        return right.shape == other.shape == wrong.shape and bool((right & ~other)[wrong].all())

    def replay(self, steps: Steps | DecodeSteps) -> dict[str, np.ndarray]:
        if isinstance(steps, DecodeSteps):
            return {"output": steps.decode(self.tensors, self.lines).output}
        encoded = self._encode(steps)
        return {"amax": self._amax(steps), "scale_inv": encoded.scale_inv, "data": encoded.data}

    def _encode(self, steps: Steps) -> Encoded:
        return steps.encode(steps.lines(self.tensors["input"], self.lines), self.lines, self._amax(steps))

    @cached_property
    def _amaxes(self) -> dict[tuple[object, ...], np.ndarray]:
        return {}

    def _amax(self, steps: Steps) -> np.ndarray:
        given = self.tensors.get(f"{self.side}_amax")
        if given is not None and steps.granularity == self.steps.granularity:
            return given
        key = _AMAX_CHOICES(steps)
        if key not in self._amaxes:
            self._amaxes[key] = steps.amax(self.tensors["input"])
        return self._amaxes[key]

    def sampled(self, name: str, array: np.ndarray) -> np.ndarray:
        if name.endswith("amax"):
            return array
        valid = self.fields[name].valid
        return array[self.lines] if valid is None else array[self.lines, : valid[1]]


def _spread(groups: np.ndarray, most: int) -> np.ndarray:
    if len(groups) <= most:
        return groups
    return groups[np.unique(np.linspace(0, len(groups) - 1, most).astype(np.int64))] if most else groups[:0]


def _finite_blocks(encoded: Encoded) -> np.ndarray:
    """(n, blocks) bool: whether a block's values are finite and its amax is not inf."""
    values = np.isfinite(encoded.values).reshape(*encoded.block_amax.shape, BLOCK).all(axis=2)
    return values & ~np.isinf(encoded.block_amax)


class Hypothesis(NamedTuple):
    """A cause, and whether the evidence shows it: True, or what exactly, in place of the explanation or of both."""

    name: str
    explanation: str
    holds: Callable[[Evidence], bool | str | Cause]

    def cause(self, e: Evidence) -> Cause | None:
        found = self.holds(e)
        if not found or isinstance(found, Cause):
            return found or None
        return Cause(self.name, found if isinstance(found, str) else self.explanation)
