"""From `kernels/S.cu` and a choice of flags to PTX and a cubin, with NVRTC and no GPU.

NVRTC is called directly, because CuPy's own compile appends `-ftz=true`, which changes bytes, after the caller's
options, and its cache does not see included files. The key of the cache here covers the whole include closure.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from harness.errors import CompileError
from harness.files import storage, write_bytes
from harness.jit.geometry import Launch, read_launch
from harness.jit.machine_code import code_digest
from harness.jit.signature import Signature

FLAGS = (
    "-std=c++17", "-ftz=false", "-fmad=false", "-prec-div=true", "-prec-sqrt=true", "-lineinfo", "--ptxas-options=-v",
)  # fmt: skip
ARCHES = ("sm_80", "sm_90a", "sm_100a")

_INCLUDE = re.compile(r"^\s*#\s*include\s*(?P<target>.*)$", re.MULTILINE)
_QUOTED = re.compile(r'"((?:\w+/)*\w+\.cuh?)"\s*(//.*)?')  # a path with neither `..` nor a root


@dataclass(frozen=True)
class Compiled:
    """One instantiation of one kernel for one architecture.

    expression: `kernel<args>` as in C++; symbol: its mangled name; launch: its geometry
    registers, spill_bytes, stack_bytes, shared_bytes: as ptxas reports them
    code_digest: equal for two revisions exactly if they run the same machine code; empty where only PTX was made
    """

    expression: str
    arch: str
    symbol: str
    launch: Launch
    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int
    code_digest: str
    ptx_path: str
    cubin_path: str

    @property
    def ptx(self) -> str:
        return Path(self.ptx_path).read_text()


def instantiation(signature: Signature, flags: Mapping[str, object]) -> str:
    """`kernel<bf16, Rounding::sr>`, each template parameter from the flag of its name; CompileError without one."""
    arguments = []
    for parameter in signature.template:
        if parameter.flag not in flags:
            raise CompileError(
                f"{signature.where}: template parameter {parameter.name!r} of {signature.name} names no flag; "
                f"the flags are {', '.join(flags)}"
            )
        arguments.append(parameter.spell(flags[parameter.flag]))
    return f"{signature.name}<{', '.join(arguments)}>" if arguments else signature.name


def compile_kernel(signature: Signature, flags: Mapping[str, object], arch: str) -> Compiled:
    """Compile one instantiation, or take it from the cache. Raises CompileError with NVRTC's log.

    arch: `sm_90a`, or `compute_90a` for its PTX alone: no machine code, no registers, half the time
    """
    expression = instantiation(signature, flags)
    sources = include_closure(signature.path)
    key_text = json.dumps([sorted(sources.items()), FLAGS, nvrtc_version(), arch, expression])
    key = hashlib.sha256(key_text.encode()).hexdigest()[:32]
    try:
        stored = json.loads((cache_folder() / f"{key}.json").read_text())
        return Compiled(**{**stored, "launch": Launch(**stored["launch"])})
    except (OSError, ValueError, TypeError, KeyError):
        return _compile(signature, expression, sources, arch, key)


def ptx_of(arch: str) -> str:
    """`compute_90a` for `sm_90a`."""
    return arch.replace("sm_", "compute_")


def include_closure(path: Path, folder: Path | None = None) -> dict[str, str]:
    """The file and every file it includes, directly or not, as text by its path below `folder`.

    folder: where every include starts from, whichever file it stands in; the file's own folder, if absent
    Raises CompileError for an include that is not of the form `#include "folder/file.cuh"` or leads out of the folder,
    because the key of the cache could not cover it.
    """
    folder = folder or path.parent
    sources: dict[str, str] = {}
    waiting = [(path.relative_to(folder).as_posix(), "")]
    while waiting:
        current, where = waiting.pop()
        if current in sources:
            continue
        try:
            text = (folder / current).read_text()
        except OSError:
            raise CompileError(f"{where or current}: no file {current!r} in the kernels' folder") from None
        sources[current] = text
        for match in _INCLUDE.finditer(text):
            line = text.count("\n", 0, match.start("target")) + 1
            quoted = _QUOTED.fullmatch(match["target"].strip())
            if not quoted:
                raise CompileError(f'{current}:{line}: only `#include "path/below/kernels.cuh"` is allowed')
            waiting.append((quoted[1], f"{current}:{line}"))
    return sources


def cache_folder() -> Path:
    """Where compiled kernels are kept: `$HARNESS_CACHE`, or a folder in the user's cache. Made if absent."""
    root = os.environ.get("HARNESS_CACHE")
    folder = Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "nvfp4-harness"
    with storage(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@cache
def nvrtc_version() -> str:
    """`13.5`."""
    nvrtc = _nvrtc()
    major, minor = _checked(nvrtc.nvrtcVersion())
    return f"{major}.{minor}"


def _nvrtc():
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise CompileError(
            f"NVRTC is not installed ({error}); `pip install cuda-bindings nvidia-cuda-nvrtc` brings it, no GPU needed"
        ) from None
    return nvrtc


def _compile(signature: Signature, expression: str, sources: Mapping[str, str], arch: str, key: str) -> Compiled:
    main, names = signature.path.name, (expression, f"&{signature.name}_launch")
    log, (symbol, launch_symbol), cubin, ptx = _call_nvrtc(main, sources, names, arch)
    folder = cache_folder()
    resources = _resources(log, symbol)
    compiled = Compiled(
        expression=expression,
        arch=arch,
        symbol=symbol,
        launch=read_launch(ptx.decode(), launch_symbol, signature.name),
        code_digest=code_digest(cubin, ptx.decode(), symbol, resources.items()) if cubin else "",
        ptx_path=str(folder / f"{key}.ptx"),
        cubin_path=str(folder / f"{key}.cubin"),
        **resources,
    )
    write_bytes(Path(compiled.ptx_path), ptx)
    write_bytes(Path(compiled.cubin_path), cubin)
    write_bytes(folder / f"{key}.json", json.dumps(asdict(compiled)).encode())
    return compiled


def _call_nvrtc(
    main: str, sources: Mapping[str, str], names: tuple[str, str], arch: str
) -> tuple[str, list[str], bytes, bytes]:
    """The log, the symbols of two name expressions, the kernel's first, the cubin and the PTX."""
    nvrtc = _nvrtc()
    headers = {name.encode(): text.encode() for name, text in sources.items() if name != main}
    program = _checked(
        nvrtc.nvrtcCreateProgram(sources[main].encode(), main.encode(), len(headers), [*headers.values()], [*headers])
    )
    try:
        for name in names:
            _checked(nvrtc.nvrtcAddNameExpression(program, name.encode()))
        options = [option.encode() for option in (*FLAGS, f"-arch={arch}")]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode()
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(f"{main}: NVRTC refused {names[0]} for {arch}:\n{log.strip()}")
        symbols = [_checked(nvrtc.nvrtcGetLoweredName(program, name.encode())).decode() for name in names]
        cubin = _text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        ptx = _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program).rstrip(b"\0")
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return log, symbols, cubin, ptx


def _resources(log: str, symbol: str) -> dict[str, int]:
    """Registers, spills and shared memory from the lines that `ptxas -v` writes about the kernel `symbol`."""
    _, _, of_kernel = log.partition(f"entry function '{symbol}'")
    of_kernel, _, _ = of_kernel.partition("entry function")

    def number(pattern: str) -> int:
        return sum(int(found) for found in re.findall(pattern, of_kernel))

    return {
        "registers": number(r"Used (\d+) registers"),
        "spill_bytes": number(r"(\d+) bytes spill (?:stores|loads)"),
        "stack_bytes": number(r"(\d+) bytes stack frame"),
        "shared_bytes": number(r"(\d+) bytes smem"),
    }


def _text(size_call, text_call, program) -> bytes:
    buffer = b" " * _checked(size_call(program))
    _checked(text_call(program, buffer))
    return buffer


def _checked(result: tuple):
    """What a call of NVRTC returned besides its status. Raises CompileError for any status but success."""
    status, *values = result
    if int(status) != 0:
        raise CompileError(f"NVRTC: {status.name}")
    return values[0] if len(values) == 1 else tuple(values)
