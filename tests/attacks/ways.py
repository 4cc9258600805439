"""Shared by the attacks: tests that each try one way to a green run, and raise StillGreenError if it works."""

from __future__ import annotations

import re
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

from harness.errors import HarnessError

Command = Callable[..., CompletedProcess[str]]  # the fixture `command`


class StillGreenError(AssertionError):
    """The attack worked: something was accepted that must not be."""


def still_green_if(accepted: object, what: str) -> None:
    """Raise StillGreenError, with what it accepts, if the attack worked."""
    if accepted:
        raise StillGreenError(what)


def must_be_red(done: CompletedProcess[str], *because: str, code: int | None = None) -> None:
    """A command must end with an exit code that is not 0, say why, and not by a traceback.

    because: parts of what it prints; code: the exit code, where the table of codes leaves one choice
    """
    printed = done.stdout + done.stderr
    if done.returncode == 0:
        raise StillGreenError(f"green:\n{printed}")
    assert "Traceback (most recent call last)" not in printed, printed
    for part in because:
        assert part in printed, f"{part!r} is not in\n{printed}"
    assert code in (None, done.returncode), f"{done.returncode} in place of {code}:\n{printed}"


def must_be_refused(call: Callable[[], Any], because: str) -> None:
    """A call must raise an error of the harness. because: a regular expression of its text"""
    try:
        found = call()
    except HarnessError as error:
        assert re.search(because, str(error)), f"{because!r} is not in {error}"
        return
    raise StillGreenError(f"accepted: {found!r}")
