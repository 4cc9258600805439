"""The harness's own folders, and files written whole or not at all, with one sentence if a disk refuses them."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import StorageError

PACKAGE = Path(__file__).resolve().parent
# A wheel has the suites inside the package, a checkout beside it.
INSTALLED = (PACKAGE / "suites").is_dir()
ROOT = PACKAGE if INSTALLED else PACKAGE.parent
SUITES = ROOT / "suites"
KERNELS = PACKAGE / "kernels"
# Where commands run and leave results.
WORKDIR = Path.cwd() if INSTALLED else ROOT
RESULTS = WORKDIR / "results"

# Recipe of the user's → its folder; `harness.suite.own_recipes` fills it in.
RECIPE_DIRS: dict[str, Path] = {}

_REFUSALS = {
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EIO, errno.ENOTDIR,
    errno.EISDIR, errno.EEXIST,
}  # fmt: skip


def refused_storage(error: OSError) -> bool:
    """Whether the error is a disk's or a folder's: full, read-only, not ours to write, or broken."""
    return error.errno in _REFUSALS


def storage_error(path: Path | str, error: OSError) -> StorageError:
    return StorageError(
        f"{path} cannot be written: {error.strerror or error}; make room and give the right to write there, or name "
        "another folder"
    )


def recipe_dir(recipe: str) -> Path | None:
    """The folder of a recipe of the user's, see `harness.suite.own_recipes`; None of ours."""
    return RECIPE_DIRS.get(recipe)


def is_own(folder: Path) -> bool:
    """Whether a folder has recipes of the user's."""
    return folder in RECIPE_DIRS.values()


def is_file(path: Path) -> bool:
    """Whether there is such a file; False for a path that the system refuses as too long or malformed."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def files_beside(path: Path) -> list[Path]:
    """The files of the folder that a path names one in; none if there is no such folder."""
    try:
        return sorted(filter(is_file, path.parent.iterdir()))
    except (OSError, ValueError):
        return []


@contextmanager
def storage(path: Path) -> Iterator[None]:
    """Turn an error of the file system into a StorageError that names the path."""
    try:
        yield
    except OSError as error:
        raise storage_error(error.filename or path, error) from None


def write_text(path: Path, text: str) -> None:
    """As `write_bytes`, in UTF-8."""
    write_bytes(path, text.encode("utf-8", errors="replace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write under a temporary name, then rename, so that nobody finds half a file. Makes folders; StorageError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    with storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
