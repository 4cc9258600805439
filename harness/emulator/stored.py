"""Decoded kernels on disk, by the text of their module and of the emulator itself; checked when they are read."""

from __future__ import annotations

import hashlib
import pickle
import tempfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")
_DIGEST_SIZE = 32


def stored(folder: Path | None, what: tuple[str, ...], make: Callable[[], Found]) -> Found:
    """The value that was made of these texts before, or make() now. folder: None to keep nothing

    A file that is not whole, or cannot be written, is as good as none.
    """
    if folder is None:
        return make()
    key = hashlib.sha256("\0".join((_emulator(), *what)).encode()).hexdigest()
    path = folder / f"{key[:32]}.decoded"
    found = _read(path)
    if found is None:
        found = make()
        _write(path, zlib.compress(pickle.dumps(found, pickle.HIGHEST_PROTOCOL), 1))
    return found


def _read(path: Path):
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if hashlib.sha256(content[_DIGEST_SIZE:]).digest() != content[:_DIGEST_SIZE]:
        return None
    return pickle.loads(zlib.decompress(content[_DIGEST_SIZE:]))


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(hashlib.sha256(content).digest() + content)
        Path(file.name).replace(path)
    except OSError:
        return


@cache
def _emulator() -> str:
    """The emulator's own text: another one may decode otherwise."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()
