"""The conversions of NVIDIA's `cuda_fp4.h` in a plain kernel of ours, `cuda_fp4.cu`: the vendor's own software path."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.contract.case import Case
from harness.errors import CompileError
from harness.subjects.subject import Arrays

NEEDS: dict[str, str] = {}
CONVENTIONS: frozenset[str] = frozenset()
HEADER = "cuda_fp4.h"
THREADS = 256
_FLAGS = ("-std=c++17", "-ftz=false", "-fmad=false", "-prec-div=true", "-prec-sqrt=true")
_WANTED = {
    "dtype": "bf16", "block": "block_1x16", "outputs": "rowwise", "rounding": "rne", "scale_layout": "compact",
    "fast_math": False, "stage": "encode",
}  # fmt: skip


def refuses(case: Case) -> str:
    if case.recipe != "per_tensor":
        return "the kernel on cuda_fp4.h is per_tensor's"
    for flag, value in _WANTED.items():
        if case.flags[flag] != value:
            return f"the kernel on cuda_fp4.h has no {flag} other than {value}"
    return "" if include_folder() else f"no {HEADER} among {', '.join(map(str, _candidates()))}"


def quantize(case: Case, inputs: Arrays, outputs: Arrays) -> None:
    """Quantize into the outputs of a case, arrays of CuPy; padding of the scales is set to 0 first."""
    import cupy

    scales = outputs["rowwise_scale_inv"]
    if scales.size * 16 != case.elements:
        scales.fill(0)
    blocks = case.elements // 16
    arguments: tuple[Any, ...] = (
        inputs["input"], inputs["rowwise_amax"], outputs["rowwise_data"], scales, cupy.int64(blocks),
        cupy.int32(case.cols // 16), cupy.int32(scales.shape[1]),
    )  # fmt: skip
    _kernel(cupy.cuda.Device().compute_capability)((-(-blocks // THREADS),), (THREADS,), arguments)


def include_folder() -> Path | None:
    """Where the header lies, with those it includes."""
    return next((folder for folder in _candidates() if (folder / HEADER).exists()), None)


def compiled(arch: str, machine_code: bool = True) -> bytes:
    """The cubin of the kernel, or its PTX. Raises CompileError with NVRTC's log."""
    from cuda.bindings import nvrtc

    path = Path(__file__).with_suffix(".cu")
    _, program = nvrtc.nvrtcCreateProgram(path.read_bytes(), path.name.encode(), 0, [], [])
    options = [option.encode() for option in (*_FLAGS, f"-arch={arch}", f"-I{include_folder()}")]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(status) != 0:
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        raise CompileError(f"{path.name}: NVRTC refused it for {arch}:\n{log.decode().strip()}")
    get = (nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN) if machine_code else (nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
    return _text(*get, program)


def _text(size_call: Any, text_call: Any, program: Any) -> bytes:
    _, size = size_call(program)
    buffer = bytearray(size)  # not bytes, which are Python's to share
    text_call(program, buffer)
    return bytes(buffer)


@cache
def _kernel(capability: str) -> Any:
    import cupy

    module = cupy.cuda.function.Module()
    module.load(compiled(f"sm_{capability}{'a' if int(capability) >= 90 else ''}"))
    return module.get_function("cuda_fp4_rowwise")


@cache
def _candidates() -> tuple[Path, ...]:
    roots = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    folders = [Path(root, "include") for root in (*roots, "/usr/local/cuda", "/usr/local/cuda-13.0")]
    packages = (("nvidia", "cu13/include"), ("nvidia", "cuda_runtime/include"), ("triton", "backends/nvidia/include"))
    for package, inside in packages:
        spec = find_spec(package)
        folders += [Path(root, inside) for root in (spec.submodule_search_locations if spec else ())]
    return tuple(dict.fromkeys(folders))
