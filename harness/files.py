"""The harness's own folders, and files written whole or not at all, with one sentence if a disk refuses them."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import StorageError, UsageError

PACKAGE = Path(__file__).resolve().parent
# A wheel has the suites inside the package, a checkout beside it.
INSTALLED = (PACKAGE / "suites").is_dir()
ROOT = PACKAGE if INSTALLED else PACKAGE.parent
SUITES = ROOT / "suites"
EMULATOR = PACKAGE.parent / "ptx_emulator"
KERNELS = PACKAGE / "kernels"
# The folder that commands run in and leave results in.
WORKDIR = Path.cwd() if INSTALLED else ROOT
RESULTS = WORKDIR / "results"


def in_workdir(path: Path) -> Path:
    """The path relative to WORKDIR, which is the same on every machine; an absolute path if it lies elsewhere."""
    whole = path.absolute()
    return whole.relative_to(WORKDIR) if whole.is_relative_to(WORKDIR) else whole


# A user's recipe → its folder; `harness.suite.suite_file` fills it in.
RECIPE_DIRS: dict[str, Path] = {}
# Folders whose headers a card may include, which only a command line names; `use_include_dir` fills it in.
INCLUDE_DIRS: list[Path] = []

_REFUSALS = {
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EIO, errno.ENOTDIR,
    errno.EISDIR, errno.EEXIST,
}  # fmt: skip


def refused_storage(error: OSError) -> bool:
    """Whether the error is about a disk or folder: full, read-only, not ours to write, or broken."""
    return error.errno in _REFUSALS


def refusal(error: OSError) -> str:
    """Why a disk or folder refuses; making a folder where a file exists is reported as "not a directory"."""
    return os.strerror(errno.ENOTDIR) if error.errno == errno.EEXIST else str(error.strerror or error)


def storage_error(path: Path | str, error: OSError) -> StorageError:
    why = refusal(error)
    return StorageError(
        f"{path} cannot be written: {why}; make room and give the right to write there, or name another folder"
    )


def recipe_dir(recipe: str) -> Path | None:
    """The folder of a user's recipe, see `harness.suite.suite_file`; None for our recipes."""
    return RECIPE_DIRS.get(recipe)


def use_include_dir(folder: Path) -> None:
    """Let cards include the headers of a folder. Raises UsageError if there is none."""
    whole = resolved_path(folder)
    if not whole.is_dir():
        raise UsageError(f"there is no folder {whole} with headers to include")
    if whole not in INCLUDE_DIRS:
        INCLUDE_DIRS.append(whole)


def is_users(folder: Path) -> bool:
    """Whether a folder has a user's recipes."""
    return folder in RECIPE_DIRS.values()


def resolved_path(path: Path) -> Path:
    """The absolute path. Raises UsageError for a link that leads to itself, and for a path that no system takes."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"{path}: this path leads nowhere: {error}") from None


def is_file(path: Path) -> bool:
    """Whether there is such a file; False for a path that the system refuses as too long or malformed."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def files_beside(path: Path) -> list[Path]:
    """All files in a path's folder; none if there is no such folder."""
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


def require_place(path: Path) -> None:
    """Raise StorageError, before any work, if a file could not be written. Writes nothing."""
    there = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
    why = 0
    if not there.is_dir():
        why = errno.ENOTDIR
    elif path.is_dir():
        why = errno.EISDIR
    elif not os.access(there, os.W_OK):
        why = errno.EACCES
    if why:
        raise storage_error(path, OSError(why, os.strerror(why)))


def write_text(path: Path, text: str) -> None:
    """`write_bytes` of a text in UTF-8."""
    write_bytes(path, text.encode("utf-8", errors="replace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write under a temporary name, then rename, so that nobody finds half a file. Makes folders; StorageError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:  # the error would name the temporary file, which the user does not know
        raise storage_error(path, error) from None
