"""The check and the note of `machine.groups` for registers that a `wgmma` uses asynchronously."""

from __future__ import annotations

import numpy as np
from numba import carray

from ptx_emulator.compiled import layout as at
from ptx_emulator.compiled.jit import part, pointer
from ptx_emulator.registers import WARPGROUP


@part
def _any_of(lanes, first):
    for i in range(first, first + WARPGROUP):
        if lanes[i]:
            return True
    return False


@part
def may_use(number, block, lanes, context):
    """Whether hazard `number` conflicts with no `wgmma` in flight; if so, note it as the writer of its registers."""
    groups, registers = lanes.size // WARPGROUP, context[at.WGMMA_REGISTERS]
    shape = (context[at.BLOCKS] * groups, registers)
    writers = carray(pointer(context[at.WGMMA_WRITERS]), shape, np.int32)
    held = carray(pointer(context[at.WGMMA_HELD]), shape, np.uint8)
    every = carray(pointer(context[at.HAZARDS]), (context[at.HAZARD_COUNT], context[at.HAZARD_WIDTH]), np.int32)
    hazard = every[number]
    reads, end = at.USED + hazard[at.READ_COUNT], at.USED + hazard[at.READ_COUNT] + hazard[at.WRITTEN_COUNT]
    for group in range(groups):
        if not _any_of(lanes, WARPGROUP * group):
            continue
        row = block * groups + group
        writer = np.int32(0 if hazard[at.COPIES] else number + 1)
        for k in range(at.USED, reads):
            if held[row, hazard[k]] & at.ACCUMULATOR:
                return False
            if hazard[at.COPIES]:
                writer = writers[row, hazard[k]]
        for k in range(reads, end):
            if held[row, hazard[k]]:
                return False
        for k in range(reads, end):
            writers[row, hazard[k]] = writer
    return True
