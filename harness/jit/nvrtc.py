"""NVRTC, called directly, because CuPy's own compile appends `-ftz=true`, which changes bytes, after the options."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from harness.errors import CompileError, NoDevice
from harness.text import one_line

# NVRTC compiles the name of each kernel as a separate line, in a file of this name, after the whole source.
UNNAMED = re.compile(r"__nv_name_map\(\d+\): error: (.+)\n\s*#pragma nv_mangled_name (.+)")


@dataclass(frozen=True)
class Built:
    """The result of compiling one program. symbols: mangled name by name expression; cubin: empty for `compute_*`"""

    log: str
    symbols: Mapping[str, str]
    cubin: bytes
    ptx: str


@cache
def nvrtc_version() -> str:
    """NVRTC's version, such as `13.0`."""
    major, minor = _checked(_nvrtc().nvrtcVersion())
    return f"{major}.{minor}"


@cache
def nvrtc_build() -> str:
    """The line in which the compiler names itself in PTX, because nvrtcVersion() leaves out the third number."""
    ptx = build("empty.cu", {"empty.cu": ""}, (), ("-arch=compute_80",)).ptx
    return next(line for line in ptx.splitlines() if "compilation tools" in line)


def build(main: str, sources: Mapping[str, str], names: Sequence[str], options: Sequence[str]) -> Built:
    """Compile the text `sources[main]`, whose includes are the other sources. Raises CompileError with NVRTC's log.

    Raises NoDevice for an option that this NVRTC does not know, such as an architecture, and if it is not installed.

    names: kernels and variables, as C++ expressions, that the program must have
    """
    nvrtc = _nvrtc()
    headers = {name.encode(): text.encode() for name, text in sources.items() if name != main}
    program = _checked(
        nvrtc.nvrtcCreateProgram(sources[main].encode(), main.encode(), len(headers), [*headers.values()], [*headers])
    )
    try:
        for name in names:
            _checked(nvrtc.nvrtcAddNameExpression(program, name.encode()))
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode()
        if status == nvrtc.nvrtcResult.NVRTC_ERROR_INVALID_OPTION:
            raise NoDevice(f"NVRTC {nvrtc_version()} does not know an option: {one_line(log.strip(chr(0)))}")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(log.strip("\0 \n"))
        symbols = {name: _checked(nvrtc.nvrtcGetLoweredName(program, name.encode())).decode() for name in names}
        cubin = _text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        ptx = _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program).rstrip(b"\0").decode()
    finally:
        nvrtc.nvrtcDestroyProgram(program)
        # NVRTC puts handlers back as ones that restart calls, and a thread that waits would not notice a signal.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.siginterrupt(number, True)
    return Built(log, symbols, cubin, ptx)


def _nvrtc():
    """The bindings, with their library loaded. Raises NoDevice where either is missing."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:  # a RuntimeError for a library that is not found
        raise NoDevice(
            f"there is no NVRTC ({one_line(str(error))}); `pip install cuda-bindings nvidia-cuda-nvrtc` brings it, "
            "no GPU needed"
        ) from None
    return nvrtc


def _text(size_call, text_call, program) -> bytes:
    # Not bytes: NVRTC writes into it, and Python shares one object among all equal bytes of length 1, such as an empty
    # log.
    buffer = bytearray(_checked(size_call(program)))
    _checked(text_call(program, buffer))
    return bytes(buffer)


def _checked(result: tuple):
    """The results of an NVRTC call without its status. Raises CompileError for any status but success."""
    status, *values = result
    if int(status) != 0:
        raise CompileError(f"NVRTC: {status.name}")
    return values[0] if len(values) == 1 else tuple(values)
