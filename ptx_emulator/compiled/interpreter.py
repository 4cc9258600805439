"""The interpreter: straight-line code, block after block, until an instruction that NumPy has to do."""

from __future__ import annotations

import numpy as np
from numba import carray

from ptx_emulator.compiled import layout as at
from ptx_emulator.compiled import opcodes as op
from ptx_emulator.compiled.global_access import access_global
from ptx_emulator.compiled.jit import entry, part, pointer
from ptx_emulator.compiled.lanes import narrow_forms, wide_forms
from ptx_emulator.compiled.product import multiply, multiply_as_hopper
from ptx_emulator.compiled.shared_access import access_shared
from ptx_emulator.compiled.warps import may_use, order_warps, shuffle, votes, whole_warps


@part
def _any(lanes):
    for i in range(lanes.size):
        if lanes[i]:
            return True
    return False


@part
def _all(lanes):
    for i in range(lanes.size):
        if not lanes[i]:
            return False
    return True


@part
def _row(rows, operand, constants, scratch):
    """The row of an operand; a constant is spread over a scratch row, whose width it takes."""
    if operand >= 0:
        return operand
    row = rows[scratch]
    for i in range(row.size):
        row[i] = constants[~operand]
    return np.int32(scratch)


@part
def _merge(kept, result, lanes):
    """Give the lanes their result; the others keep their value."""
    for i in range(lanes.size):
        kept[i] = result[i] if lanes[i] else kept[i]


@part
def _compute(instruction, narrow, wide, constants, partial, lanes):
    """Arithmetic on all lanes; under a mask the others keep their values."""
    code, immediate = np.int64(instruction[at.OPCODE]), np.int64(instruction[at.IMMEDIATE])
    bits, target = instruction[at.WIDE], instruction[at.TARGET]
    free, wide_free = narrow.shape[0] - at.SCRATCH_ROWS, wide.shape[0] - at.SCRATCH_ROWS
    x, y, z = np.int32(free), np.int32(free), np.int32(free)
    wide_x, wide_y, wide_z = np.int32(wide_free), np.int32(wide_free), np.int32(wide_free)
    if bits & at.X_WIDE:
        wide_x = _row(wide, instruction[at.X], constants, wide_free)
    else:
        x = _row(narrow, instruction[at.X], constants, free)
    if bits & at.Y_WIDE:
        wide_y = _row(wide, instruction[at.Y], constants, wide_free + 1)
    else:
        y = _row(narrow, instruction[at.Y], constants, free + 1)
    if bits & at.Z_WIDE:
        wide_z = _row(wide, instruction[at.Z], constants, wide_free + 2)
    else:
        z = _row(narrow, instruction[at.Z], constants, free + 2)
    to_wide = bits & at.TARGET_WIDE
    out = narrow[free + 3] if partial or to_wide else narrow[target]
    if code < op.FIRST_WIDE:
        narrow_forms(code, immediate, out, narrow[x], narrow[y], narrow[z])
    else:
        wide_out = wide[wide_free + 3] if partial or not to_wide else wide[target]
        wide_forms(
            code, immediate, out, narrow[x], narrow[y], narrow[z], wide_out, wide[wide_x], wide[wide_y], wide[wide_z]
        )
        if partial and to_wide:
            _merge(wide[target], wide_out, lanes)
            return
    if partial:
        _merge(narrow[target], out, lanes)


@part
def _exchange(instruction, block, narrow, constants, lanes, context):
    """Shuffles, votes and reductions. False, with nothing changed, unless whole warps execute it."""
    code = np.int64(instruction[at.OPCODE])
    free = narrow.shape[0] - at.SCRATCH_ROWS
    members = _row(narrow, instruction[at.DATA], constants, free + 3)
    if not whole_warps(lanes, narrow[members]):
        return False
    if code == op.WARP_SYNC:
        order_warps(block, lanes, context)
        return True
    x, result = _row(narrow, instruction[at.X], constants, free), narrow[free + 3]
    if code <= op.SHFL_IDX:
        y = _row(narrow, instruction[at.Y], constants, free + 1)
        z = _row(narrow, instruction[at.Z], constants, free + 2)
        in_range = instruction[at.DATA + 1]
        shuffle(code, lanes, result, narrow[max(in_range, 0)], in_range >= 0, narrow[x], narrow[y], narrow[z])
    else:
        votes(code, lanes, result, narrow[x])
    _merge(narrow[instruction[at.TARGET]], result, lanes)
    order_warps(block, lanes, context)
    return True


@part
def _load_parameter(instruction, narrow, wide, lanes, context):
    """`ld.param` at a constant offset: one value for all lanes."""
    size, offset = instruction[at.SIZE], np.int64(instruction[at.IMMEDIATE])
    content = carray(pointer(context[at.PARAMETERS] + offset), (size * instruction[at.COUNT],), np.uint8)
    for j in range(instruction[at.COUNT]):
        value = np.uint64(0)
        for k in range(size):
            value |= np.uint64(content[j * size + k]) << np.uint64(8 * k)
        row = instruction[at.DATA + j]
        for i in range(lanes.size):
            if lanes[i]:
                if size == 8:
                    wide[row, i] = value
                else:
                    narrow[row, i] = np.uint32(value)


@entry("int64(int64[::1], int64, int64, int64, int64)")
def run(context, start, stop, block, at_instruction):
    """Run instructions `start` to `stop` for every block with an active lane, from `block` at `at_instruction` on.

    Returns block << 32 | instruction of the first that NumPy has to do, or -1 at the end.
    """
    blocks, threads = context[at.BLOCKS], context[at.THREADS]
    code = carray(pointer(context[at.CODE]), (context[at.INSTRUCTIONS], at.COLUMNS), np.int32)
    constants = carray(pointer(context[at.CONSTANTS]), (context[at.CONSTANT_COUNT],), np.uint64)
    narrow_shape = (blocks, context[at.NARROW_COUNT], threads)
    every_narrow = carray(pointer(context[at.NARROW_ROWS]), narrow_shape, np.uint32)
    every_wide = carray(pointer(context[at.WIDE_ROWS]), (blocks, context[at.WIDE_COUNT], threads), np.uint64)
    every_lane = carray(pointer(context[at.LANES]), (blocks, threads), np.uint8)
    offsets = carray(pointer(context[at.SCRATCH] + at.OFFSETS), (threads,), np.int64)
    guarded = carray(pointer(context[at.SCRATCH] + at.GUARDED), (threads,), np.uint8)
    banks = carray(pointer(context[at.SCRATCH] + at.BANKS), (32 + 32 * 32,), np.int64)
    room = carray(pointer(context[at.SCRATCH] + at.OPERANDS), (512,), np.float64)
    limits = carray(pointer(context[at.SCRATCH] + at.LIMITS), (4,), np.int64)
    first = at_instruction
    while block < blocks:
        lanes = every_lane[block]
        if not _any(lanes):
            block += 1
            first = start
            continue
        narrow, wide = every_narrow[block], every_wide[block]
        every = bool(context[at.WHOLE]) or _all(lanes)
        for number in range(first, stop):
            instruction = code[number]
            active, whole = lanes, every
            if instruction[at.GUARD] >= 0:
                holds, negated = narrow[instruction[at.GUARD]], np.uint32(instruction[at.NEGATED])
                some = False
                for i in range(threads):
                    chosen = lanes[i] & np.uint8(holds[i] != negated)
                    guarded[i] = chosen
                    some |= chosen != 0
                if not some:
                    continue
                active, whole = guarded, False
            hazard = instruction[at.HAZARD]
            if hazard >= 0 and context[at.WGMMA_WRITERS] and not may_use(hazard, block, active, context):
                return block << 32 | number
            opcode = np.int64(instruction[at.OPCODE])
            done = True
            if opcode < op.SHFL_BFLY:
                _compute(instruction, narrow, wide, constants, not whole, active)
            elif opcode <= op.WARP_SYNC:
                done = _exchange(instruction, block, narrow, constants, active, context)
            elif opcode <= op.MMA_F16_HOPPER:
                operands = instruction[at.DATA :]
                if opcode == op.MMA_F16_HOPPER:
                    done = multiply_as_hopper(operands, narrow, constants, active, room)
                else:
                    done = multiply(operands, opcode == op.MMA_F16, narrow, constants, active, room, limits)
            elif opcode == op.LOAD_PARAMETER:
                _load_parameter(instruction, narrow, wide, active, context)
            elif opcode == op.LOAD_GLOBAL or opcode == op.STORE_GLOBAL or opcode == op.LOAD_CONSTANT:
                done = access_global(
                    instruction, opcode != op.STORE_GLOBAL, opcode == op.LOAD_CONSTANT, block, active, narrow, wide,
                    constants, context, offsets,
                )  # fmt: skip
            elif opcode == op.LOAD_SHARED or opcode == op.STORE_SHARED:
                done = access_shared(
                    instruction, opcode == op.LOAD_SHARED, block, active, narrow, wide, constants, context, offsets,
                    banks,
                )  # fmt: skip
            else:
                done = False
            if not done:
                return block << 32 | number
        block += 1
        first = start
    return -1
