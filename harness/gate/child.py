"""Commands of this harness below another, which end with it: one that goes on alone slows down what is timed next."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def harness(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `python -m harness` with these words to its end. options: as `subprocess.run` takes them"""
    command = [sys.executable, "-m", "harness", *words]
    return subprocess.run(command, check=False, text=True, preexec_fn=end_with_parent, **options)


def end_with_parent() -> None:
    """In a process that has just begun: be killed when the process that began it ends, however that ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
