"""64-bit integers and float64, and conversions between 32 and 64 bits.

Rows of both widths are passed; an opcode uses those of its operands.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.compiled import opcodes as op
from ptx_emulator.compiled.jit import as_bits, as_double, as_float, as_wide_bits, part
from ptx_emulator.compiled.singles import NAN

NAN_64 = np.uint64(0xFFF8000000000000)


@part
def _pattern(value):
    return np.uint64(as_wide_bits(value)) if value == value else NAN_64


@part
def wide_arithmetic(code, out, x, y, z):
    """64-bit in, 64-bit out."""
    n = out.size
    if code == op.MOV64:
        for i in range(n):
            out[i] = x[i]
    elif code == op.AND64:
        for i in range(n):
            out[i] = x[i] & y[i]
    elif code == op.OR64:
        for i in range(n):
            out[i] = x[i] | y[i]
    elif code == op.XOR64:
        for i in range(n):
            out[i] = x[i] ^ y[i]
    elif code == op.NOT64:
        for i in range(n):
            out[i] = ~x[i]
    elif code == op.ADD64:
        for i in range(n):
            out[i] = x[i] + y[i]
    elif code == op.SUB64:
        for i in range(n):
            out[i] = x[i] - y[i]
    elif code == op.MUL64:
        for i in range(n):
            out[i] = x[i] * y[i]
    elif code == op.MAD64:
        for i in range(n):
            out[i] = x[i] * y[i] + z[i]
    elif code == op.NEG64:
        for i in range(n):
            out[i] = np.uint64(0) - x[i]
    elif code == op.MIN_U64:
        for i in range(n):
            out[i] = min(x[i], y[i])
    elif code == op.MAX_U64:
        for i in range(n):
            out[i] = max(x[i], y[i])
    else:
        _doubles(code, out, x, y)


@part
def _doubles(code, out, x, y):
    for i in range(out.size):
        a, b = as_double(np.int64(x[i])), as_double(np.int64(y[i]))
        if code == op.DADD:
            out[i] = _pattern(a + b)
        elif code == op.DSUB:
            out[i] = _pattern(a - b)
        elif code == op.DMUL:
            out[i] = _pattern(a * b)


@part
def mixed(code, out, x, y, z, wide_out, wide_x, wide_y, wide_z):
    """Shifts by 32-bit counts, selections, and changes of width."""
    n = out.size
    if code == op.SHL64:
        for i in range(n):
            wide_out[i] = wide_x[i] << np.uint64(y[i] & np.uint32(63)) if y[i] < 64 else np.uint64(0)
    elif code == op.SHR64:
        for i in range(n):
            wide_out[i] = wide_x[i] >> np.uint64(y[i] & np.uint32(63)) if y[i] < 64 else np.uint64(0)
    elif code == op.SAR64:
        for i in range(n):
            wide_out[i] = np.int64(wide_x[i]) >> np.int64(min(y[i], np.uint32(63)))
    elif code == op.SELP64:
        for i in range(n):
            wide_out[i] = wide_y[i] if x[i] != 0 else wide_z[i]
    elif code == op.MULWIDE_U:
        for i in range(n):
            wide_out[i] = np.uint64(x[i]) * np.uint64(y[i])
    elif code == op.MULWIDE_S:
        for i in range(n):
            wide_out[i] = np.int64(np.int32(x[i])) * np.int64(np.int32(y[i]))
    elif code == op.MADWIDE_U:
        for i in range(n):
            wide_out[i] = np.uint64(x[i]) * np.uint64(y[i]) + wide_z[i]
    elif code == op.MADWIDE_S:
        for i in range(n):
            wide_out[i] = np.uint64(np.int64(np.int32(x[i])) * np.int64(np.int32(y[i]))) + wide_z[i]
    elif code == op.WIDEN_U:
        for i in range(n):
            wide_out[i] = x[i]
    elif code == op.WIDEN_S:
        for i in range(n):
            wide_out[i] = np.int64(np.int32(x[i]))
    elif code == op.PACK:
        for i in range(n):
            wide_out[i] = np.uint64(y[i]) << np.uint64(32) | np.uint64(x[i])
    elif code == op.NARROW:
        for i in range(n):
            out[i] = np.uint32(wide_x[i] & np.uint64(0xFFFFFFFF))
    elif code == op.HIGH:
        for i in range(n):
            out[i] = wide_x[i] >> np.uint64(32)
    elif code == op.F64_F32:
        for i in range(n):
            wide_out[i] = _pattern(np.float64(as_float(x[i])))
    elif code == op.F32_F64:
        for i in range(n):
            value = np.float32(as_double(np.int64(wide_x[i])))
            out[i] = as_bits(value) if value == value else NAN
    else:
        _compare(code, out, wide_x, wide_y)


@part
def _compare(code, out, x, y):
    for i in range(out.size):
        a, b = np.int64(x[i]), np.int64(y[i])
        if code == op.EQ64:
            out[i] = x[i] == y[i]
        elif code == op.NE64:
            out[i] = x[i] != y[i]
        elif code == op.LT_U64:
            out[i] = x[i] < y[i]
        elif code == op.LE_U64:
            out[i] = x[i] <= y[i]
        elif code == op.GT_U64:
            out[i] = x[i] > y[i]
        elif code == op.GE_U64:
            out[i] = x[i] >= y[i]
        elif code == op.LT_S64:
            out[i] = a < b
        elif code == op.LE_S64:
            out[i] = a <= b
        elif code == op.GT_S64:
            out[i] = a > b
        elif code == op.GE_S64:
            out[i] = a >= b
