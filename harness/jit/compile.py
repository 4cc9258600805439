"""From `kernels/S.cu` and a choice of flags to PTX and a cubin, with NVRTC and no GPU.

The flags are ours and in one place, because two of them change bytes: `-ftz=false` and `-fmad=false`. CuPy's own
compile appends `-ftz=true` after the caller's options, and its cache does not see included files; so NVRTC is driven
directly, and the key of the cache covers the whole include closure.
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
    "-std=c++17",
    "-ftz=false",
    "-fmad=false",
    "-prec-div=true",
    "-prec-sqrt=true",
    "-lineinfo",
    "--ptxas-options=-v",
)
ARCHES = ("sm_80", "sm_90a", "sm_100a")

_INCLUDE = re.compile(r"^\s*#\s*include\s*(?P<target>.*)$", re.MULTILINE)
_QUOTED = re.compile(r'"((?:\w+/)*\w+\.cuh?)"\s*(//.*)?')  # a path with neither `..` nor a root


@dataclass(frozen=True)
class Compiled:
    """One instantiation of one kernel for one architecture.

    expression: `kernel<args>` as in C++; symbol: its mangled name; launch: its geometry
    registers, spill_bytes, stack_bytes, shared_bytes: as ptxas reports them
    code_digest: hash of code, constants and resources, by which two revisions run the same machine code or not;
        empty where only PTX was made
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
        """The PTX text."""
        return Path(self.ptx_path).read_text()


def instantiation(signature: Signature, flags: Mapping[str, object]) -> str:
    """`kernel<bf16, Rounding::sr>` with every template parameter taken from the flag of its name.

    Raises CompileError if a template parameter names no flag.
    """
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
    """Compile one instantiation, or take it from the cache.

    arch: `sm_90a`, or `compute_90a` for its PTX alone: no machine code, no registers, half the time. The cache lies in
    `$HARNESS_CACHE`, or in the user's cache folder. Raises CompileError with NVRTC's log.
    """
    expression = instantiation(signature, flags)
    sources = include_closure(signature.path)
    key = _key(sources, expression, arch)
    try:
        stored = json.loads((cache_folder() / f"{key}.json").read_text())
        return Compiled(**{**stored, "launch": Launch(**stored["launch"])})
    except (OSError, ValueError, TypeError, KeyError):
        return _compile(signature, expression, sources, arch, key)


def ptx_of(arch: str) -> str:
    """The architecture that stands for the PTX alone of `sm_90a`: `compute_90a`."""
    return arch.replace("sm_", "compute_")


def include_closure(path: Path, folder: Path | None = None) -> dict[str, str]:
    """The file and every file it includes, directly or not, as text by its path below `folder`.

    folder: where every include starts from, whichever file it stands in; the file's own folder, if absent
    Raises CompileError for an include that is not of the form `#include "folder/file.cuh"` or leads out of the folder:
    what cannot be hashed cannot be cached.
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
    """Where compiled kernels are kept; made if absent."""
    root = os.environ.get("HARNESS_CACHE")
    folder = Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "nvfp4-harness"
    with storage(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@cache
def nvrtc_version() -> str:
    """`13.5`, of the NVRTC library that compiles."""
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


def _key(sources: Mapping[str, str], expression: str, arch: str) -> str:
    text = json.dumps([sorted(sources.items()), FLAGS, nvrtc_version(), arch, expression])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _compile(signature: Signature, expression: str, sources: Mapping[str, str], arch: str, key: str) -> Compiled:
    nvrtc = _nvrtc()
    main = signature.path.name
    headers = {name: text for name, text in sources.items() if name != main}
    program = _checked(
        nvrtc.nvrtcCreateProgram(
            sources[main].encode(),
            main.encode(),
            len(headers),
            [text.encode() for text in headers.values()],
            [name.encode() for name in headers],
        )
    )
    launch_expression = f"&{signature.name}_launch"
    try:
        for name in (expression, launch_expression):
            _checked(nvrtc.nvrtcAddNameExpression(program, name.encode()))
        options = [option.encode() for option in (*FLAGS, f"-arch={arch}")]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode()
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(f"{main}: NVRTC refused {expression} for {arch}:\n{log.strip()}")
        symbol, launch_symbol = (
            _checked(nvrtc.nvrtcGetLoweredName(program, name.encode())).decode()
            for name in (expression, launch_expression)
        )
        cubin = _text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        ptx = _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program).rstrip(b"\0")
    finally:
        nvrtc.nvrtcDestroyProgram(program)

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


def _resources(log: str, symbol: str) -> dict[str, int]:
    """Registers, spills and shared memory of the kernel `symbol` from the lines `ptxas -v` writes.

    They name one kernel after the other, for a file may hold some that are no templates.
    """
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
    """The values behind a status of NVRTC's binding; CompileError names any other status."""
    status, *values = result
    if int(status) != 0:
        raise CompileError(f"NVRTC: {status.name}")
    return values[0] if len(values) == 1 else tuple(values)
