"""Where the headers of a CUDA toolkit lie, `cuda_bf16.h` and its like, which NVRTC does not bring."""

from __future__ import annotations

import os
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path


def folder_with(header: str) -> Path | None:
    """The folder of a header, with those it includes; None if no toolkit here has it."""
    return next((folder for folder in candidates() if (folder / header).is_file()), None)


def version(folder: Path) -> str:
    """`13000`, the version that the toolkit of a folder gives itself; empty if it does not say."""
    try:
        found = re.search(r"#define\s+CUDA_VERSION\s+(\d+)", (folder / "cuda.h").read_text(errors="replace"))
    except OSError:
        return ""
    return found[1] if found else ""


@cache
def candidates() -> tuple[Path, ...]:
    """The folders that are looked through, in order."""
    roots = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    folders = [Path(root, "include") for root in (*roots, "/usr/local/cuda", "/usr/local/cuda-13.0")]
    packages = (("nvidia", "cu13/include"), ("nvidia", "cuda_runtime/include"), ("triton", "backends/nvidia/include"))
    for package, inside in packages:
        spec = find_spec(package)
        folders += [Path(root, inside) for root in (spec.submodule_search_locations if spec else ())]
    return tuple(dict.fromkeys(folders))
