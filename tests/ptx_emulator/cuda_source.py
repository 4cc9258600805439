"""CUDA C++ to PTX with NVRTC, under the name `kernel.cu`, with options that keep every rounding."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from cuda.bindings import nvrtc

from ptx_emulator.launches import Module
from ptx_emulator.memory import Buffer

ARCHES = ("sm_90a", "sm_100a")
OPTIONS = ("-std=c++17", "-ftz=false", "-fmad=false", "-prec-div=true", "-prec-sqrt=true", "-lineinfo")


def line_of(source: str, marker: str) -> str:
    """`kernel.cu:7` of the only line that contains `marker`."""
    found = [i for i, line in enumerate(source.splitlines(), 1) if marker in line]
    if len(found) != 1:
        raise ValueError(f"{len(found)} lines contain {marker!r}")
    return f"kernel.cu:{found[0]}"


@cache
def ptx(source: str, arch: str = "sm_90a", folders: Sequence[Path] = ()) -> str:
    """PTX text; ValueError with NVRTC's log. folders: of headers"""
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    options = [option.encode() for option in (*OPTIONS, f"-arch={arch}", *(f"-I{each}" for each in folders))]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(status) != 0:
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = bytearray(size)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise ValueError(log.decode())
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = bytearray(size)
    nvrtc.nvrtcGetPTX(program, text)
    nvrtc.nvrtcDestroyProgram(program)
    return text.decode().rstrip("\0")


@cache
def module(source: str, arch: str = "sm_90a") -> Module:
    """A compiled module, cached; kernels are `extern "C"`."""
    return Module(ptx(source, arch))


def buffer(name: str, array: np.ndarray, **options: bool) -> Buffer:
    """A Buffer over an array, which kernels change in place."""
    return Buffer(name, array.view(np.uint8).reshape(-1), **options)
