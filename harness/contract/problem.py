"""What a case computes on: one tensor, a group of tensors, a product, or a group of products, each with its extents.

`str` of a problem is how a case id spells it: `256x192`, `128+0+256x512`, `64x512x128`, `128+0+256x512x1024`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.contract.group_shape import GroupedShape

Extents = tuple[int, int]


class Problem:
    """What every kind of problem can be asked.

    rows, cols: of the tensor, of a group as one matrix, or M and K of a product
    elements: of the tensor or the group, or of a product's operands and output together
    terms: how many pairs of elements a product multiplies; 0 for a quantizer
    grid_extents: the (rows, cols) that a grid covers: of the tensor, of each tensor of a group, of a product's output
    numbers: the extents by the names that a kernel asks for them
    """

    is_group: ClassVar[bool] = False
    is_gemm: ClassVar[bool] = False

    rows: int
    cols: int

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

    @property
    def grid_extents(self) -> tuple[Extents, ...]:
        return ((self.m, self.n),)

    @property
    def numbers(self) -> dict[str, int]:
        return {"M": self.m, "K": self.k, "N": self.n}


class _Group(Problem):
    is_group = True

    tensors: tuple[Extents, ...]

    @property
    def group(self) -> GroupedShape:
        return GroupedShape(self.tensors)

    @property
    def numbers(self) -> dict[str, int]:
        return {**super().numbers, "num_tensors": len(self.tensors)}


@dataclass(frozen=True)
class Grouped(_Group):
    """Tensors that lie back to back.

    rows, cols: extents of all as one matrix, (1, elements) where both differ from tensor to tensor
    tensors: (rows, cols) of each
    """

    rows: int
    cols: int
    tensors: tuple[Extents, ...]

    def __str__(self) -> str:
        return str(self.group)

    def part(self, g: int) -> Dense:
        return Dense(*self.tensors[g])

    @property
    def grid_extents(self) -> tuple[Extents, ...]:
        return self.tensors


@dataclass(frozen=True)
class GroupedGemm(_Group, Gemm):
    """Products D_g (M_g, n) = A_g (M_g, k) * B_g (n, k)^T. m: the sum of all M_g; tensors: (M_g, k) of each A"""

    tensors: tuple[Extents, ...]

    def __str__(self) -> str:
        return f"{self.group}x{self.n}"

    def part(self, g: int) -> Gemm:
        return Gemm(*self.tensors[g], self.n)

    @property
    def elements(self) -> int:
        # A group without rows still has its B.
        return self.m * self.k + self.n * (self.m + self.k * len(self.tensors))

    @property
    def grid_extents(self) -> tuple[Extents, ...]:
        return tuple((rows, self.n) for rows, _ in self.tensors)
