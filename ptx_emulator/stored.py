"""Decoded kernels on disk, by the text of their module and of the emulator itself; checked when they are read."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import pickle
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

from ptx_emulator import private_files


@cache
def digest_of_sources() -> str:
    """A digest of all files of the emulator, because any of them may change what is compiled or decoded."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


Found = TypeVar("Found")


def pack(value: object) -> bytes:
    """The value as compressed bytes."""
    return zlib.compress(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), 1)


def unpack(content: bytes):
    """The value of `pack`. Raises pickle.UnpicklingError for bytes that name anything but data."""
    load = _DataAlone(io.BytesIO(zlib.decompress(content))).load
    with uncollected():
        return load()


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Make many objects, none of them garbage, which the collector would scan again and again."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class _DataAlone(pickle.Unpickler):
    """Makes the emulator's own classes and arrays, and calls nothing else, so that a file cannot run code."""

    def find_class(self, module: str, name: str) -> type | Callable:
        if (module, name) in _ALLOWED:
            return super().find_class(module, name)
        found = super().find_class(module, name) if module.startswith("ptx_emulator.") else None
        # Only classes that the module defines itself: a class that it imports may run any code when it is made.
        if not isinstance(found, type) or found.__module__ != module:
            raise pickle.UnpicklingError(f"{module}.{name} is no data of the emulator")
        return found


_ALLOWED = {
    *(("numpy", name) for name in ("ndarray", "dtype", "bool", "uint8", "uint16", "uint32", "uint64")),
    *(("numpy._core.multiarray", name) for name in ("_reconstruct", "scalar")),
    ("numpy._core.numeric", "_frombuffer"),
    *(("builtins", name) for name in ("set", "frozenset")),
    ("collections", "Counter"),
}


def stored(folder: Path | None, what: tuple[str, ...], make: Callable[[], Found]) -> Found:
    """The value that was stored for these texts, or else make(), stored now. folder: None to store nothing

    A file without the folder's valid code counts as absent, and a failed write is ignored.
    """
    if folder is None:
        with uncollected():
            return make()
    key = hashlib.sha256("\0".join((digest_of_sources(), *what)).encode()).hexdigest()
    name = f"{key[:32]}.decoded"
    found = _read(folder, name)
    if found is None:
        with uncollected():
            found = make()
        with contextlib.suppress(OSError):
            private_files.write(folder, name, pack(found))
    return found


def _read(folder: Path, name: str):
    try:
        content = private_files.read(folder, name)
        return None if content is None else unpack(content)
    except (OSError, pickle.UnpicklingError, zlib.error, ArithmeticError, AttributeError, EOFError, ImportError,
            LookupError, TypeError, ValueError):  # fmt: skip
        return None
