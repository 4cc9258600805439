"""Limits on the size of PTX: several times what real compilers emit, so that no text exhausts time or memory."""

from __future__ import annotations

TEXT = 64 << 20  # characters of a module, which may have hundreds of kernels
INSTRUCTIONS = 1 << 15  # of a kernel, with a copy of a function at each call
COPIED = 1 << 23  # characters of functions that are copied into a kernel
REGISTERS = 1 << 18  # of a kernel
HEADER = 1 << 12  # characters of a declaration before its initialiser, and of a name
NESTING = 64  # scopes in one another, and calls inlined in one another
TARGETS = 256  # of a `brx.idx`
INSTRUCTION = 1 << 12  # characters
ALIGNMENT = 1 << 12  # bytes
COUNT = 1 << 12  # variables of a module, or of a kernel
VARIABLE = 1 << 24  # bytes of one variable
VARIABLES = 1 << 26  # bytes of all variables of a module, or of a kernel
PARAMETERS = 32764  # bytes, as in CUDA
LOCAL = 512 << 10  # bytes of a thread, as in CUDA

# The errors that unexpected text can cause in the parser. Each becomes one sentence with the line of the PTX.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
