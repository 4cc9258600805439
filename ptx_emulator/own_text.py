"""A digest of the emulator's sources, which tells cached results of another version apart."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path


@cache
def digest() -> str:
    """A digest of all files of the emulator, because any of them may change what is compiled or decoded."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()
