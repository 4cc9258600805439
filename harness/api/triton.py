"""Triton's kernels on the emulator, with the errors of the harness."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from harness.errors import AccessError, LaunchError, NotEmulated, UsageError
from harness.jit.cache import cache_folder
from ptx_emulator.triton_driver import context
from ptx_emulator.triton_driver.launcher import Errors

_ERRORS = Errors(UsageError, LaunchError, NotEmulated, AccessError)


def triton_on(target: str = "sm_100a", **options: Any) -> AbstractContextManager[context.TritonRun]:
    """Run `@triton.jit` functions, unchanged, on tensors of the CPU: as code for `target`, on the emulator.

    options: those of `ptx_emulator.triton_on`: seed, strict, autotune, unwritten, echo

    Raises UsageError without Triton or torch, and in the block: AccessError for what a kernel does wrong, by the line
    of its `.py`; NotEmulated for what the emulator lacks; LaunchError for a launch that CUDA would refuse.
    """
    return context.triton_on(target, errors=_ERRORS, cache=cache_folder() / "emulator", **options)
