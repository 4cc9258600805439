"""Shuffles, votes, reductions and matches within a warp.

Arrays are (blocks, threads), with threads a multiple of 32. `participants` has for each lane the lanes of its warp that
take part, as bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ptx_emulator.arithmetic.rounding import NAN_F32
from ptx_emulator.registers import F32, I32, U32, Bits

FULL = U32(0xFFFFFFFF)
LANE = np.arange(32, dtype=U32)


@dataclass(frozen=True)
class Shuffle:
    """The lane that each lane reads, and whether it lies in its segment."""

    source: np.ndarray
    in_range: np.ndarray


def sources(mode: str, offset: Bits, clamp: Bits, threads: int) -> Shuffle:
    """The lane of its warp that each lane reads; its own if the wanted one is out of the segment."""
    lane = np.arange(threads, dtype=I32)[None, :] & 31
    offset, clamp = offset.view(I32), clamp.view(I32)
    offset, segment, last = offset & 31, clamp >> 8 & 31, clamp & 31
    bound = (lane & segment) | (last & ~segment)
    if mode == "up":
        wanted = lane - offset
        in_range = wanted >= bound
    else:
        wanted = {
            "down": lambda: lane + offset,
            "bfly": lambda: lane ^ offset,
            "idx": lambda: (lane & segment) | (offset & ~segment),
        }[mode]()
        in_range = wanted <= bound
    return Shuffle(np.where(in_range, wanted, lane), in_range)


def read(values: Bits, source: np.ndarray) -> Bits:
    """values[..., the lane `source` of the same warp]."""
    blocks, threads = values.shape
    column = source + (np.arange(threads)[None, :] & ~31)
    if column.shape[0] == 1:
        return np.ascontiguousarray(np.take(values, column[0], axis=1))
    return np.take_along_axis(values, column, axis=1)


def ballot(predicate: np.ndarray) -> Bits:
    """The predicates of each warp as 32 bits, for all its lanes. predicate: (blocks, threads) bool"""
    bits = np.packbits(np.ascontiguousarray(predicate), axis=1, bitorder="little").view(U32)
    return np.repeat(bits, 32, axis=1)


def vote(mode: str, predicate: np.ndarray, participants: Bits) -> np.ndarray:
    """`vote.sync`: bool, or bits for a ballot. predicate: (blocks, threads) bool"""
    votes = ballot(predicate) & participants
    if mode == "ballot":
        return votes
    if mode == "all":
        return votes == participants
    if mode == "any":
        return votes != 0
    return (votes == participants) | (votes == 0)


def reduce(compute: np.ufunc, kind: type, values: Bits, participants: Bits) -> Bits:
    """`redux.sync` of integers. values: (blocks, threads) uint32"""
    blocks, threads = values.shape
    by_warp = values.view(kind).reshape(blocks, threads // 32, 32)
    if (participants == FULL).all():
        return np.repeat(compute.reduce(by_warp, axis=2, dtype=kind).view(U32), 32, axis=1)
    out = values.copy()
    flat_values, flat_participants = by_warp.reshape(-1, 32), np.ascontiguousarray(participants).reshape(-1, 32)
    for warp, lane in np.argwhere(flat_participants != 0).tolist():
        mask = int(flat_participants[warp, lane])
        if mask & ((1 << lane) - 1) == 0:
            chosen = (mask >> LANE & 1).astype(bool)
            out.reshape(-1, 32)[warp, chosen] = compute.reduce(flat_values[warp, chosen], dtype=kind).view(U32)
    return out


def match_any(values: Bits, participants: Bits) -> Bits:
    """For each lane, the participants that hold the same value, as bits."""
    blocks, threads = values.shape
    by_warp = values.reshape(-1, 32)
    same = by_warp[:, :, None] == by_warp[:, None, :]
    bits = np.packbits(same, axis=2, bitorder="little").view(U32).reshape(blocks, threads)
    return bits & participants


def maximum_f32(is_max: bool, absolute: bool, keeps_nan: bool) -> Callable[[Bits, Bits], Bits]:
    """`redux.sync` of float32: a function of values and participants."""
    pick = (np.maximum if is_max else np.minimum) if keeps_nan else (np.fmax if is_max else np.fmin)

    def run(values: Bits, participants: Bits) -> Bits:
        values = values & U32(0x7FFFFFFF) if absolute else values
        out = reduce(pick, F32, values, participants)
        return np.where(np.isnan(out.view(F32)), NAN_F32, out)

    return run


REDUCTIONS: dict[str, tuple[np.ufunc, type]] = {
    "add.u32": (np.add, U32),
    "add.s32": (np.add, I32),
    "min.u32": (np.minimum, U32),
    "max.u32": (np.maximum, U32),
    "min.s32": (np.minimum, I32),
    "max.s32": (np.maximum, I32),
    "and.b32": (np.bitwise_and, U32),
    "or.b32": (np.bitwise_or, U32),
    "xor.b32": (np.bitwise_xor, U32),
}
