"""Live registers of each step: dead ones are dropped, so that their memory is reused while it is in cache."""

from __future__ import annotations

from harness.emulator.instructions.steps import releasing
from harness.emulator.machine.basic_blocks import Barrier, Block, Branch, IndexedBranch, Jump, Terminator
from harness.emulator.registers import Bits


def release_dead(blocks: list[Block], zeros: list[Bits]) -> None:
    """Set the steps of every block, which drop registers after their last use."""
    written = {slot for block in blocks for step in block.decoded for slot in step.writes}
    live_in = _live_at_entry(blocks)
    for block in blocks:
        live = _live_at_exit(block, live_in)
        steps = []
        for step in reversed(block.decoded):
            dead = ((step.reads | step.writes) - live) & written
            if dead:
                steps.append(releasing(tuple(dead), zeros))
            steps.append(step.run)
            live -= step.writes
            live |= step.reads
        block.steps = steps[::-1]


def _live_at_entry(blocks: list[Block]) -> list[set[int]]:
    """For each block, the slots that are read later than its entry."""
    needs, gives = [], []
    for block in blocks:
        need, give = set(), set()
        for step in block.decoded:
            need |= step.reads - give
            give |= step.writes
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
