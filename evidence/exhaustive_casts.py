"""The scalar casts over all 2^32 float32 patterns: the kernel on a GPU, torch on the same GPU, NumPy on every core.

All patterns do not fit in one tensor of a suite, so they are cast in chunks: the kernel's bytes are compared with
torch's on the GPU, and with NumPy's by digest, while every core works on its own range.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from harness.contract.case import Case
from harness.contract.problem import Dense
from harness.expected.expected import oracle_of
from harness.ground.side_by_side import process_pool
from harness.suite.suite import suite_of

PATTERNS = 1 << 32
CHUNK = 1 << 28  # patterns on the GPU at a time
RANGE = 1 << 23  # patterns that a core takes at a time
COLS = 1 << 16


@dataclass(frozen=True)
class CastMismatch:
    """Float patterns whose kernel byte differs from an oracle's. first: bits of the first one, None if unknown"""

    oracle: str
    field: str
    count: int
    first: int | None

    def sentence(self) -> str:
        if self.first is None:
            return f"{self.field}: kernel and {self.oracle} differ somewhere in a range of {self.count:,} patterns"
        value = np.uint32(self.first).view(np.float32)
        where = f"first at {self.first:#010x} ({value!r})"
        return f"{self.field}: kernel and {self.oracle} differ on {self.count:,} bytes, {where}"


def prove(device, progress: Callable[[int], None]) -> Iterator[CastMismatch]:
    """Compare the casts of every float32 pattern; yields mismatches.

    device: a CudaDevice; progress: called with the count of patterns done so far
    """
    case = replace(suite_of("casts").cases("smoke")[0], problem=Dense(CHUNK // COLS, COLS), mode="eager")
    cores = max(1, (os.cpu_count() or 1) - 1)
    with process_pool(cores, "spawn") as pool, ThreadPoolExecutor(cores) as hashers:
        numpy_digests = {start: pool.submit(_numpy_digests, start) for start in range(0, PATTERNS, RANGE)}
        kernel_digests: dict[int, Future[dict[str, str]]] = {}
        program = None
        for start in range(0, PATTERNS, CHUNK):
            bits = np.arange(start, start + CHUNK, dtype=np.uint32).view(np.float32).reshape(case.rows, case.cols)
            if program is None:
                program = device.prepare(case, device.targets[0], {"input": bits}, oracle_of("casts").outputs(case))
            else:
                program.resplit({"input": bits}, {})
            outputs = program.run(0xA5, 0).outputs
            yield from _against_torch(outputs, program.memory.inputs["input"], start)
            host = {name: value.get() for name, value in outputs.items()}
            for offset in range(0, CHUNK, RANGE):
                pieces = {name: value[_bytes_of(name, offset)] for name, value in host.items()}
                kernel_digests[start + offset] = hashers.submit(_digests, pieces)
            progress(start + CHUNK)
        for start, digests in kernel_digests.items():
            theirs = numpy_digests[start].result()
            for name, digest in digests.result().items():
                if digest != theirs[name]:
                    yield CastMismatch("numpy", name, RANGE, None)


def _against_torch(outputs: dict, bits, start: int) -> Iterator[CastMismatch]:
    import cupy
    import torch

    x = torch.from_dlpack(bits).view(torch.float32).reshape(-1, COLS)
    for first in range(0, x.shape[0], x.shape[0] // 8):
        rows = slice(first, first + x.shape[0] // 8)
        for name, expected in oracle_of("casts").torch_oracle(_any_case(), {"input": x[rows]}).items():
            differing = cupy.flatnonzero(outputs[name].reshape(x.shape[0], -1)[rows] != cupy.from_dlpack(expected))
            if differing.size:
                per_byte = 2 if name == "e2m1_data" else 1
                yield CastMismatch(
                    "torch", name, int(differing.size), start + first * COLS + int(differing[0]) * per_byte
                )


def _bytes_of(name: str, offset: int) -> slice:
    per_byte = 2 if name == "e2m1_data" else 1
    return slice(offset // per_byte, (offset + RANGE) // per_byte)


def _numpy_digests(start: int) -> dict[str, str]:
    bits = np.arange(start, start + RANGE, dtype=np.uint32).view(np.float32).reshape(-1, COLS)
    return _digests(oracle_of("casts").numpy_oracle(_any_case(), {"input": bits}))


def _any_case() -> Case:
    return suite_of("casts").cases("smoke")[0]


def _digests(arrays: dict[str, np.ndarray]) -> dict[str, str]:
    return {name: hashlib.sha256(np.ascontiguousarray(value)).hexdigest() for name, value in arrays.items()}
