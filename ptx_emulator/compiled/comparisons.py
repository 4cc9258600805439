"""Comparisons of integers and of float32: one value for each lane of a block, as 32-bit patterns.

`comparisons` takes an opcode, the row of the result and those of the operands. Expressions have selects in place of
branches wherever that lets LLVM vectorise the loop.
"""

from __future__ import annotations

import numpy as np

from ptx_emulator.compiled import opcodes as op
from ptx_emulator.compiled.jit import part


@part
def comparisons(code, out, x, y, fx, fy):
    """Comparisons of 32-bit integers and float32: 1 where they hold, else 0."""
    n = out.size
    if code == op.EQ:
        for i in range(n):
            out[i] = x[i] == y[i]
    elif code == op.NE:
        for i in range(n):
            out[i] = x[i] != y[i]
    elif code == op.LT_U:
        for i in range(n):
            out[i] = x[i] < y[i]
    elif code == op.LE_U:
        for i in range(n):
            out[i] = x[i] <= y[i]
    elif code == op.GT_U:
        for i in range(n):
            out[i] = x[i] > y[i]
    elif code == op.GE_U:
        for i in range(n):
            out[i] = x[i] >= y[i]
    elif code == op.LT_S:
        for i in range(n):
            out[i] = np.int32(x[i]) < np.int32(y[i])
    elif code == op.LE_S:
        for i in range(n):
            out[i] = np.int32(x[i]) <= np.int32(y[i])
    elif code == op.GT_S:
        for i in range(n):
            out[i] = np.int32(x[i]) > np.int32(y[i])
    elif code == op.GE_S:
        for i in range(n):
            out[i] = np.int32(x[i]) >= np.int32(y[i])
    elif code == op.FEQ:
        for i in range(n):
            out[i] = fx[i] == fy[i]
    elif code == op.FNE:
        for i in range(n):
            out[i] = (fx[i] < fy[i]) | (fx[i] > fy[i])
    elif code == op.FLT:
        for i in range(n):
            out[i] = fx[i] < fy[i]
    elif code == op.FLE:
        for i in range(n):
            out[i] = fx[i] <= fy[i]
    elif code == op.FGT:
        for i in range(n):
            out[i] = fx[i] > fy[i]
    elif code == op.FGE:
        for i in range(n):
            out[i] = fx[i] >= fy[i]
    elif code == op.FEQU:
        for i in range(n):
            out[i] = not ((fx[i] < fy[i]) | (fx[i] > fy[i]))
    elif code == op.FNEU:
        for i in range(n):
            out[i] = fx[i] != fy[i]
    elif code == op.FLTU:
        for i in range(n):
            out[i] = not fx[i] >= fy[i]
    elif code == op.FLEU:
        for i in range(n):
            out[i] = not fx[i] > fy[i]
    elif code == op.FGTU:
        for i in range(n):
            out[i] = not fx[i] <= fy[i]
    elif code == op.FGEU:
        for i in range(n):
            out[i] = not fx[i] < fy[i]
    elif code == op.FNUM:
        for i in range(n):
            out[i] = (fx[i] == fx[i]) & (fy[i] == fy[i])
    elif code == op.FNAN:
        for i in range(n):
            out[i] = (fx[i] != fx[i]) | (fy[i] != fy[i])
