"""Philox4x32-10 in torch int64 lanes, and the random byte of every element: NUMERICS 2.9.

A 32-bit word lives in an int64. The product of two words may pass 2^63 and wrap, which keeps all 64 bits of the
unsigned product in two's complement; the mask after the shift takes away the copies of the sign.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox(counter: Sequence[torch.Tensor], key: tuple[int, int]) -> list[torch.Tensor]:
    """The four output words of each counter.

    counter: four int64 tensors that broadcast together, values below 2^32, word 0 first
    key: two words below 2^32
    returns: four int64 tensors of the broadcast shape, values below 2^32
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            ((p1 >> 32) & _WORD) ^ c1 ^ k0,
            p1 & _WORD,
            ((p0 >> 32) & _WORD) ^ c3 ^ k1,
            p0 & _WORD,
        )
        k0, k1 = (k0 + _KEY_STEPS[0]) & _WORD, (k1 + _KEY_STEPS[1]) & _WORD
    return list(torch.broadcast_tensors(c0, c1, c2, c3))


def element_bits(block: torch.Tensor, direction: int, seed: int, offset: int) -> torch.Tensor:
    """The random byte of every element of the given blocks.

    block: (...) int64, row-major index of each 16-element block in its output
    direction: 0 for the rowwise output, 1 for the columnwise one
    seed: 64-bit key, low word first
    offset: the last counter word
    returns: (..., 16) uint8
    """
    fixed = [torch.full((), word, dtype=torch.int64, device=block.device) for word in (direction, offset)]
    words = philox([block & _WORD, block >> 32, *fixed], (seed & _WORD, seed >> 32))
    # NOTE: reading a word as four bytes takes bits 0-7 first only on a little-endian host, as every CUDA host is.
    return torch.stack(words, dim=-1).to(torch.int32).view(torch.uint8)
