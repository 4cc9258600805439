"""Run pytest as the child of a supervisor: `python -P harness/runner/pytest_child.py WORDS`.

It is `python -m pytest WORDS` with three differences. The current folder comes last on `sys.path`, so that a file there
such as `random.py` does not take the place of a module of that name. And the signals that end a process, which the
supervisor blocked before it started this one, are let through only when they cannot be lost; until pytest is ready they
end it at once, without a traceback of imports. A full disk behind the output is reported in one sentence.

It is started by its path, because `-m` would need the current folder in a checkout that is not installed.
"""

from __future__ import annotations

import importlib.util
import io
import os
import runpy
import signal
import sys
from contextlib import suppress
from pathlib import Path

# As in ground.ending, which pytest would import before it could rewrite it.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_USAGE = 64  # of harness.errors


def search_current_folder_last() -> None:
    """Set `sys.path`: this harness is found, and the current folder comes behind all others.

    Where it is found anyway, its own folder is left out, as in the supervisor: both look up a user's imports alike.
    """
    ours, here = Path(__file__).resolve().parents[2], str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    found = importlib.util.find_spec("harness")
    if found is None or not found.origin or Path(found.origin).resolve().parents[1] != ours:
        sys.path.insert(0, str(ours))


def let_signals_through() -> None:
    """Unblock the signals that end a process. Nothing needs to be cleaned up yet, so Ctrl-C just ends this one."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


class Output(io.TextIOWrapper):
    """Standard output that ends this process with one sentence if its disk is full, in place of pytest's traceback."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            _end(error)
            raise

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            _end(error)
            raise


def _end(error: OSError) -> None:
    """End this process, but not where only the reader has gone, as `head` does."""
    if not isinstance(error, BrokenPipeError):
        with suppress(OSError):
            os.write(2, f"error: the output: {error.strerror}\n".encode())
        os._exit(_USAGE)


def tell_full_disk() -> None:
    """Make standard output an `Output`. It is None if it was closed."""
    if sys.stdout is not None:
        old = sys.stdout
        options = {name: getattr(old, name) for name in ("encoding", "errors", "line_buffering", "write_through")}
        sys.stdout = sys.__stdout__ = Output(old.detach(), **options)


if __name__ == "__main__":
    search_current_folder_last()
    let_signals_through()
    tell_full_disk()
    runpy.run_module("pytest", run_name="__main__", alter_sys=True)
