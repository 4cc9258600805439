"""Where the headers of a CUDA toolkit lie, `cuda_bf16.h` and its like, which NVRTC does not bring.

Those of CUDA's C++ libraries, such as `cuda/ptx` and `cub/cub.cuh`, lie in a folder `cccl` among them since CUDA 13.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_CCCL = "cccl"
_OF_CCCL = ("cuda/", "cub/", "nv/", "thrust/")
_VERSIONS = (("cuda.h", "CUDA_VERSION"), ("cuda/std/__cccl/version.h", "CCCL_VERSION"))
_FAILED = re.compile(r'^(?P<header>.+)\(\d+\): .*error: cannot open source file ".+"', re.MULTILINE)
_INCLUDE = re.compile(r"""\s*#\s*include\s*([<"]([^>"]+)[>"])""")
_A_MAP = "of a tensor map declare `struct alignas(64) CUtensorMap { char bytes[128]; };`"
_OF_CUDA = ("cooperative_groups.h", "cuda.h", "cuda_bf16.h", "cuda_fp16.h", "cuda_fp4.h", "cuda_fp6.h", "cuda_fp8.h",
            "cuda_pipeline.h", "cuda_runtime.h", "mma.h", "vector_types.h")  # fmt: skip
_OF_C = ("assert", "ctype", "errno", "float", "inttypes", "limits", "math", "stdarg", "stdbool", "stddef", "stdint",
         "stdio", "stdlib", "string", "time")  # fmt: skip


def folder_with(header: str) -> Path | None:
    """The folder that holds a header and the headers it includes; None if no toolkit here has it."""
    return next((folder for folder in candidates() if (folder / header).is_file()), None)


def toolkit_of(folder: Path) -> tuple[Path, ...]:
    """The folders of the toolkit that a folder belongs to, in search order."""
    root = folder.parent if folder.name == _CCCL else folder
    return tuple(each for each in (root, root / _CCCL) if each.is_dir())


def version(folder: Path) -> str:
    """The version in a folder's headers, such as `13000`; empty if they have none."""
    for header, macro in _VERSIONS:
        try:
            found = re.search(rf"#define\s+{macro}\s+(\d+)", (folder / header).read_text(errors="replace"))
        except OSError:
            continue
        if found:
            return found[1]
    return ""


def installable(header: str) -> bool:
    """Whether a header is one of a CUDA toolkit's, so that where it is missing the machine lacks it."""
    return header.startswith(_OF_CCCL) or header in _OF_CUDA


def remedy(header: str) -> str:
    """Advice for a missing header of C++ or of CUDA's libraries; empty for any other header."""
    if header.startswith(_OF_CCCL):
        return "`pip install nvidia-cuda-cccl` brings it"
    name, _, suffix = header.partition(".")
    if "/" in header or (suffix and (suffix != "h" or name not in _OF_C)):
        return ""
    own = f"cuda/std/{'c' if suffix else ''}{name}"
    there_is = folder_with(own) or not folder_with("cuda/std/cstdint")
    return "NVRTC has no standard headers; " + (f"use <{own}>" if there_is else "CUDA's own are <cuda/std/...>")


def of_the_host(log: str, sources: Mapping[str, str], beside: Sequence[Path] = ()) -> str:
    """A sentence on the include of a user's file by which NVRTC came to a header that is for the host; else empty.

    log: NVRTC's; sources: the user's files; beside: folders that their includes are looked for in before the toolkit's
    """
    failed = _FAILED.search(log)
    header = Path(failed["header"]) if failed else Path()
    if not failed or not any(header.is_relative_to(folder) for folder in candidates()):
        return ""
    for name, text in sources.items():
        for number, line in enumerate(text.splitlines(), 1):
            found = _INCLUDE.match(line)
            if found and _leads_to(found[2], header, (*beside, *candidates()), set()):
                via = "" if found[2] == header.name else f" includes <{header.name}>, which"
                what = f"{_A_MAP}, or compile" if header.name == "cuda.h" else "compile"
                sentence = f"{found[1]}{via} is for the host, and NVRTC does not take it; {what} with `nvcc -ptx`"
                return f"{name}:{number}: {sentence}"
    return ""


def _leads_to(name: str, header: Path, folders: Sequence[Path], seen: set[Path]) -> bool:
    """Whether an included file is a header or includes it, directly or not."""
    path = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if path is None or path in seen:
        return False
    seen.add(path)
    if path.resolve() == header.resolve():
        return True
    lines = map(_INCLUDE.match, path.read_text(errors="replace").splitlines())
    return any(_leads_to(line[2], header, (path.parent, *folders), seen) for line in lines if line)


@cache
def candidates() -> tuple[Path, ...]:
    """The folders that are looked through, in order."""
    roots = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    folders = [Path(root, "include") for root in (*roots, "/usr/local/cuda", "/usr/local/cuda-13.0")]
    packages = (("nvidia", "cu13/include"), ("nvidia", "cuda_runtime/include"), ("triton", "backends/nvidia/include"))
    for package, inside in packages:
        spec = find_spec(package)
        folders += [Path(root, inside) for root in (spec.submodule_search_locations if spec else ())]
    return tuple(dict.fromkeys(each for folder in folders for each in (folder, folder / _CCCL)))
