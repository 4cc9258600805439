"""A case: one recipe, one set of flags, one shape, one input, one way to launch. Frozen, and named by its id."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from harness.grouped import GroupedShape

TERMS = 2048  # products that cost a NumPy oracle about as much as one element to quantize

FlagValue = str | bool | int | float


def spell(value: object) -> str:
    """A flag's value as it is written in YAML and in a case id."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class Flags(Mapping[str, FlagValue]):
    """The flags of a case in axis order, read as `flags.rounding` or `flags["rounding"]`; immutable and hashable."""

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
        """The same flags with some values changed."""
        return Flags({**self._items, **changes})


@dataclass(frozen=True)
class Case:
    """What is run, without how or where.

    recipe: the stem of its three files
    flags: every axis of the suite, resolved
    defaults: the flags a case has when its id names none
    rows, cols: extents of the high-precision tensor, elements; of a group, those of all its tensors as one matrix,
        (1, elements) if both differ from tensor to tensor
    input: name of a distribution, or `file:<path>#<tensor>`
    mode: `eager` or `graph`
    where: `suites/S.yaml:line` of the set that made the case; not part of its identity
    tensors: (rows, cols) of every tensor of a group, which lie back to back; of a grouped GEMM, of every A; empty for a
        dense case
    philox_offset: the last Philox counter word; tensor g of a group has g
    seed_of: the problem whose seed this case shares, if not its own
    n: columns of the output of a GEMM, whose (M, K) are rows and cols; N of every group of a grouped one; 0 for a
        recipe of one tensor
    """

    recipe: str
    flags: Flags
    rows: int
    cols: int
    input: str = "normal"
    mode: str = "eager"
    defaults: Flags = field(default_factory=lambda: Flags({}), compare=False, repr=False)
    where: str = field(default="", compare=False, repr=False)
    tensors: tuple[tuple[int, int], ...] = ()
    philox_offset: int = 0
    seed_of: str = ""
    n: int = 0

    @property
    def grouped(self) -> GroupedShape:
        """The shapes of a group's tensors; none for a dense case."""
        return GroupedShape(self.tensors)

    @property
    def elements(self) -> int:
        """Elements of the tensor, of all tensors of the group, or of a GEMM's operands and output together.

        Every group of a grouped GEMM has a B, also one without rows.
        """
        return self.rows * self.cols + self.n * (self.rows + self.cols * max(1, len(self.tensors)))

    @property
    def terms(self) -> int:
        """Products that a GEMM adds up; 0 for a recipe of one tensor."""
        return self.rows * self.cols * self.n

    @property
    def work(self) -> int:
        """What the case costs its oracles, in elements of a quantizer; a few thousand terms of a product are one."""
        return self.elements + self.terms // TERMS

    @property
    def launched(self) -> tuple[int, int]:
        """(rows, cols) that a grid covers: those of the tensor, or of a GEMM's output."""
        return self.rows, self.n or self.cols

    @property
    def launched_parts(self) -> tuple[tuple[int, int], ...]:
        """The same of every tensor of a group; none for a dense case."""
        return tuple((rows, self.n or cols) for rows, cols in self.tensors)

    @cached_property
    def shape(self) -> str:
        """The extents as an id spells them: `256x192`, `128+0+256x512` for a group, MxKxN for a GEMM.

        A grouped GEMM has both, `128+0+256x512x1024`.
        """
        extents = str(self.grouped) if self.tensors else f"{self.rows}x{self.cols}"
        return f"{extents}x{self.n}" if self.n else extents

    @cached_property
    def variant(self) -> str:
        """The flags that differ from their defaults, `rht=true,rounding=sr`; `default` if none does."""
        changed = [f"{k}={spell(v)}" for k, v in self.flags.items() if self.defaults.get(k) != v]
        return ",".join(changed) or "default"

    @cached_property
    def problem(self) -> str:
        """The id without the mode: everything that decides the bytes."""
        return f"{self.recipe}/{self.variant}/{self.shape}/{self.input}"

    @cached_property
    def id(self) -> str:
        """`per_token/rht=true,rounding=sr/8192x7168/outliers/graph`: the only key, everywhere."""
        return f"{self.problem}/{self.mode}"

    @cached_property
    def seed(self) -> int:
        """64 bits that depend on `problem` alone, so that eager and graph see the same input and the same bytes."""
        return int.from_bytes(hashlib.sha256((self.seed_of or self.problem).encode()).digest()[:8], "little")

    def dense(self, g: int) -> Case:
        """Tensor g of a group as a case of the group's recipe, whose bytes the group must have in its place.

        It shares the flags that the recipe has, the input, and the seed, which is the Philox key of the whole group. A
        GEMM has no key, and its operands are drawn by the seed of their own group.
        """
        # Imported here because suites are made of cases.
        from harness.suite import suite_of

        recipe = str(self.flags.recipe)
        defaults = suite_of(recipe).defaults
        seed_of = self.seed_of or self.problem
        flags = defaults.replace(**{name: value for name, value in self.flags.items() if name in defaults})
        return Case(
            recipe,
            flags,
            *self.tensors[g],
            self.input,
            self.mode,
            defaults,
            self.where,
            philox_offset=self.philox_offset + g,
            seed_of=f"{seed_of}/group {g}" if self.n else seed_of,
            n=self.n,
        )
