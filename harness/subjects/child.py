"""The process of a subject: answers one request after the other until the other end of its socket closes.

    python -P -m harness.subjects.child NUMBER_OF_THE_SOCKET PARENT

Nothing here is to be relied on, because the subject may change all of it: the parent keeps the data, the answers of the
oracles and the verdict, and believes nothing that an answer says but a time, which it bounds by its own clock.
"""

from __future__ import annotations

import importlib.abc
import os
import resource
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from traceback import extract_tb
from typing import Any

import harness
from harness.errors import AccessError, CompileError, LaunchError, NotEmulated, UsageError
from harness.ground.ending import end_with_parent
from harness.ground.processes import adopt_orphans
from harness.ground.strictness import use_strict
from harness.subjects import messages, subject
from harness.subjects.caller import Caller, CudaCaller, SubjectRaised

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


_REFUSED = ("harness.oracles", "harness.verify")


class NoOracles(importlib.abc.MetaPathFinder):
    """Refuses imports of modules that know our answers, so that a subject that asks them is told from a wrong one.

    It helps against accidents and is no wall: a subject can take it away, or read the oracles' source from the disk.
    """

    def __init__(self) -> None:
        self.asked = ""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.startswith(_REFUSED):
            self.asked = self.asked or name
            raise ImportError(f"{name} is not for subjects")

    def install(self) -> None:
        for name in [name for name in sys.modules if name.startswith(_REFUSED)]:
            del sys.modules[name]
        for name in ("oracles", "verify"):
            vars(harness).pop(name, None)
        sys.meta_path.insert(0, self)


class Service:
    """The operations of one process, by name. Each answers with a dictionary, or with the kind and text of an error."""

    def __init__(self, guard: NoOracles | None = None):
        self.guard = guard
        self.caller: Caller | None = None
        self.subject: subject.Subject | None = None

    def load(self, name: str, strict: bool = False) -> dict[str, Any]:
        if strict:
            use_strict()
        self.use(subject.load(name))
        return {"needs": dict(self.subject.needs), "conventions": sorted(map(str, self.subject.conventions))}

    def use(self, found: subject.Subject) -> None:
        self.subject, self.caller = found, Caller(found)

    def use_gpu(self, index: int, target: str, l2_bytes: int) -> None:
        self.caller = CudaCaller(self.subject, index, target, l2_bytes)

    def refuses(self, case: Any) -> dict[str, Any]:
        try:
            reason = self.subject.refuses(case)
        except BaseException as error:
            raise SubjectRaised from error
        if type(reason) is not str:
            raise TypeError(f"refuses() returned {type(reason).__name__}; it must return a str")
        return {"reason": reason}

    def answer(self, operation: str, given: dict[str, Any], files: Sequence[int] = ()) -> dict[str, Any]:
        try:
            if operation in ("load", "use_gpu", "refuses"):
                found = getattr(self, operation)(**given)
            else:
                found = getattr(self.caller, operation)(**given, **({"files": files} if files else {}))
        except SubjectRaised as raised:
            cause = raised.__cause__
            answer = _error(
                "declines_late" if declines(cause) and operation != "refuses" else "raises", describe(cause)
            )
        except AccessError as error:
            answer = _error("access", error.kind, error.where, error.sentence)
        except LaunchError as error:
            answer = _error("launch", str(error))
        except CompileError as error:
            answer = _error("compile", str(error))
        except NotEmulated as error:
            answer = _error("not_emulated", str(error))
        except UsageError as error:
            answer = _error("usage", str(error))
        except BaseException as error:
            answer = _error("raises", describe(error))
        else:
            answer = {"ok": found or {}}
        if self.guard and self.guard.asked:
            answer = _error("reads_oracle", f"asked for {self.guard.asked}, which knows the answer")
        return answer


def _error(kind: str, *text: str) -> dict[str, Any]:
    return {"error": [kind, *text]}


def serve(number: int, parent: int) -> None:
    with socket.socket(fileno=number) as connection:
        connection.set_inheritable(False)
        _bound_to(parent)
        guard = NoOracles()
        guard.install()
        service = Service(guard)
        while True:
            try:
                (token, operation, given), files = messages.read_request(connection)
            except EOFError:
                return
            answer = service.answer(operation, given, files)
            for each in files:  # mappings stay valid after the descriptors are closed
                os.close(each)
            messages.send_answer(connection, {"token": token, **answer})


def _bound_to(parent: int) -> None:
    """Bind this process to the parent: end with it, be killed first when memory runs out, and leave no core dump.

    Orphans of what the subject starts become its children, so that they are found when it is ended.
    """
    end_with_parent(parent)
    adopt_orphans()
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:]))
    os._exit(0)  # does not wait for threads of the subject
