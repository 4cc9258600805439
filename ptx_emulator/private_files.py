"""Files that only this user may have written: a folder of mode 0700, and in each file a code that only its key makes.

The code covers the file's name, so that one copied over another is not believed, and neither is one that another user,
another machine or another program put there. The key is kept in the folder: who takes the whole folder along, as CI
does, keeps what it holds. Imports nothing of the harness, because the emulator stands alone but for this file.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from platformdirs import user_cache_path

_KEY = ".key"
_SIZE = 32  # bytes of a key and of a code
_LARGEST = 1 << 28  # bytes; a limit far above anything that is kept


def cache_root() -> Path:
    """The folder `$HARNESS_CACHE`, or one in the user's cache."""
    root = os.environ.get("HARNESS_CACHE")
    return Path(root) if root else user_cache_path("nvfp4-harness")


def private(folder: Path) -> Path:
    """Make the folder if needed, and close it to other users. Raises OSError if another user owns it.

    A folder that others could write to gets a new key, so that nothing in it is believed.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "another user owns it, and could change what is kept there", str(folder))
    if status.st_mode & 0o022:
        replace(folder / _KEY, secrets.token_bytes(_SIZE))
    if status.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def read(folder: Path, name: str) -> bytes | None:
    """Read what `write` wrote under this name; None for anything else. Raises OSError like `private`."""
    content = plain_file(folder / name)
    if content is None or not hmac.compare_digest(content[:_SIZE], _code(private(folder), name, content[_SIZE:])):
        return None
    return content[_SIZE:]


def write(folder: Path, name: str, content: bytes) -> None:
    """Keep content under a name, whole or not at all. Raises OSError."""
    replace(folder / name, _code(private(folder), name, content) + content)


def replace(path: Path, content: bytes) -> None:
    """Write a file of mode 0600, whole or not at all, in place of whatever is there. Raises OSError."""
    temporary = _temporary(path, content)
    with _removed_on_error(temporary):
        _rename(temporary, path)


def plain_file(path: Path) -> bytes | None:
    """The content of a regular file of ours; None for a link, a folder, a pipe, a huge file, or no file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_size > _LARGEST:
            return None
        with open(file, "rb", closefd=False) as opened:
            return opened.read(_LARGEST)
    except OSError:
        return None
    finally:
        os.close(file)


def _code(folder: Path, name: str, content: bytes) -> bytes:
    code = hmac.new(_key(folder), name.encode() + b"\0", "sha256")
    code.update(content)
    return code.digest()


def _key(folder: Path) -> bytes:
    path = folder / _KEY
    there = os.path.lexists(path)  # checked first: a key that appears later was written by a faster process
    key = plain_file(path)
    if key is None or len(key) != _SIZE:
        temporary = _temporary(path, secrets.token_bytes(_SIZE))
        with _removed_on_error(temporary):
            if there:
                _rename(temporary, path)
            else:
                _rename_unless_there(temporary, path)
        key = plain_file(path)
    if key is None or len(key) != _SIZE:
        raise OSError(errno.EIO, "it cannot be read back", str(path))
    return key


def _temporary(path: Path, content: bytes) -> Path:
    """A new file of mode 0600 beside the path."""
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with _removed_on_error(Path(name)), os.fdopen(number, "wb") as file:
        file.write(content)
    return Path(name)


def _rename(temporary: Path, path: Path) -> None:
    try:
        temporary.replace(path)
    except IsADirectoryError:
        shutil.rmtree(path)
        temporary.replace(path)


def _rename_unless_there(temporary: Path, path: Path) -> None:
    """Move the file to the path, unless a faster process has put one there."""
    with contextlib.suppress(FileExistsError):
        os.link(temporary, path)
    temporary.unlink()


@contextlib.contextmanager
def _removed_on_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError:
        path.unlink(missing_ok=True)
        raise
