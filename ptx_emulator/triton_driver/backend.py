"""Triton's CUDA compiler, stopped at PTX."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from ptx_emulator.triton_driver.source_lines import with_calls

KIND = "emulated"  # the last stage's name, and the ending of its file in Triton's cache
FORM = 1  # version of the cached text; change it when `with_calls` changes
PTX_VERSION = 88  # used if Triton has no ptxas to ask; sm_100a needs 86


@contextmanager
def emulated_backend() -> Iterator[None]:
    """Make Triton compile for CUDA with the emulated backend while the context lasts."""
    from triton import backends

    before = backends.backends["nvidia"]
    backends.backends["nvidia"] = backends.Backend(_backend_class(), before.driver)
    try:
        yield
    finally:
        backends.backends["nvidia"] = before


@cache
def _backend_class() -> type:
    """A subclass of Triton's CUDABackend.

    It has its own keys in Triton's cache, so that no cubin is taken for its PTX.
    """
    import triton
    from triton.backends.nvidia import compiler

    library = Path(triton.__file__).parent

    class EmulatedBackend(compiler.CUDABackend):
        def __init__(self, target: Any):
            super().__init__(target)
            self.binary_ext = KIND

        def parse_options(self, opts: dict[str, Any]) -> Any:
            return super().parse_options({**opts, "ptx_version": opts.get("ptx_version") or _ptx_version(self.target)})

        def add_stages(self, stages: dict[str, Any], options: Any, language: Any) -> None:
            super().add_stages(stages, options, language)
            del stages["cubin"]
            stages[KIND] = lambda ptx, metadata: with_calls(ptx, library).encode()

        def hash(self) -> str:
            return f"{KIND}-{FORM}-{_ptx_version(self.target)}-{self.target.arch}"

    return EmulatedBackend


@cache
def _ptx_version(target: Any) -> int:
    """The PTX version that Triton would use for a GPU, asked of its own ptxas, which is used for nothing else."""
    from triton.backends.nvidia import compiler

    try:
        return compiler.ptx_get_version(compiler.get_ptxas(target.arch).version)
    except (RuntimeError, OSError):
        return PTX_VERSION
