"""Load the compiled functions, and compile them once: one process does, and the others go on with NumPy steps."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ptx_emulator import private_files


class Compiled(NamedTuple):
    """The functions that launches need: `interpreter.run`, two of `warps` and two of `async_shared`."""

    run: Callable[..., int]
    count: Callable[..., int]
    part_lanes: Callable[..., int]
    record: Callable[..., bool]
    start_copy: Callable[..., bool]


class _Process:
    """This process's cache. found: the functions; missed: whether it looked in the cache and did not find them"""

    found: Compiled | None = None
    missed = False


def compiled() -> Compiled:
    """The functions, from the cache or else compiled, which takes a minute. Waits for a process that compiles them."""
    if _Process.found is None:
        with _alone(wait=True):
            _Process.found = _load()
    return _Process.found


def is_compiled() -> bool:
    """Whether `compiled` would not wait for another process. Compiles if none does.

    As long as it is False, launches run by NumPy steps, which write the same bytes and take up to three times as long.
    """
    if _Process.found is None and not _Process.missed:
        from ptx_emulator.compiled.jit import NotStored, only_stored

        try:
            with only_stored():
                _Process.found = _load()
        except NotStored:
            _Process.missed = True
    if _Process.found is None:
        with _alone(wait=False) as is_mine:
            _Process.found = _load() if is_mine else None
    return _Process.found is not None


def _load() -> Compiled:
    # Numba takes a second to load, and a run on a GPU does not need it. `warpgroup` is for the steps of `wgmma`.
    from ptx_emulator.compiled import async_shared, interpreter, warpgroup, warps  # noqa: F401

    return Compiled(interpreter.run, warps.count, warps.part_lanes, async_shared.record, async_shared.start_copy)


@contextmanager
def _alone(wait: bool) -> Iterator[bool]:
    """Be the one process that compiles into this cache. False, without `wait`, if another one is.

    Where the cache cannot be written, every process is.
    """
    try:
        folder = private_files.private(private_files.cache_root() / "emulator")
        file = os.open(folder / "compiling.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        yield True
        return
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # closing is not enough while a forked process has it open, too
    finally:
        os.close(file)
