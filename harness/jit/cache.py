"""The cache of compiled kernels: a record for each key, and files beside it, all checked by digest when they are read.

Files are written under another name and renamed, the record last, so that an entry is whole or not there, whoever else
writes it at the same time.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from filelock import FileLock

from harness.files import storage, write_bytes


def cache_folder() -> Path:
    """Where compiled kernels are kept: `$HARNESS_CACHE`, or a folder in the user's cache. Made if absent."""
    root = os.environ.get("HARNESS_CACHE")
    folder = Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "nvfp4-harness"
    with storage(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def entry_path(key: str, kind: str) -> Path:
    """The file of an entry. kind: `json` for the record, or that of a file beside it, such as `cubin`"""
    return cache_folder() / f"{key}.{kind}"


def load(key: str) -> tuple[dict[str, Any], set[str]] | None:
    """The record of an entry and the kinds of its files; None if there is no entry or a byte of it is wrong."""
    try:
        stored = json.loads(entry_path(key, "json").read_bytes())
        record, digests = stored["record"], stored["digests"]
        if stored["digest"] != _digest(_canonical(record, digests)):
            return None
        if any(_digest(entry_path(key, kind).read_bytes()) != digest for kind, digest in digests.items()):
            return None
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return record, set(digests)


def store(key: str, record: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Write an entry. files: content by kind; may be none. Raises StorageError."""
    for kind, content in files.items():
        write_bytes(entry_path(key, kind), content)
    digests = {kind: _digest(content) for kind, content in files.items()}
    digest = _digest(_canonical(record, digests))
    text = json.dumps({"record": record, "digests": digests, "digest": digest})
    write_bytes(entry_path(key, "json"), text.encode())


def lock(key: str) -> AbstractContextManager[Any]:
    """Held by the process that makes an entry, so that others wait for it. Some keys share a lock."""
    return FileLock(cache_folder() / f"{key[:2]}.lock")


def _canonical(record: Mapping[str, Any], digests: Mapping[str, str]) -> bytes:
    return json.dumps([record, digests], sort_keys=True).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
