"""The cache of compiled kernels: a record for each key, and files beside it, whose digests it has.

A record is believed only if this cache wrote it for this key. Files are written under another name and renamed, the
record last, so that an entry is whole or not there, whoever else writes it at the same time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import StorageError
from harness.files import refusal, storage
from harness.ground.locks import NamedLock
from ptx_emulator import private_files


def cache_folder() -> Path:
    """The folder for compiled kernels, made if absent. Raises StorageError, also if another user owns it."""
    root = private_files.cache_root()
    try:
        return private_files.private(root)
    except OSError as error:
        cannot = f"{root} cannot be written: {refusal(error)}"
        raise StorageError(f"{cannot}; set HARNESS_CACHE to a folder of yours, for compiled kernels") from None


def entry_path(key: str, kind: str) -> Path:
    """The file of an entry. kind: `record`, or the kind of a file beside it, such as `cubin`"""
    return cache_folder() / f"{key}.{kind}"


def load(key: str) -> tuple[dict[str, Any], dict[str, bytes]] | None:
    """The record of an entry and its files by kind; None if there is no entry or a byte of it is wrong."""
    folder = cache_folder()
    with storage(folder):
        stored = private_files.read(folder, _record_name(key))
    if stored is None:
        return None
    try:
        record, digests = json.loads(stored)
        digests = dict(digests)
    except (ValueError, TypeError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    files = {kind: private_files.plain_file(folder / f"{key}.{kind}") for kind in digests}
    if any(content is None or _digest(content) != digests[kind] for kind, content in files.items()):
        return None
    return record, files


def store(key: str, record: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Write an entry. files: content by kind; may be none. Raises StorageError."""
    folder = cache_folder()
    digests = {kind: _digest(content) for kind, content in files.items()}
    with storage(folder):
        for kind, content in files.items():
            private_files.replace(folder / f"{key}.{kind}", content)
        private_files.write(folder, _record_name(key), json.dumps([record, digests]).encode())


def lock(key: str) -> NamedLock:
    """Held while a process makes an entry, so that others wait; some keys share one."""
    remedy = "remove it, or set HARNESS_CACHE to a folder that can be written"
    return NamedLock.of(cache_folder() / f"{key[:2]}.lock", 0o600, remedy)


def _record_name(key: str) -> str:
    return f"{key}.record"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
