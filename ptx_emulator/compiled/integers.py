"""Integers: one value for each lane of a block, as 32-bit patterns.

`integers` takes an opcode, the row of the result and those of the operands. Expressions have selects in place of
branches wherever that lets LLVM vectorise the loop.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.compiled import opcodes as op
from ptx_emulator.compiled.jit import part

TOP = np.uint32(0x80000000)
ONES = np.uint32(0xFFFFFFFF)


@part
def integers(code, out, x, y, z, immediate):
    """32-bit integer and bit operations, selections and packed 16-bit extremes."""
    n = out.size
    if code == op.MOV:
        for i in range(n):
            out[i] = x[i]
    elif code == op.AND:
        for i in range(n):
            out[i] = x[i] & y[i]
    elif code == op.OR:
        for i in range(n):
            out[i] = x[i] | y[i]
    elif code == op.XOR:
        for i in range(n):
            out[i] = x[i] ^ y[i]
    elif code == op.NOT:
        for i in range(n):
            out[i] = ~x[i]
    elif code == op.ADD:
        for i in range(n):
            out[i] = x[i] + y[i]
    elif code == op.SUB:
        for i in range(n):
            out[i] = x[i] - y[i]
    elif code == op.SHL:
        for i in range(n):
            out[i] = np.uint32(x[i] << (y[i] & np.uint32(31))) if y[i] < 32 else np.uint32(0)
    elif code == op.SHR:
        for i in range(n):
            out[i] = np.uint32(x[i] >> (y[i] & np.uint32(31))) if y[i] < 32 else np.uint32(0)
    elif code == op.SAR:
        for i in range(n):
            out[i] = np.int32(x[i]) >> np.int32(min(y[i], np.uint32(31)))
    elif code == op.MUL:
        for i in range(n):
            out[i] = x[i] * y[i]
    elif code == op.MULHI:
        for i in range(n):
            out[i] = (np.uint64(x[i]) * np.uint64(y[i])) >> np.uint64(32)
    elif code == op.MAD:
        for i in range(n):
            out[i] = x[i] * y[i] + z[i]
    elif code == op.LOP3:
        _lookup(out, x, y, z, immediate)
    elif code == op.PRMT:
        _permute(out, x, y, immediate)
    elif code == op.PRMT_ANY:
        for i in range(n):
            out[i] = _permuted(x[i], y[i], z[i])
    elif code == op.MIN_U:
        for i in range(n):
            out[i] = min(x[i], y[i])
    elif code == op.MAX_U:
        for i in range(n):
            out[i] = max(x[i], y[i])
    elif code == op.MIN_S:
        for i in range(n):
            out[i] = min(np.int32(x[i]), np.int32(y[i]))
    elif code == op.MAX_S:
        for i in range(n):
            out[i] = max(np.int32(x[i]), np.int32(y[i]))
    elif code == op.SELP:
        for i in range(n):
            out[i] = y[i] if x[i] != 0 else z[i]
    elif code == op.NEG:
        for i in range(n):
            out[i] = np.uint32(0) - x[i]
    elif code == op.TRUNCATE:
        for i in range(n):
            out[i] = x[i] & np.uint32(immediate)
    elif code == op.NOT_PREDICATE:
        for i in range(n):
            out[i] = x[i] ^ np.uint32(1)
    elif code == op.PACK_HALVES:
        for i in range(n):
            out[i] = x[i] | y[i] << np.uint32(16)
    elif code == op.HIGH_HALF:
        for i in range(n):
            out[i] = x[i] >> np.uint32(16)
    elif code == op.SIGN_EXTEND:
        shift = np.int32(32 - immediate)
        for i in range(n):
            out[i] = np.int32(x[i] << np.uint32(shift)) >> shift
    else:
        _rarer(code, out, x, y, z, immediate)


@part
def _rarer(code, out, x, y, z, immediate):
    n = out.size
    if code == op.POPC:
        for i in range(n):
            v = x[i] - ((x[i] >> np.uint32(1)) & np.uint32(0x55555555))
            v = (v & np.uint32(0x33333333)) + ((v >> np.uint32(2)) & np.uint32(0x33333333))
            v = (v + (v >> np.uint32(4))) & np.uint32(0x0F0F0F0F)
            out[i] = np.uint32(v * np.uint32(0x01010101)) >> np.uint32(24)
    elif code == op.CLZ:
        for i in range(n):
            count, v = 0, x[i]
            while count < 32 and v & TOP == 0:
                v, count = np.uint32(v << np.uint32(1)), count + 1
            out[i] = count
    elif code == op.DIV_U:
        for i in range(n):
            out[i] = x[i] // max(y[i], np.uint32(1)) if y[i] != 0 else ONES
    elif code == op.REM_U:
        for i in range(n):
            out[i] = x[i] % max(y[i], np.uint32(1)) if y[i] != 0 else ONES
    elif code == op.DIV_S or code == op.REM_S:
        for i in range(n):
            a, b = np.int64(np.int32(x[i])), np.int64(np.int32(y[i]))
            quotient = abs(a) // max(abs(b), np.int64(1))
            quotient = quotient if (a < 0) == (b < 0) else -quotient
            value = quotient if code == op.DIV_S else a - quotient * b
            out[i] = np.uint32(value & np.int64(0xFFFFFFFF)) if b != 0 else ONES
    elif code == op.ABS_X2:
        infinity = np.uint32(immediate)
        for i in range(n):
            low, high = x[i] & np.uint32(0x7FFF), x[i] >> np.uint32(16) & np.uint32(0x7FFF)
            low = np.uint32(0x7FFF) if low > infinity else low
            high = np.uint32(0x7FFF) if high > infinity else high
            out[i] = low | high << np.uint32(16)
    elif code == op.MAX_X2 or code == op.MIN_X2:
        infinity, largest = np.uint32(immediate), code == op.MAX_X2
        for i in range(n):
            low = _extreme_16(x[i] & np.uint32(0xFFFF), y[i] & np.uint32(0xFFFF), infinity, largest)
            high = _extreme_16(x[i] >> np.uint32(16), y[i] >> np.uint32(16), infinity, largest)
            out[i] = low | high << np.uint32(16)


@part
def _extreme_16(a, b, infinity, largest):
    """min or max of 16-bit floats as patterns: a NaN is dropped, -0 is below +0."""
    a_key = (~a & np.uint32(0xFFFF)) if a & np.uint32(0x8000) else a | np.uint32(0x8000)
    b_key = (~b & np.uint32(0xFFFF)) if b & np.uint32(0x8000) else b | np.uint32(0x8000)
    out = a if (a_key >= b_key) == largest else b
    a_nan, b_nan = a & np.uint32(0x7FFF) > infinity, b & np.uint32(0x7FFF) > infinity
    out = b if a_nan else out
    out = a if b_nan else out
    return np.uint32(np.uint32(0x7FFF) if a_nan and b_nan else out)


@part
def _lookup(out, x, y, z, table):
    """`lop3`: the truth table's bit 4a + 2b + c for each bit of a, b, c."""
    masks = np.empty(8, np.uint32)
    for k in range(8):
        masks[k] = ONES if table >> k & 1 else np.uint32(0)
    m0, m1, m2, m3, m4, m5, m6, m7 = masks[0], masks[1], masks[2], masks[3], masks[4], masks[5], masks[6], masks[7]
    for i in range(out.size):
        a, b, c = x[i], y[i], z[i]
        without_a = (~b & ((~c & m0) | (c & m1))) | (b & ((~c & m2) | (c & m3)))
        with_a = (~b & ((~c & m4) | (c & m5))) | (b & ((~c & m6) | (c & m7)))
        out[i] = (~a & without_a) | (a & with_a)


@part
def _permuted(a, b, selector):
    both = np.uint64(b) << np.uint64(32) | np.uint64(a)
    out = np.uint32(0)
    for k in range(4):
        pick = np.uint64(selector) >> np.uint64(4 * k) & np.uint64(15)
        byte = both >> (np.uint64(8) * (pick & np.uint64(7))) & np.uint64(0xFF)
        sign = np.uint64(0xFF) * (byte >> np.uint64(7))
        byte = sign if pick & np.uint64(8) else byte
        out = np.uint32(out | np.uint32(byte << np.uint64(8 * k)))
    return out


@part
def _permute(out, x, y, selector):
    """`prmt` with a constant selector: byte k is byte `digit & 7` of (y, x), or with bit 3 of the digit its sign."""
    s0, s1 = np.uint64(8 * (selector & 7)), np.uint64(8 * (selector >> 4 & 7))
    s2, s3 = np.uint64(8 * (selector >> 8 & 7)), np.uint64(8 * (selector >> 12 & 7))
    if selector & 0x8888:
        for i in range(out.size):
            out[i] = _permuted(x[i], y[i], np.uint32(selector))
        return
    byte = np.uint64(0xFF)
    for i in range(out.size):
        both = np.uint64(y[i]) << np.uint64(32) | np.uint64(x[i])
        low = (both >> s0 & byte) | (both >> s1 & byte) << np.uint64(8)
        out[i] = low | (both >> s2 & byte) << np.uint64(16) | (both >> s3 & byte) << np.uint64(24)
