"""The process that a subject runs in, as seen from ours."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.contract.case import Case
from harness.errors import AccessError, CaseError, CompileError, LaunchError, NotEmulated, UsageError
from harness.ground.processes import Seen, below, end_all, has_variable
from harness.ground.strictness import strict
from harness.subjects import messages
from harness.subjects.violations import Violation, ViolationError

PATIENCE = 240.0  # seconds for one request; the first call of a subject may compile
LONGEST_TEXT = 600  # characters of a sentence from a subject
_ENDING = 10.0  # seconds that a killed process may take to end
_MARK = "NVFP4_SUBJECT"  # environment variable by which all processes that a subject starts are found
_OURS = ("PYTEST_", "HARNESS_", "COV_")  # prefixes of environment variables that are hidden from a subject
_BEFORE = "; what it does not take it says before, by refuses(case) or HARNESS_FLAGS"
_VIOLATIONS = {str(each): each for each in (Violation.RAISES, Violation.DECLINES_LATE, Violation.READS_ORACLE)}
_ERRORS = {"launch": LaunchError, "compile": CompileError, "not_emulated": NotEmulated}


class Child:
    """A subject's process, started at the first request and again after `end`.

    A process lives from case to case. If a request breaks off for any reason, a ViolationError is raised and the
    process is ended.
    """

    def __init__(self, name: str, patience: float = PATIENCE):
        self.name, self.patience = name, patience
        self.kept: list[Any] = []  # the memory that the process has mapped
        self._gpu: dict[str, Any] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._finalizer: weakref.finalize | None = None

    def load(self) -> tuple[dict[str, str], frozenset[str]]:
        """Load the subject; returns its needs and declared conventions. Raises UsageError if it cannot be loaded."""
        self.end()
        try:
            said = self._start()
        except ViolationError as error:
            raise UsageError(f"{self.name} cannot be imported: {error.finding.sentence}") from None
        match said:
            case {"needs": dict(needs), "conventions": list(conventions)}:
                return {shown(name): shown(line) for name, line in needs.items()}, frozenset(map(shown, conventions))
        self.end()
        raise UsageError(f"{self.name} cannot be imported: its process does not say what it needs")

    def refuses(self, case: Case) -> str:
        """Why the subject does not take a case; empty if it does."""
        reason = self.ask("refuses", case=case).get("reason")
        if not isinstance(reason, str):
            raise ViolationError(Violation.FORGES, f"the process of {self.name} does not say whether it takes a case")
        return shown(reason)

    def use_gpu(self, **gpu: Any) -> None:
        self._gpu = gpu
        if self._process is not None:
            self.ask("use_gpu", **gpu)

    def ask(self, operation: str, /, files: Sequence[int] = (), **given: Any) -> dict[str, Any]:
        """Send the process a request and return its answer.

        Raises ViolationError, UsageError, or a CaseError: LaunchError, CompileError or NotEmulated.
        """
        if self._process is None:
            self._start()
        return self._asked(operation, files, given)

    def release(self) -> None:
        """Make the process unmap its memory."""
        if self.kept and self._process is not None:
            with suppress(ViolationError, CaseError):  # the process is gone, and its mappings with it
                self.ask("close")
        self.kept.clear()

    def end(self) -> None:
        """End the process and all processes that it started."""
        if self._process is not None:
            self._finalizer()
            self._process = self._socket = None
        self.kept.clear()

    def _start(self) -> Mapping[str, Any]:
        here, there = socket.socketpair()
        mark = secrets.token_hex(16)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.subjects.child", str(there.fileno()), str(os.getpid())],
            pass_fds=[there.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(os.environ) | {_MARK: mark},
            start_new_session=True,
        )
        there.close()
        self._socket = here
        self._finalizer = weakref.finalize(self, _end, self._process, here, mark)
        said = self._asked("load", (), {"name": self.name, "strict": strict()})
        if self._gpu:
            self._asked("use_gpu", (), self._gpu)
        return said

    def _asked(self, operation: str, files: Sequence[int], given: dict[str, Any]) -> dict[str, Any]:
        token = secrets.token_hex(8)
        try:
            self._socket.settimeout(self.patience or None)
            messages.send_request(self._socket, (token, operation, given), files)
            answer = messages.read_answer(self._socket, self.patience or None)
            return checked(self.name, answer, token, operation == "load")
        except TimeoutError:
            found = ViolationError(Violation.HANGS, f"{self.name} did not answer within {self.patience:g} s")
        except (EOFError, OSError):
            found = ViolationError(Violation.LEAVES, f"the process of {self.name} {self._how_it_ended()}")
        except ValueError as error:
            found = ViolationError(Violation.FORGES, f"the process of {self.name} sent {shown(error)}")
        self.end()
        raise found from None

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        if code >= 0:
            return f"ended with exit code {code}"
        with suppress(ValueError):
            return f"ended by {signal.Signals(-code).name}"
        return f"ended by signal {-code}"


def checked(name: str, answer: Mapping[str, Any], token: str, loading: bool = False) -> dict[str, Any]:
    """The content of an answer. Raises the error that it reports, and ValueError for an answer to another request."""
    if answer.get("token") != token:
        raise ValueError("an answer to nothing that it was asked")
    match answer:
        case {"ok": dict(found)}:
            return found
        case {"error": ["usage", str(text)]} if loading:
            raise UsageError(shown(text))
        case {"error": ["access", str(kind), str(where), str(sentence)]}:
            raise AccessError(*map(shown, (kind, where, sentence)))
        case {"error": [str(kind), str(text)]} if kind in _ERRORS:
            raise _ERRORS[kind](shown(text))
        case {"error": [str(kind), str(text)]} if kind in _VIOLATIONS:
            hint = _BEFORE if kind == Violation.DECLINES_LATE else ""
            raise ViolationError(_VIOLATIONS[kind], f"{name} {shown(text)}{hint}")
    raise ValueError("an answer that says neither what was found nor what went wrong")


def shown(text: object) -> str:
    """A subject's text in one printable line of bounded length."""
    line = " ".join(str(text).split())[:LONGEST_TEXT]
    return "".join(each if each.isprintable() else "?" for each in line)


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """The environment of a subject's process: ours without the run's variables, plus the module search path."""
    found = {name: value for name, value in own.items() if not name.startswith(_OURS)}
    return found | {"PYTHONPATH": os.pathsep.join(each or str(Path.cwd()) for each in sys.path)}


def _end(process: subprocess.Popen[bytes], connection: socket.socket, mark: str) -> None:
    """End the process and all that it started, found by their parents, their session or the variable they inherited."""
    known = {process.pid} if process.returncode is None else set()  # its number may be another process's by now

    def guests(among: Mapping[int, Seen]) -> set[int]:
        for pid in list(known):
            known.update(below(pid, among))
        session = process.pid if process.returncode is None or process.pid not in among else None
        known.update(
            pid for pid, seen in among.items() if seen.session == session or has_variable(pid, _MARK, mark)
        )  # fmt: skip
        return known & among.keys()

    end_all(guests)
    connection.close()  # not before: the process would end by itself, and its children would be another's
    with suppress(subprocess.TimeoutExpired):
        process.wait(_ENDING)
