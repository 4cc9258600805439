"""Run a harness command as a child that ends with its parent, because an orphan would slow down the next timing."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from typing import Any

from harness.ground.ending import end_with_parent


def harness(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `python -m harness` with these words to its end. options: as `subprocess.run` takes them"""
    command = [sys.executable, "-m", "harness", *words]
    ending = partial(end_with_parent, os.getpid())
    return subprocess.run(command, check=False, text=True, preexec_fn=ending, **options)
