"""The rows of a register file: a register gets one, and another may have it once the first is dead.

Lanes on different paths may use one row for different registers, because a lane never reads another's row, except in
exchanges, where both execute the same instruction.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ptx_emulator.machine.basic_blocks import Barrier, Block, Branch, DecodedStep, IndexedBranch, Jump, Terminator

Decoded = Sequence[Sequence[DecodedStep]]  # the steps of every block


def rows(blocks: list[Block], steps: Decoded, kinds: list[np.dtype]) -> tuple[list[int], tuple[int, int], set[int]]:
    """The row of every slot, the row counts of the 32-bit and 64-bit files, and the slots live at the entry."""
    live_in = _live_at_entry(blocks, steps)
    first, last = [-1] * len(kinds), [-1] * len(kinds)
    for when, slots in _uses(blocks, steps, live_in):
        for slot in slots:
            if slot >= 0 and first[slot] < 0:
                first[slot] = when
    for when, slots in _uses(blocks, steps, live_in, backwards=True):
        for slot in slots:
            if slot >= 0 and last[slot] < 0:
                last[slot] = when
    found, counts = [0] * len(kinds), [0, 0]
    free: tuple[list[int], list[int]] = ([], [])
    busy: list[tuple[int, int, int]] = []
    for slot in sorted((slot for slot in range(len(kinds)) if first[slot] >= 0), key=first.__getitem__):
        while busy and busy[0][0] < first[slot]:
            _, file, row = heapq.heappop(busy)
            free[file].append(row)
        file = int(kinds[slot].itemsize == 8)
        if free[file]:
            found[slot] = free[file].pop()
        else:
            found[slot] = counts[file]
            counts[file] += 1
        heapq.heappush(busy, (last[slot], file, found[slot]))
    return found, (counts[0], counts[1]), set(_slots(live_in[0]))


def _uses(
    blocks: list[Block], steps: Decoded, live_in: list[int], backwards: bool = False
) -> Iterator[tuple[int, Iterable[int]]]:
    """Yield the uses of slots in order: by steps, and by being live at the ends of a block, once each."""
    starts = [0, *itertools.accumulate(len(decoded) + 1 for decoded in steps)]
    seen = 0
    order = range(len(blocks))
    for i in reversed(order) if backwards else order:
        at, live_out = starts[i], _live_at_exit(blocks[i], live_in)
        uses = [(at + k, slots) for k, step in enumerate(steps[i], 1) for slots in (step.reads, step.writes)]
        ends = [(at, live_in[i]), (at + len(steps[i]) + 1, live_out)]
        if backwards:
            ends.reverse()
            uses.reverse()
        yield ends[0][0], _slots(ends[0][1] & ~seen)
        yield from uses
        seen |= ends[0][1]
        yield ends[1][0], _slots(ends[1][1] & ~seen)
        seen |= ends[1][1]


def _bits(slots: Iterable[int]) -> int:
    """A set of registers as an integer, because sets of all blocks would take gigabytes; constants are left out."""
    found = 0
    for slot in slots:
        if slot >= 0:
            found |= 1 << slot
    return found


def _slots(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _live_at_entry(blocks: list[Block], steps: Decoded) -> list[int]:
    """For each block, the slots that are read later than its entry."""
    needs, gives = [], []
    for block, decoded in zip(blocks, steps, strict=True):
        need, give = set(), set()
        for step in decoded:
            need.update(slot for slot in step.reads if slot not in give)
            give.update(step.writes)
        needs.append(_bits(need | ({block.membermask} - {None})))
        gives.append(~_bits(give))
    before: list[list[int]] = [[] for _ in blocks]
    for i, block in enumerate(blocks):
        for successor in set(_successors(block.terminator)):
            before[successor].append(i)
    live_in, waiting = list(needs), list(range(len(blocks)))
    queued = set(waiting)
    while waiting:
        i = waiting.pop()
        queued.remove(i)
        live = (_live_at_exit(blocks[i], live_in) & gives[i]) | needs[i]
        if live != live_in[i]:
            live_in[i] = live
            new = [each for each in before[i] if each not in queued]
            waiting += new
            queued.update(new)
    return live_in


def _live_at_exit(block: Block, live_in: list[int]) -> int:
    live = _bits(_needs(block.terminator))
    for successor in _successors(block.terminator):
        live |= live_in[successor]
    return live


def _successors(terminator: Terminator) -> tuple[int, ...]:
    if isinstance(terminator, Jump | Barrier):
        return (terminator.target,)
    if isinstance(terminator, Branch):
        return (terminator.otherwise,) if terminator.target is None else (terminator.target, terminator.otherwise)
    return terminator.targets if isinstance(terminator, IndexedBranch) else ()


def _needs(terminator: Terminator) -> set[int]:
    """The slots that a terminator reads."""
    if isinstance(terminator, Branch):
        return {terminator.predicate}
    if isinstance(terminator, IndexedBranch):
        return {terminator.register}
    if isinstance(terminator, Barrier):
        reduction = terminator.reduction[1:] if terminator.reduction else ()
        return {terminator.number, terminator.count, *reduction} - {None}
    return set()
