"""The conversions of NVIDIA's `cuda_fp4.h` in a plain kernel of ours, `cuda_fp4.cu`: the vendor's own software path."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from harness.contract.case import Case
from harness.jit import cuda_headers
from harness.jit.nvrtc import Built, build
from harness.subjects.subject import Arrays

NEEDS: dict[str, str] = {}
CONVENTIONS: frozenset[str] = frozenset()
HEADER = "cuda_fp4.h"
_KERNEL = "cuda_fp4_rowwise"
THREADS = 256
_FLAGS = ("-std=c++17", "-ftz=false", "-fmad=false", "-prec-div=true", "-prec-sqrt=true")
HARNESS_FLAGS = {
    "dtype": "bf16", "block": "block_1x16", "outputs": "rowwise", "rounding": "rne", "scale_layout": "compact",
    "fast_math": False, "activation": "none", "stage": "encode",
}  # fmt: skip


def refuses(case: Case) -> str:
    if case.recipe != "per_tensor":
        return "the kernel on cuda_fp4.h is per_tensor's"
    for flag, value in HARNESS_FLAGS.items():
        if case.flags[flag] != value:
            return f"the kernel on cuda_fp4.h has no {flag} other than {value}"
    return "" if include_folder() else f"no {HEADER} among {', '.join(map(str, cuda_headers.candidates()))}"


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
    """The folder of the header and the headers it includes."""
    return cuda_headers.folder_with(HEADER)


def built(arch: str) -> Built:
    """The kernel's PTX and, for a real architecture, its cubin. Raises CompileError with NVRTC's log."""
    path = Path(__file__).with_suffix(".cu")
    options = [*_FLAGS, f"-arch={arch}", f"-I{include_folder()}"]
    return build(path.name, {path.name: path.read_text(encoding="utf-8")}, [_KERNEL], options)


@cache
def _kernel(capability: str) -> Any:
    import cupy

    module = cupy.cuda.function.Module()
    module.load(built(f"sm_{capability}{'a' if int(capability) >= 90 else ''}").cubin)
    return module.get_function(_KERNEL)
