"""Where things lie, and files written whole or not at all, with one sentence if a folder or a disk refuses them."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import StorageError

ROOT = Path(__file__).resolve().parents[1]  # of the repository
SUITES = ROOT / "suites"
KERNELS = ROOT / "harness" / "kernels"

_REFUSALS = {
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EIO, errno.ENOTDIR,
    errno.EISDIR, errno.EEXIST,
}  # fmt: skip


def refused_storage(error: OSError) -> bool:
    """Whether the disk or the folder is what failed: full, read-only, not ours to write, or broken."""
    return error.errno in _REFUSALS


def storage_error(path: Path | str, error: OSError) -> StorageError:
    """The sentence about a file that could not be written."""
    return StorageError(
        f"{path} cannot be written: {error.strerror or error}; make room and give the right to write there, or name "
        "another folder"
    )


def is_file(path: Path) -> bool:
    """Whether there is such a file; no path of a user's is too long or too strange to ask about."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """The same of a folder."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


@contextmanager
def storage(path: Path) -> Iterator[None]:
    """Raise StorageError, which names the path, for an error of the file system."""
    try:
        yield
    except OSError as error:
        raise storage_error(error.filename or path, error) from None


def write_text(path: Path, text: str) -> None:
    """`write_bytes` of the text as UTF-8."""
    write_bytes(path, text.encode("utf-8", errors="replace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write under a temporary name, then rename: a reader, a kill or a full disk finds the whole file or none.

    Folders are made. Raises StorageError.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    with storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
