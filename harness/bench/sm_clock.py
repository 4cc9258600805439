"""The SM clock, in MHz, between two points of a stream."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from harness.device.cuda import CudaDevice
from harness.device.cuda_code import load
from harness.jit.compile import compile_kernel
from harness.jit.signature import read_signatures

MOST = 4096  # readings between two calls of `restart`
_LARGEST = 10_000  # MHz; beyond it, the two readings came from different counters


class SmClock:
    """Readings on the current stream, copied from the GPU by `mhz`."""

    def __init__(self, device: CudaDevice):
        import cupy

        signature = read_signatures("sm_clock", Path(__file__).parent)["sm_clock"]
        self._function = load(compile_kernel(signature, {}, device.targets[0]))
        self._readings = cupy.zeros((MOST, 3), cupy.uint64)
        self._count = 0

    def restart(self) -> None:
        self._count = 0

    def read(self) -> None:
        """Queue a reading; beyond MOST readings, the last slot is overwritten."""
        self._count = min(self._count + 1, MOST)
        self._function((1,), (1,), (self._readings[self._count - 1],))

    def mhz(self) -> list[float]:
        """Between each reading and the next, once they have happened; 0 where another multiprocessor answered."""
        taken = self._readings[: self._count].get().astype(float)
        found = []
        for (cycles_then, ns_then, sm_then), (cycles, ns, sm) in pairwise(taken):
            passed = ns - ns_then
            mhz = (cycles - cycles_then) / passed * 1e3 if passed > 0 and sm == sm_then else 0.0
            found.append(mhz if 0 < mhz < _LARGEST else 0.0)
        return found
