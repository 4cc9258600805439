"""The largest extents that kernels take. An `…_error` function gives the sentence about what is beyond, or None."""

from __future__ import annotations

# Kernels take extents as int, and the first row of each CTA's tile is an int too. Rows of tiles go on along z, where
# the last layer may reach beyond the last tile, by fewer tiles than there are layers: 2^15 rows and a few tiles at
# most, which must have numbers below 2^31 as well.
LARGEST_EXTENT = (1 << 31) - (1 << 16)

# Kernels of these recipes keep the distance between eight lines of an operand, 4 * K bytes, in 32 bits.
_LARGEST_K = {recipe: (1 << 30) - (1 << 16) for recipe in ("gemm", "gemm_grouped")}


def extent_error(name: str, extent: int) -> str | None:
    if extent <= LARGEST_EXTENT:
        return None
    return f"{name} = {extent} is beyond {LARGEST_EXTENT}, and no kernel takes it"


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
