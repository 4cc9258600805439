"""Run pytest as the child of a supervisor: `python -P harness/runner/pytest_child.py WORDS`.

It is `python -m pytest WORDS` with two differences. The current folder comes last on `sys.path`, so that a file there
such as `random.py` does not take the place of a module of that name. And the signals that end a process, which the
supervisor blocked before it started this one, are let through only when they cannot be lost; until pytest is ready they
end it at once, without a traceback of imports.

It is started by its path, because `-m` would need the current folder in a checkout that is not installed.
"""

from __future__ import annotations

import runpy
import signal
import sys
from pathlib import Path

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # of harness.suite.ending; pytest rewrites only what it imports


def search_current_folder_last() -> None:
    """Set `sys.path`: this harness is found, and the current folder comes behind all others."""
    ours, here = str(Path(__file__).resolve().parents[2]), str(Path.cwd())
    if ours not in sys.path:
        sys.path.insert(0, ours)
    if here not in sys.path:
        sys.path.append(here)


def let_signals_through() -> None:
    """Unblock the signals that end a process. Nothing needs to be cleaned up yet, so Ctrl-C just ends this one."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


if __name__ == "__main__":
    search_current_folder_last()
    let_signals_through()
    runpy.run_module("pytest", run_name="__main__", alter_sys=True)
