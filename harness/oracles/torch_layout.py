"""Places of bytes: nibbles in a byte, scale bytes in padded compact order and in 128x4 GEMM tiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch.nn.functional import pad

_TILE = 128


def pack(codes: torch.Tensor) -> torch.Tensor:
    """(..., n) uint8 codes to (..., n/2) bytes, the even element in the low nibble."""
    even, odd = codes.unflatten(-1, (-1, 2)).unbind(-1)
    return even | (odd << 4)


def padded_shape(rows: int, blocks: int) -> tuple[int, int]:
    """Shape of the allocation of (rows, blocks) scale bytes: whole tiles of 128 x 4."""
    return -(-rows // _TILE) * _TILE, -(-blocks // 4) * 4


def swizzle(scale_inv: torch.Tensor) -> torch.Tensor:
    """1.7: compact (R, C) scale bytes to GEMM tiles of the padded shape; padding is 0."""
    rows, cols = padded_shape(*scale_inv.shape)
    whole = pad(scale_inv, (0, cols - scale_inv.shape[1], 0, rows - scale_inv.shape[0]))
    return whole.view(rows // _TILE, 4, 32, cols // 4, 4).permute(0, 3, 2, 1, 4).reshape(rows, cols)


def unswizzle(scale_inv: torch.Tensor) -> torch.Tensor:
    rows, cols = scale_inv.shape
    return scale_inv.view(rows // _TILE, cols // 4, 32, 4, 4).permute(0, 3, 2, 1, 4).reshape(rows, cols)


def slabs(rows: int, cols: int, elements: int) -> Iterator[tuple[slice, slice]]:
    """Cut a (rows, cols) matrix into pieces of about `elements`, each starting on a multiple of 128 in both axes.

    A piece keeps whole rows while 128 of them fit, and has at least 128 x 128 elements unless the matrix ends. So no
    16-block, 16x16 tile or 1x64 window is cut. A larger matrix is cut at least once, so that small cases show it.
    """
    if rows == 0 or cols == 0:
        return
    elements = max(_TILE * _TILE, min(elements, rows * cols // 2))
    width = min(cols, elements // _TILE // _TILE * _TILE)
    height = elements // width // _TILE * _TILE
    for top in range(0, rows, height):
        for left in range(0, cols, width):
            yield slice(top, min(top + height, rows)), slice(left, min(left + width, cols))


def move_group(
    tensors: Mapping[str, torch.Tensor], extents: Sequence[tuple[int, int]], columnwise: bool, to_tiles: bool
) -> dict[str, torch.Tensor]:
    """1.7 for the scale bytes of all tensors, back to back: `swizzled_scale_inv`, or `scale_inv`, flat uint8.

    extents: (rows, cols) of each tensor; an empty one has no scale bytes
    """
    compact, tiles = "scale_inv", "swizzled_scale_inv"
    source, target, move = (compact, tiles, swizzle) if to_tiles else (tiles, compact, unswizzle)
    turned = [(cols, rows) if columnwise else (rows, cols) for rows, cols in extents]
    shapes = [padded_shape(lines, length // 16) for lines, length in turned]
    pieces = tensors[source].split([rows * cols for rows, cols in shapes])
    moved = [move(piece.view(shape)).flatten() for piece, shape in zip(pieces, shapes, strict=True) if piece.numel()]
    return {target: torch.cat([tensors[source][:0], *moved])}
