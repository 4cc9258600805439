"""Looks up processes by /proc, without the harness."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

# Seconds after which something hangs. Limits end a hang and judge no speed: a machine may do other things as well.
LONGEST = 600.0


def _fields(pid: int | str) -> list[str]:
    """State, parent and so on, as /proc has them behind the name; empty for a process that there is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def lives(pid: int | str) -> bool:
    """Whether there is such a process, and not only what its parent has not asked for."""
    return bool(found := _fields(pid)) and found[0] not in "ZX"


def sleeps(pid: int) -> bool:
    return _fields(pid)[:1] == ["S"]


def children(pid: int) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [each for each in pids if (found := _fields(each)) and int(found[1]) == pid]


def wait_until(done: Callable[[], object]) -> None:
    """Wait for something. Raises TimeoutError if it does not come."""
    until = time.monotonic() + LONGEST
    while not done():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.01)


def python_path(*folders: Path) -> str:
    """PYTHONPATH for a process that finds modules in these folders first, and then all that this one finds by it.

    Without the latter, a process lacks every package where an environment is given by PYTHONPATH alone.
    """
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])
