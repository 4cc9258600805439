"""Commands of this harness below another, which end with it: one that goes on alone slows down what is timed next."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from harness.suite.ending import end_with_parent


def harness(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `python -m harness` with these words to its end. options: as `subprocess.run` takes them"""
    command = [sys.executable, "-m", "harness", *words]
    return subprocess.run(command, check=False, text=True, preexec_fn=end_with_parent, **options)
