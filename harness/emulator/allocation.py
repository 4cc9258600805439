"""The rows of a register file: a register gets one, and another may have it once the first is dead.

Lanes on different paths may use one row for different registers, because a lane never reads another's row, except in
exchanges, where both execute the same instruction.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from harness.emulator.machine.basic_blocks import Barrier, Block, Branch, DecodedStep, IndexedBranch, Jump, Terminator

Decoded = Sequence[Sequence[DecodedStep]]  # the steps of every block


def rows(blocks: list[Block], steps: Decoded, kinds: list[np.dtype]) -> tuple[list[int], tuple[int, int], set[int]]:
    """The row of every slot, the rows of 32-bit and of 64-bit files, and the slots live at the entry."""
    live_in = _live_at_entry(blocks, steps)
    first, last = [-1] * len(kinds), [-1] * len(kinds)
    at = 0
    for block, decoded, live in zip(blocks, steps, live_in, strict=True):
        uses = [live]
        for step in decoded:
            uses += [step.reads, step.writes]
        uses.append(_live_at_exit(block, live_in))
        for k, slots in enumerate(uses):
            when = at + (k + 1 >> 1)
            for slot in slots:
                if slot >= 0:
                    if first[slot] < 0:
                        first[slot] = when
                    last[slot] = when
        at += len(decoded) + 1
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
    return found, (counts[0], counts[1]), {slot for slot in live_in[0] if slot >= 0}


def _live_at_entry(blocks: list[Block], steps: Decoded) -> list[set[int]]:
    """For each block, the slots that are read later than its entry."""
    needs, gives = [], []
    for block, decoded in zip(blocks, steps, strict=True):
        need, give = set(), set()
        for step in decoded:
            need.update(slot for slot in step.reads if slot not in give)
            give.update(step.writes)
        needs.append(need | ({block.membermask} - {None}))
        gives.append(give)
    live_in = [set(need) for need in needs]
    changed = True
    while changed:
        changed = False
        for i in reversed(range(len(blocks))):
            live = (_live_at_exit(blocks[i], live_in) - gives[i]) | needs[i]
            if live != live_in[i]:
                live_in[i], changed = live, True
    return live_in


def _live_at_exit(block: Block, live_in: list[set[int]]) -> set[int]:
    live = _needs(block.terminator)
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
