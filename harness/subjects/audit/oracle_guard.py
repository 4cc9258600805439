"""Catch a subject that calls the oracles, or searches the memory of this process for their answers.

It can find none there, because the data it is judged on are drawn, and the oracles run, only after it was called. The
guard exists to distinguish a subject which tries from one that is merely wrong. A subject runs in our process and could
replace the harness itself; no check from within can rule that out.
"""

from __future__ import annotations

import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from harness import oracles
from harness.subjects.audit.violations import Violation, ViolationError
from harness.subjects.subject import Subject
from harness.verify import expected, pipeline_oracle

_HARNESS = Path(oracles.__file__).parents[1]
_ORACLES = (str(Path(oracles.__file__).parent), pipeline_oracle.__file__, expected.__file__)
_INSTALLED = ("site-packages", "dist-packages", sysconfig.get_path("stdlib"), "<frozen")
_SNOOPING = ("gc.get_objects", "gc.get_referrers", "gc.get_referents", "sys.setprofile")


class _Watched:
    """What is being called now, and what it was seen doing."""

    subject: Subject | None = None
    seen = ""
    hooked = False


@contextmanager
def watch(subject: Subject) -> Iterator[None]:
    """Raise ViolationError, at once or at the end, if the subject calls an oracle or searches the process's memory."""
    if not _Watched.hooked:
        sys.addaudithook(_audit)
        _Watched.hooked = True
    before, before_threads = sys.getprofile(), threading.getprofile()
    _set(_profile, _profile)
    _Watched.subject, _Watched.seen = subject, ""
    try:
        yield
    finally:
        _Watched.subject = None
        _set(before, before_threads)
        if _Watched.seen:  # also where the subject made another error of ours
            raise ViolationError(Violation.READS_ORACLE, _Watched.seen) from None


def _set(profile: Any, of_threads: Any) -> None:
    subject, _Watched.subject = _Watched.subject, None
    sys.setprofile(profile)
    threading.setprofile(of_threads)
    _Watched.subject = subject


def _profile(frame: FrameType, event: str, _: Any) -> None:
    if event == "call" and _Watched.subject and frame.f_code.co_filename.startswith(_ORACLES):
        where = Path(frame.f_code.co_filename).relative_to(_HARNESS)
        _see(f"{_Watched.subject.name} called {frame.f_code.co_name} of harness/{where} while it was to quantize")


def _audit(event: str, _: Any) -> None:
    if _Watched.subject is None or _Watched.seen or event not in _SNOOPING:
        return
    caller = sys._getframe(1).f_code.co_filename
    # torch and others search through their own objects.
    if not any(part in caller for part in _INSTALLED):
        _see(f"{_Watched.subject.name} called {event} at {Path(caller).name}, which searches this process's memory")


def _see(sentence: str) -> None:
    _Watched.seen = sentence
    raise ViolationError(Violation.READS_ORACLE, sentence)
