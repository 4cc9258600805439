"""An exact product in place of a library's, whose machine code only a GPU runs.

The operands are the bytes that are in memory then, so what an earlier kernel decoded wrongly is multiplied as it is.
Sums are exact and rounded once to float32, and a sum of 0 is +0: one of the results that NUMERICS 10.2 allows any order
(see `ptx_emulator.arithmetic.matrix_product`). The epilogue is cuBLAS's: float32 steps, a factor and a beta that are
read on the device, a C that is read only if beta is not 0, and a cast to the type of the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from harness.device.launches import Arrays, LibraryCall
from harness.errors import AccessError
from ptx_emulator.arithmetic.matrix_product import multiply_add
from ptx_emulator.arithmetic.rounding import NAN_F32, bf16_from, bf16_values, canonical, to_odd_sum
from ptx_emulator.memory import WRITTEN, Buffer

PLAYED = ("cublas_gemm", "cublas_scaled_gemm")
HOW = "played by an exact product; the library itself was not run"
_TYPES = {"fp32": np.uint32, "bf16": np.uint16}  # patterns, by the value of the flag dtype


class Touched(NamedTuple):
    """The buffers that a call read and wrote."""

    read: list[Buffer]
    written: list[Buffer]


def play(call: LibraryCall, arrays: Arrays) -> Touched:
    """Make a call of PLAYED in memory. Raises AccessError for what a sanitizer would report of the library's kernel."""
    parameters = [parameter.name for parameter in call.step.signature.call]
    given = dict(zip(parameters, (value for _, value in call.arguments(arrays)), strict=True))
    memory, (m, k, n) = _Memory(call.step.signature.name), (given[extent] for extent in "MKN")
    a = memory.read(given["a_decoded"], (m, k), np.uint16)
    b = memory.read(given["b_decoded"], (n, k), np.uint16)
    sums = multiply_add("bf16", a[None], b.T[None], np.zeros((1, m, n), np.uint32))[0]
    if "factor" not in given:
        memory.write(given["acc"], sums)
        return memory.touched
    dtype, output = str(call.step.flags.dtype), given["output"]
    alpha, beta = memory.read(given["factor"], (2,), np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        out = (sums.view(np.float32).astype(np.float64) * np.float64(alpha)).astype(np.float32)  # the product is exact
        if beta != 0:
            c = memory.read(output, (m, n), _TYPES[dtype])
            added = np.float64(beta) * (bf16_values(c) if dtype == "bf16" else c.view(np.float32)).astype(np.float64)
            out = to_odd_sum(added, out.astype(np.float64)).astype(np.float32)
    memory.write(output, bf16_from(out) if dtype == "bf16" else canonical(out, NAN_F32))
    return memory.touched


class _Memory:
    """The accesses of one call. name: of the call, in faults"""

    def __init__(self, name: str):
        self.name, self.touched = name, Touched([], [])

    def read(self, buffer: Buffer, shape: Sequence[int], dtype: type[np.unsignedinteger]) -> np.ndarray:
        """A matrix of patterns that lies at the beginning of a buffer, line by line."""
        size = self._within("reads", buffer, int(np.prod(shape)) * np.dtype(dtype).itemsize)
        if buffer.written is not None:
            unwritten = np.flatnonzero(buffer.written[:size] != WRITTEN)
            if unwritten.size:
                sentence = (
                    f"reads {size} bytes of buffer {buffer.name!r}, of which {unwritten.size}, the first at byte "
                )
                raise self._fault("unwritten_read", f"{sentence}{unwritten[0]}, are bytes {buffer.missing}")
        self.touched.read.append(buffer)
        return buffer.data[:size].view(dtype).reshape(shape)

    def write(self, buffer: Buffer, patterns: np.ndarray) -> None:
        size = self._within("writes", buffer, patterns.nbytes)
        if not buffer.writable:
            raise self._fault("out_of_bounds", f"writes {size} bytes of buffer {buffer.name!r}, which is read-only")
        buffer.data[:size] = np.ascontiguousarray(patterns).reshape(-1).view(np.uint8)
        if buffer.written is not None:
            buffer.written[:size] = WRITTEN
        self.touched.written.append(buffer)

    def _within(self, verb: str, buffer: Buffer, size: int) -> int:
        if size > len(buffer.data):
            sentence = f"{verb} {size} bytes of buffer {buffer.name!r}, which has {len(buffer.data)} bytes"
            raise self._fault("out_of_bounds", sentence)
        return size

    def _fault(self, kind: str, sentence: str) -> AccessError:
        return AccessError(kind, self.name, f"{sentence}; {HOW}")
