"""Run an exercise on a GPU, in another process: one that fails leaves a context that no other can use."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from functools import lru_cache
from multiprocessing.connection import Connection

import numpy as np
from arithmetic_exercises import ARITHMETIC, arithmetic
from cuda.bindings import nvrtc
from cuda_source import OPTIONS
from exercises import ALL, BEFORE, Exercise, Tensor
from probes import PROBES

from evidence.museum.driver import OnGpu, checked, device, encoded

_BY_NAME = {each.name: each for each in (*ALL, *BEFORE, *(probe.exercise for probe in PROBES))}
SECONDS = 20.0  # an exercise may take, with the start of a process: several wait for ever if a copy never comes


def named(name: str) -> Exercise:
    return arithmetic(name) if name in ARITHMETIC else _BY_NAME[name]


@lru_cache(maxsize=8)
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


class Worker:
    """A process with a context of its own, which is another after a failure."""

    def __init__(self) -> None:
        self._process: multiprocessing.Process | None = None
        self._here: Connection

    def run(self, name: str) -> dict[str, np.ndarray]:
        """The arrays after the exercise of this name. Raises RuntimeError for one that fails or does not end."""
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._here, there = context.Pipe()
            self._process = context.Process(target=_serve, args=(there,), daemon=True)
            self._process.start()
            there.close()
        self._here.send(name)
        try:
            found = self._here.recv() if self._here.poll(SECONDS) else f"no end within {SECONDS:g} s"
        except EOFError:
            found = "its process died"
        if isinstance(found, str):
            self.end()
            raise RuntimeError(f"{name}: {found}")
        return found

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._here.close()
            self._process = None


def _serve(connection: Connection) -> None:
    arch = device()
    while True:
        try:
            name = connection.recv()
        except EOFError:
            return
        try:
            connection.send(run(named(name), arch or ""))
        except Exception as error:  # told to the one that asks, who ends this process
            connection.send(f"{type(error).__name__}: {error}")
