"""Run an exercise on a GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from cuda.bindings import nvrtc
from cuda_source import OPTIONS
from exercises import Exercise, Tensor

from harness.studies.museum.driver import OnGpu, checked, encoded


def cubin(source: str, arch: str) -> bytes:
    """Machine code; ValueError with NVRTC's log."""
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    options = [option.encode() for option in (*OPTIONS, f"-arch={arch}")]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(status) != 0:
        log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
        nvrtc.nvrtcGetProgramLog(program, log)
        raise ValueError(log.decode())
    code = bytearray(checked(nvrtc.nvrtcGetCUBINSize(program)))
    checked(nvrtc.nvrtcGetCUBIN(program, code))
    return bytes(code)


def run(each: Exercise, arch: str) -> dict[str, np.ndarray]:
    """The arrays after a launch."""
    with OnGpu(cubin(each.source, arch), each.arrays) as gpu:

        def argument(given: str | Tensor | int) -> str | bytes | int:
            if isinstance(given, Tensor):
                return encoded(replace(given.map, address=gpu.addresses[given.array]))
            return given

        gpu.launch("k", each.grid, each.block, [argument(given) for given in each.arguments], each.shared)
        return gpu.result()
