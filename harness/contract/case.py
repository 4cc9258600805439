"""A case: one recipe, one set of flags, one shape, one input, one way to launch. Frozen, and named by its id.

The case of a group in an allocation has other splits of it: so the group may change on the device between two replays
of a graph.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from harness.contract.problem import Extents, Grouped, GroupedGemm, Problem
from harness.text import spell

TERMS = 2048  # this many products cost a NumPy oracle about as much as quantizing one element

LARGEST_OWN_TENSOR = 1 << 20  # elements; a larger case shares its drawn tensors with other cases
OWN = "own"  # the value of a group's flag that stands for each dense recipe's own default

FlagValue = str | bool | int | float


def id_parts(case_id: str) -> tuple[str, ...]:
    """Recipe, flags, shape, input and mode that a case id spells; fewer of a text that is none."""
    head, _, mode = case_id.rpartition("/")
    return *head.split("/", 3), mode


_LATER = ("scale_format", "global_scale", "a_global_scale", "b_global_scale")


def with_later(
    named: Mapping[str, Sequence[FlagValue]], defaults: Mapping[str, FlagValue]
) -> dict[str, Sequence[FlagValue]]:
    """The flags and values that a kernel names; of later ones, which it may not know, the recipe's defaults."""
    return {**{flag: (defaults[flag],) for flag in _LATER if flag in defaults}, **named}


class Flags(Mapping[str, FlagValue]):
    """The flags of a case in axis order, read as `flags.rounding` or `flags["rounding"]`."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, FlagValue]):
        object.__setattr__(self, "_items", dict(items))

    def __getitem__(self, name: str) -> FlagValue:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __getattr__(self, name: str) -> FlagValue:
        try:
            return self._items[name]
        except KeyError:
            raise AttributeError(f"no flag {name!r}; the flags are {', '.join(self._items)}") from None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("flags are frozen; make new ones with `replace`")

    def __hash__(self) -> int:
        return hash(tuple(self._items.items()))

    def __repr__(self) -> str:
        return f"Flags({self._items})"

    def __reduce__(self):
        return Flags, (self._items,)

    def replace(self, **changes: FlagValue) -> Flags:
        return Flags({**self._items, **changes})


@dataclass(frozen=True)
class Case:
    """One recipe on one problem and input, without how or where it runs.

    recipe: the stem of its three files
    flags: a value for every axis of the suite
    problem: the tensor, the group or the product, with its extents
    input: name of a distribution, or `file:<path>#<tensor>`
    mode: `eager` or `graph`
    defaults: the flags a case has when its id names none
    where: `suites/S.yaml:line` of the set that made the case; not part of its identity
    philox_seed: the Philox key, if it is not the hash; for a tensor that is not drawn
    philox_offset: the last Philox counter word if `philox_seed` is set; else a number added to the word from the hash.
    Tensor g of a group adds g
    seed_of: the `data_id` whose seed this case shares, if not its own
    dense_defaults: for a group, the defaults of each recipe that its tensors can have; its suite fills them in
    end_of: (rows, cols) of a larger tensor whose last rows and columns the case is, by which random bits are counted
    turn: its number in a set whose cases run on one of a device's targets each, in turn; None to run on all of them
    """

    recipe: str
    flags: Flags
    problem: Problem
    input: str = "normal"
    mode: str = "eager"
    defaults: Flags = field(default_factory=lambda: Flags({}), compare=False, repr=False)
    where: str = field(default="", compare=False, repr=False)
    philox_offset: int = 0
    seed_of: str = ""
    dense_defaults: Mapping[str, Flags] = field(default_factory=dict, compare=False, repr=False)
    philox_seed: int | None = None
    end_of: tuple[int, int] | None = None
    turn: int | None = field(default=None, compare=False, repr=False)

    @property
    def is_gemm(self) -> bool:
        return self.problem.is_gemm

    @property
    def is_group(self) -> bool:
        return self.problem.is_group

    @property
    def rows(self) -> int:
        return self.problem.rows

    @property
    def cols(self) -> int:
        return self.problem.cols

    @property
    def elements(self) -> int:
        return self.problem.elements

    @property
    def terms(self) -> int:
        return self.problem.terms

    @property
    def work(self) -> int:
        """The cost of the case for its oracles, in quantized elements; TERMS products count as one element."""
        return self.elements + self.terms // TERMS

    @property
    def shape(self) -> str:
        """The extents as an id spells them."""
        return str(self.problem)

    @cached_property
    def variant(self) -> str:
        """The flags that differ from their defaults, `rht=true,rounding=sr`; `default` if none does."""
        changed = [f"{k}={spell(v)}" for k, v in self.flags.items() if self.defaults.get(k) != v]
        return ",".join(changed) or "default"

    @cached_property
    def data_id(self) -> str:
        """The id without the mode: everything that decides the bytes."""
        return f"{self.recipe}/{self.variant}/{self.shape}/{self.input}"

    @cached_property
    def id(self) -> str:
        """`per_token/rht=true,rounding=sr/8192x7168/outliers/graph`: the only key, everywhere."""
        return f"{self.data_id}/{self.mode}"

    @cached_property
    def seed_name(self) -> str:
        """The text whose hash is the seed: `data_id`, so that eager and graph see the same input and the same bytes.

        All splits of an allocation share a seed, because the host that passes it does not know the split.
        """
        return self.seed_of or f"{self.recipe}/{self.variant}/{self.problem.host_shape}/{self.input}"

    @cached_property
    def seed(self) -> int:
        """64 bits that depend on `seed_name` alone."""
        return int.from_bytes(self._digest[:8], "little") if self.philox_seed is None else self.philox_seed

    @property
    def tensor_seed(self) -> int:
        """The seed for drawing its tensors: the case's seed or, for large tensors, a hash of their extents and input.

        So the cases of a bench that have a shape in common share a tensor, which takes seconds to draw.
        """
        if self.elements <= LARGEST_OWN_TENSOR or self.philox_seed is not None:
            return self.seed
        name = self.seed_name.split("/", 2)[-1]  # without recipe and flags
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")

    @property
    def offset(self) -> int:
        """The last Philox counter word, 32 bits."""
        drawn = int.from_bytes(self._digest[8:12], "little") if self.philox_seed is None else 0
        return (drawn + self.philox_offset) % (1 << 32)

    @cached_property
    def _digest(self) -> bytes:
        return hashlib.sha256(self.seed_name.encode()).digest()

    def part(self, g: int) -> Case:
        """Tensor or product g of a group as a dense case, whose bytes the group must have in its place.

        It shares the flags that the dense recipe has, the input, and the seed, which is the Philox key of the whole
        group. A GEMM has no key, so each product has a seed of its own. It has no activation: it is of what that gives.
        """
        recipe = str(self.flags.recipe)
        defaults = self.dense_defaults[recipe]
        return replace(
            self,
            recipe=recipe,
            flags=defaults.replace(
                **{
                    name: value
                    for name, value in self.flags.items()
                    if name in defaults and value != OWN and name != "activation"
                }
            ),
            problem=self.problem.part(g),
            defaults=defaults,
            philox_offset=self.philox_offset + g,
            seed_of=f"{self.seed_name}/group {g}" if self.is_gemm else self.seed_name,
        )

    @property
    def e4m3_max(self) -> int:
        """The bound of e4m3 scales that the case aims at, or its tensors if it is a group; 448 without such a flag."""
        found = self.flags.get("e4m3_max", OWN)
        if found == OWN:
            found = self.dense_defaults.get(str(self.flags.get("recipe")), {}).get("e4m3_max", 448)
        return int(found)

    @property
    def scale_format(self) -> str:
        """The format of block scales, `e4m3` without such a flag."""
        return str(self.flags.get("scale_format", "e4m3"))

    @property
    def is_provisional(self) -> bool:
        """Whether a flag has a value that NUMERICS 1.9 calls provisional."""
        return any(flag in self.flags and self.flags[flag] != self.defaults.get(flag) for flag in _LATER)

    @property
    def two_levels(self) -> bool:
        """Whether an amax stands above the block scales."""
        return bool(self.flags.get("global_scale", True))

    @property
    def scale_max(self) -> int:
        """The largest block scale that the case aims at, in either format."""
        return 114688 if self.scale_format == "ue5m3" else self.e4m3_max

    @property
    def parts(self) -> tuple[Case, ...]:
        """Every tensor or product of a group as a dense case; the case itself if it is dense."""
        return tuple(map(self.part, range(len(self.problem.tensors)))) if self.is_group else (self,)


def other_splits(case: Case) -> tuple[Case, ...]:
    """The case with its allocation split in other ways, which its seed decides; none if it has no capacity.

    All in one tensor; every second tensor empty, the first and the last too if there are more than two; a drawn split
    of a part of the allocation; and no rows at all. One that is the case's own, or another's, is left out.
    """
    if case.problem.capacity is None:
        return ()
    rng = np.random.default_rng(case.seed)
    count = len(case.problem.tensors)
    whole = case.problem.lines[_by_k(case.problem)] // case.problem.splits_by
    chosen = int(rng.integers(count))
    full = range(1, count - 1, 2) if count > 2 else range(count - 1, count)
    chunks = (
        [whole * (g == chosen) for g in range(count)],
        _shared(whole, [int(g in full) for g in range(count)]),
        _shared(int(rng.integers(whole + 1)), rng.integers(0, 4, count).tolist()),
        [0] * count,
    )
    splits = dict.fromkeys(_split(case.problem, each, rng) for each in chunks)
    return tuple(replace(case, problem=split) for split in splits if split != case.problem)


def _shared(total: int, weights: Sequence[int]) -> list[int]:
    """Split a total into integer parts, roughly in proportion to the weights."""
    ends = np.cumsum(weights) * total // max(1, sum(weights))
    return np.diff(ends, prepend=0).tolist()


def _by_k(problem: Problem) -> bool:
    return isinstance(problem, GroupedGemm) and problem.by_k


def _split(problem: Grouped | GroupedGemm, chunks: Sequence[int], rng: np.random.Generator) -> Grouped | GroupedGemm:
    """Give each tensor its number of chunks.

    A chunk is as many rows, or as much of K in a wgrad, as splits are multiples of, or so many squared if both extents
    vary.
    """
    least = problem.splits_by
    if _by_k(problem):
        return replace(problem, tensors=tuple((problem.m, least * count) for count in chunks))
    if problem.rows != 1:
        return replace(problem, tensors=tuple((least * count, problem.cols) for count in chunks))
    tensors: list[Extents] = []
    spare = problem.lines[0] - least * sum(chunks)  # cols that are left for empty tensors
    for count in chunks:
        across = int(rng.choice([i for i in range(1, count + 1) if count % i == 0])) if count else min(1, spare)
        spare -= 0 if count else least * across
        tensors.append((least * (count // max(1, across)), least * across))
    return replace(problem, tensors=tuple(tensors))
