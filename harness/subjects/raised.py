"""Describe on one line what other people's code raised."""

from __future__ import annotations

from pathlib import Path
from traceback import extract_tb

# Names of exceptions that mean "not me": ours, Python's, pytest's and unittest's, none of them imported.
_DECLINING = {"NotCapable", "NotImplementedError", "Skipped", "XFailed", "SkipTest"}


def declines(error: BaseException) -> bool:
    """Whether an error says that its function is not meant for what it was given."""
    return any(kind.__name__ in _DECLINING for kind in type(error).__mro__)


def describe(error: BaseException) -> str:
    """Text such as `raised ValueError at mine.py:12: the sentence`."""
    frames = extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"raised {type(error).__name__}{where}: {' '.join(str(error).split())}"
