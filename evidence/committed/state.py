"""The state of a tree: a digest of its sources, so that tables of two states are told apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from evidence.docs.pages import without_rendered
from harness.files import ROOT

_MADE = {"results", "build"}  # output of commands, not a source of tables
_CACHES = {"__pycache__"}
_HIDDEN = {".ci", ".github", ".gitlab-ci.yml"}  # hidden files in the root that are sources


def state(root: Path = ROOT) -> str:
    """A digest of every file of a checkout except `results/`, without the figures that pages render from there.

    It does not need git, so a copy of a checkout on another machine has the same digest.
    """
    digest = hashlib.sha256()
    for path in sources(root):
        content = path.read_bytes()
        if path.suffix == ".md":
            content = without_rendered(content.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        name = str(path.relative_to(root))
        digest.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()


def sources(root: Path) -> Iterator[Path]:
    """The files that make a state, by name."""
    for path in sorted(root.rglob("*")):
        first, *rest = path.relative_to(root).parts
        if first in _MADE or (first.startswith(".") and first not in _HIDDEN) or first.endswith(".egg-info"):
            continue
        if path.is_file() and not _CACHES & {first, *rest}:
            yield path
