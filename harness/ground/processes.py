"""Processes that a guest of a run leaves behind: which they are, by /proc, and how all of them are ended.

A process that is forked twice loses its parent. It then belongs to the nearest process above that adopts orphans, and
is still found below that one.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE = 5.0  # seconds to end all of them; one that forks faster than it is killed is left
_ENDED = "ZX"  # states of processes that only their parent still knows
STOPPED = "T"  # the state after SIGSTOP; a debugger's is another
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class Seen:
    """A process as /proc shows it."""

    parent: int
    session: int
    state: str


def adopt_orphans() -> None:
    """Make this process the parent of every process below it that loses its own."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def processes() -> dict[int, Seen]:
    """All processes that have not ended."""
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and (seen := process(int(path.name))) and seen.state not in _ENDED:
            found[int(path.name)] = seen
    return found


def process(pid: int) -> Seen | None:
    """One process, or None if there is none of this number."""
    try:
        state, parent, _, session = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
    except (OSError, ValueError):
        return None
    return Seen(int(parent), int(session), state)


def below(root: int, among: Mapping[int, Seen]) -> set[int]:
    """The children of a process, theirs, and so on."""
    found, waiting = set(), [root]
    while waiting:
        above = waiting.pop()
        new = {pid for pid, seen in among.items() if seen.parent == above} - found
        found |= new
        waiting += new
    return found


def has_variable(pid: int, name: str, value: str) -> bool:
    """Whether a process was started with this environment variable."""
    try:
        return f"{name}={value}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def end_all(which: Callable[[Mapping[int, Seen]], set[int]]) -> None:
    """Kill the processes that `which` chooses of all, again and again until it finds none."""
    until = time.monotonic() + _PATIENCE
    while (found := which(processes()) - {os.getpid()}) and time.monotonic() < until:
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)
