"""float32: one value for each lane of a block, as 32-bit patterns.

`singles` takes an opcode, the row of the result and those of the operands. Expressions have selects in place of
branches wherever that lets LLVM vectorise the loop.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.compiled import opcodes as op
from ptx_emulator.compiled.jit import as_bits, as_double, as_float, as_wide_bits, part

NAN = np.uint32(0x7FFFFFFF)
TOP = np.uint32(0x80000000)
MAGNITUDE = np.uint32(0x7FFFFFFF)


@part
def _pattern(value):
    """The bits of a result, in which every NaN is one."""
    return as_bits(value) if value == value else NAN


@part
def odd_sum(a, b):
    """a + b of float64, rounded to odd; see `ptx_emulator.arithmetic.rounding`."""
    total = a + b
    from_b = total - a
    error = (a - (total - from_b)) + (b - from_b)
    bits = as_wide_bits(total)
    outwards = np.int64(1) if (error > 0) == (total > 0) else np.int64(-1)
    inexact = (abs(error) > 0) & (bits & np.int64(1) == 0)
    return as_double(bits + outwards if inexact else bits)


@part
def _toward_zero(value):
    """The pattern of a float64 rounded to float32 toward zero."""
    near = np.float32(value)
    bits = _pattern(near)
    return np.uint32(bits - np.uint32(1)) if abs(np.float64(near)) > abs(value) else bits


@part
def _extreme(a, b, largest):
    """min or max of float32 patterns: a NaN is dropped, -0 is below +0."""
    x, y = as_float(a), as_float(b)
    out = a if (x > y) == largest else b
    out = (a & b if largest else a | b) if x == y else out
    out = b if x != x else out
    out = (NAN if x != x else a) if y != y else out
    return np.uint32(out)


@part
def singles(code, out, x, y, z, fx, fy, fz):
    """float32 arithmetic, rounded once."""
    n = out.size
    if code == op.FADD:
        for i in range(n):
            out[i] = _pattern(fx[i] + fy[i])
    elif code == op.FSUB:
        for i in range(n):
            out[i] = _pattern(fx[i] - fy[i])
    elif code == op.FMUL:
        for i in range(n):
            out[i] = _pattern(fx[i] * fy[i])
    elif code == op.FMA:
        for i in range(n):
            # A product of two float32 is exact in float64.
            out[i] = _pattern(np.float32(odd_sum(np.float64(fx[i]) * np.float64(fy[i]), np.float64(fz[i]))))
    elif code == op.FMA_RZ:
        for i in range(n):
            out[i] = _toward_zero(odd_sum(np.float64(fx[i]) * np.float64(fy[i]), np.float64(fz[i])))
    elif code == op.FADD_RZ:
        for i in range(n):
            out[i] = _toward_zero(odd_sum(np.float64(fx[i]), np.float64(fy[i])))
    elif code == op.FMUL_RZ:
        for i in range(n):
            out[i] = _toward_zero(np.float64(fx[i]) * np.float64(fy[i]))
    elif code == op.FMAX:
        for i in range(n):
            out[i] = _extreme(x[i], y[i], True)
    elif code == op.FMIN:
        for i in range(n):
            out[i] = _extreme(x[i], y[i], False)
    elif code == op.FABS:
        for i in range(n):
            out[i] = x[i] & MAGNITUDE if fx[i] == fx[i] else NAN
    elif code == op.FNEG:
        for i in range(n):
            out[i] = x[i] ^ TOP if fx[i] == fx[i] else NAN
    elif code == op.FDIV:
        for i in range(n):
            out[i] = _pattern(fx[i] / fy[i])
    elif code == op.FRCP:
        for i in range(n):
            out[i] = _pattern(np.float32(1) / fx[i])
    elif code == op.FSQRT:
        for i in range(n):
            out[i] = _pattern(np.sqrt(fx[i]))
    elif code == op.COPYSIGN:
        for i in range(n):
            out[i] = (x[i] & TOP) | (y[i] & MAGNITUDE)
