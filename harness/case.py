"""A case: one recipe, one set of flags, one shape, one input, one way to launch. Frozen, and named by its id."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

FlagValue = str | bool | int


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
    rows, cols: extents of the high-precision tensor, elements
    input: name of a distribution, or `file:<path>#<tensor>`
    mode: `eager` or `graph`
    where: `suites/S.yaml:line` of the set that made the case; not part of its identity
    """

    recipe: str
    flags: Flags
    rows: int
    cols: int
    input: str = "normal"
    mode: str = "eager"
    defaults: Flags = field(default_factory=lambda: Flags({}), compare=False, repr=False)
    where: str = field(default="", compare=False, repr=False)

    @cached_property
    def variant(self) -> str:
        """The flags that differ from their defaults, `rht=true,rounding=sr`; `default` if none does."""
        changed = [f"{k}={_spell(v)}" for k, v in self.flags.items() if self.defaults.get(k) != v]
        return ",".join(changed) or "default"

    @cached_property
    def problem(self) -> str:
        """The id without the mode: everything that decides the bytes."""
        return f"{self.recipe}/{self.variant}/{self.rows}x{self.cols}/{self.input}"

    @cached_property
    def id(self) -> str:
        """`per_token/rht=true,rounding=sr/8192x7168/outliers/graph`: the only key, everywhere."""
        return f"{self.problem}/{self.mode}"

    @cached_property
    def seed(self) -> int:
        """64 bits that depend on `problem` alone, so that eager and graph see the same input and the same bytes."""
        return int.from_bytes(hashlib.sha256(self.problem.encode()).digest()[:8], "little")

    @property
    def philox_offset(self) -> int:
        """The last Philox counter word of a dense tensor; group g of a grouped one uses this plus g."""
        return 0


def _spell(value: FlagValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
