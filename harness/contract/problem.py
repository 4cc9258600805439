"""What a case computes on: one tensor, a group of tensors, a product, or a group of products, each with its extents.

`str` of a problem is how a case id spells it: `256x192`, `128+0+256x512`, `128+0+256of1024x512`, `64x512x128`,
`128+0+256x512x1024`, `128+256x384+512x256+384`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import ClassVar

import numpy as np

from harness.contract.group_shape import (
    LARGEST_EXTENT,
    SCALE_PADDING,
    GroupedShape,
    ShapeRepresentation,
    require_extent,
    sum_error,
)
from harness.errors import ContractError

Extents = tuple[int, int]

# Kernels of these recipes keep the distance between eight lines of an operand, 4 * K bytes, in 32 bits.
_LARGEST_K = {recipe: (1 << 30) - (1 << 16) for recipe in ("gemm", "gemm_grouped")}


class Problem:
    """The interface of every kind of problem.

    rows, cols: of the tensor, of a group as one matrix, or M and K of a product
    capacity: elements of an allocation that a group may be a part of; None if it has no more than its tensors
    splits_by: with a capacity, a divisor of every varying extent of every split of the allocation
    n_dims: the N of each of a group of products, where M, K and N may differ; None for any other problem
    elements: of the tensor or the allocation of a group, or of a product's operands and output together
    terms: how many pairs of elements a product multiplies; 0 for a quantizer
    grid_extents: the (rows, cols) that a grid covers: of the tensor, of each tensor of a group, of a product's output
    numbers: the extents by the names that a kernel asks for them
    on_host: the problem as far as the host knows it when it launches
    host_shape: the extents that the host knows, as text
    """

    is_group: ClassVar[bool] = False
    is_gemm: ClassVar[bool] = False

    rows: int
    cols: int
    capacity: int | None = None
    splits_by: int = SCALE_PADDING
    n_dims: tuple[int, ...] | None = None

    @property
    def elements(self) -> int:
        return self.rows * self.cols

    @property
    def terms(self) -> int:
        return 0

    @property
    def grid_extents(self) -> tuple[Extents, ...]:
        return ((self.rows, self.cols),)

    @property
    def numbers(self) -> dict[str, int]:
        return {"rows": self.rows, "cols": self.cols}

    @property
    def on_host(self) -> Problem:
        return self

    def too_large_for(self, recipe: str) -> str | None:
        """A sentence on why a recipe's kernels cannot take this problem although each extent is legal by itself."""
        return None

    @property
    def host_shape(self) -> str:
        return str(self)


@dataclass(frozen=True)
class OnDevice(Sequence[Extents]):
    """Placeholder for the extents of `count` tensors that only the device knows."""

    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int | slice) -> Extents:
        raise ContractError(
            f"the host reads the extents of {self.count} tensors, which lie on the device; "
            "it knows their number and the capacity of their allocation"
        )

    def __iter__(self) -> Iterator[Extents]:
        yield self[0]


@dataclass(frozen=True)
class Dense(Problem):
    """One (rows, cols) tensor."""

    rows: int
    cols: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.cols}"


@dataclass(frozen=True)
class Gemm(Problem):
    """D (m, n) = A (m, k) * B (n, k)^T."""

    is_gemm = True

    m: int
    k: int
    n: int

    def __str__(self) -> str:
        return f"{self.m}x{self.k}x{self.n}"

    @property
    def rows(self) -> int:
        return self.m

    @property
    def cols(self) -> int:
        return self.k

    @property
    def elements(self) -> int:
        return self.m * self.k + self.n * (self.m + self.k)

    @property
    def terms(self) -> int:
        return self.m * self.k * self.n

    def too_large_for(self, recipe: str) -> str | None:
        return k_error(recipe, self.k)

    @property
    def grid_extents(self) -> tuple[Extents, ...]:
        return ((self.m, self.n),)

    @property
    def numbers(self) -> dict[str, int]:
        return {"M": self.m, "K": self.k, "N": self.n}


class _Group(Problem):
    is_group = True

    tensors: Sequence[Extents]
    lines: Extents

    @property
    def group(self) -> GroupedShape:
        return GroupedShape(tuple(self.tensors), self.capacity, self.splits_by)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of extents by which kernels find the tensors."""
        return self.group.arrays

    @property
    def on_host(self) -> _Group:
        """Without the extents of the tensors if the allocation has a capacity: their split may change on the device."""
        return self if self.capacity is None else replace(self, tensors=OnDevice(len(self.tensors)))

    @property
    def _fullest(self) -> tuple[Extents, ...]:
        """A split that takes the most CTAs: tensors about alike that fill the allocation.

        The last tile of each is as full as `splits_by` says, but for the first tensor, which may take what is left.
        """
        (rows, cols), count = self.lines, len(self.tensors)
        filled = min(count, rows // self.splits_by)  # how many have rows
        whole, left = divmod(rows - self.splits_by * filled, SCALE_PADDING)
        each, more = divmod(whole, count)
        return tuple(
            (self.splits_by * (g < filled) + SCALE_PADDING * (each + (g < more)) + left * (g == 0), cols)
            for g in range(count)
        )

    @property
    def numbers(self) -> dict[str, int]:
        return {**super().numbers, "num_tensors": len(self.tensors)}


@dataclass(frozen=True)
class Grouped(_Group):
    """Tensors that lie back to back.

    rows, cols: extents of the allocation as one matrix, (1, elements) where both differ from tensor to tensor
    tensors: (rows, cols) of each
    """

    rows: int
    cols: int
    tensors: Sequence[Extents]
    capacity: int | None = None
    splits_by: int = SCALE_PADDING

    def __str__(self) -> str:
        return str(self.group)

    @property
    def lines(self) -> Extents:
        """The allocation as (rows, cols); as the shortest rows that tensors may have where both extents differ."""
        if self.rows != 1:
            return self.rows, self.cols
        return self.elements // self.splits_by, self.splits_by

    @property
    def host_shape(self) -> str:
        by = f"by{self.splits_by}" if self.splits_by != SCALE_PADDING else ""
        return str(self) if self.capacity is None else f"{len(self.tensors)}of{self.rows}{by}x{self.cols}"

    def part(self, g: int) -> Dense:
        return Dense(*self.tensors[g])

    @property
    def grid_extents(self) -> tuple[Extents, ...]:
        return tuple(self.tensors) if self.capacity is None else self._fullest


@dataclass(frozen=True)
class GroupedGemm(_Group, Gemm):
    """Products D_g (M_g, N_g) = A_g (M_g, K_g) * B_g (N_g, K_g)^T.

    tensors: (M_g, K_g) of each A; either all M_g are alike, or all K_g, unless `n_dims` is given
    m, k, n: M, K and N of all groups, or their sum where they may differ; with a capacity, that of the allocation
    by_k: whether K differs from group to group, and not M
    n_dims: None where all groups have `n`
    """

    tensors: Sequence[Extents]
    capacity: int | None = None
    by_k: bool = False
    n_dims: tuple[int, ...] | None = None

    @classmethod
    def varying(cls, group: GroupedShape, n_dims: Sequence[int]) -> GroupedGemm:
        """Products that share no extent. group: the As"""
        m, k = (sum(group.side(side)) for side in (0, 1))
        return cls(m, k, sum(n_dims), group.tensors, group.capacity, n_dims=tuple(n_dims))

    @staticmethod
    def varying_multiple_of(representation: str) -> int:
        """The divisor of the extents that may differ: 16, as a scale covers 16 elements of K; 1 for rows alone."""
        return 1 if representation == ShapeRepresentation.VARYING_FIRST_DIM else 16

    def __str__(self) -> str:
        return f"{self.group}x{self.spelled_n}"

    @property
    def spelled_n(self) -> str:
        """N as an id spells it, `256`, or `256+384` where it differs."""
        return str(self.n_of(0)) if len(set(self.n_dims or ())) < 2 else "+".join(map(str, self.n_dims))

    def n_of(self, g: int) -> int:
        return self.n if self.n_dims is None else self.n_dims[g]

    def part(self, g: int) -> Gemm:
        return Gemm(*self.tensors[g], self.n_of(g))

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        n_dims = {} if self.n_dims is None else {"n_dims": np.array(self.n_dims, np.int64)}
        return self.group.arrays | n_dims

    @property
    def elements(self) -> int:
        # A group without rows still has its B, and one without K its output.
        if self.capacity is not None:
            count = len(self.tensors)
            of_b, of_output = (self.k, self.m * count) if self.by_k else (self.k * count, self.m)
            return self.m * self.k + self.n * (of_b + of_output)
        return sum(self.part(g).elements for g in range(len(self.tensors)))

    @property
    def terms(self) -> int:
        if self.n_dims is None:
            return super().terms
        return sum(self.part(g).terms for g in range(len(self.tensors)))

    def too_large_for(self, recipe: str) -> str | None:
        for number, (_, k) in enumerate(self.tensors):
            error = k_error(recipe, k)
            if error:
                return f"tensor {number}: {error}"
        if self.capacity is not None:  # by K, one tensor may have all of it, which the host does not know
            error = k_error(recipe, self.k, "the capacity along K")
            if error:
                return error
        if self.n_dims is None:
            return lines_error(len(self.tensors), self.n)
        return next(filter(None, (sum_error(g, "N", end) for g, end in enumerate(accumulate(self.n_dims)))), None)

    @property
    def lines(self) -> Extents:
        return self.m, self.k

    @property
    def host_shape(self) -> str:
        return str(self) if self.capacity is None else f"{len(self.tensors)}of{self.m}x{self.k}x{self.n}"

    @property
    def grid_extents(self) -> tuple[Extents, ...]:
        if self.by_k:
            return ((self.m, self.n),) * len(self.tensors)
        tensors = self.tensors if self.capacity is None else self._fullest
        return tuple((rows, self.n_of(g)) for g, (rows, _) in enumerate(tensors))

    @property
    def fitted(self) -> GroupedGemm:
        """The group in an allocation that it fills."""
        whole = {"k": sum(k for _, k in self.tensors)} if self.by_k else {"m": sum(m for m, _ in self.tensors)}
        return self if self.capacity is None else replace(self, capacity=None, **whole)


def require_n(kind: ShapeRepresentation, n_dims: Sequence[int], multiple_of: int) -> None:
    """Raise ContractError, with the number of the product, for an N_g that groups of products do not have."""
    varies = kind is ShapeRepresentation.VARYING_BOTH_DIMS
    for number, n in enumerate(n_dims):
        if varies:
            require_extent(number, "N", n, multiple_of, varies)
        elif n != n_dims[0]:
            raise ContractError(
                f"tensor {number} has N = {n} where tensor 0 has {n_dims[0]}; in {kind} all products have the same N, "
                f"which may differ in {ShapeRepresentation.VARYING_BOTH_DIMS}"
            )


def k_error(recipe: str, k: int, name: str = "K") -> str | None:
    """The sentence about a K that is too large. recipe: the recipe whose kernels multiply"""
    most = _LARGEST_K.get(recipe, LARGEST_EXTENT)
    return f"{name} = {k} is beyond {most}, and no kernel of {recipe} takes it" if k > most else None


def lines_error(count: int, n: int) -> str | None:
    """The sentence about too many lines of B, for `count` products of N columns each."""
    lines = count * n
    if lines <= LARGEST_EXTENT:
        return None
    most = LARGEST_EXTENT // count // 16 * 16  # N is a multiple of 16
    return (
        f"N = {n} of {count} products is {lines} lines of B, beyond {LARGEST_EXTENT}, and no kernel takes as many; "
        f"N of {count} products is at most {most}"
    )
