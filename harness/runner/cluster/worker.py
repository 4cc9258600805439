"""The functions that a worker of a Dask cluster runs.

Cases run in a child process, because a case may kill its process. Each thread of a worker keeps its child, with
everything it has compiled and decoded, from case to case.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe

from harness.contract.case import Case
from harness.runner.cluster.work import Answer, Died, Ready, Work, state_of

_ENDING = 10.0  # seconds that a killed process may take to end
_OWN = threading.local()


def look(work: Work) -> Ready | Answer:
    """The device that this worker runs cases on, or why it cannot run any."""
    return _child(work).ready


def run_case(work: Work, case: Case) -> Answer:
    """Run a case. Raises Died if its process ends without an answer, so that Dask runs it again, perhaps elsewhere."""
    child = _child(work)
    if isinstance(child.ready, Answer):
        return replace(child.ready, host=child.host)
    if state_of(child.ready.sealed) != work.state:
        return Answer(
            kind="UsageError", host=child.ready.host,
            sentence="a worker that came later has other sources or packages than the run; give it the same",
        )  # fmt: skip
    return child.run(case)


def _child(work: Work) -> _Child:
    """This thread's child process; a new one if it has none for this run."""
    child: _Child | None = getattr(_OWN, "child", None)
    if child is None or child.work != work or not child.alive():
        if child is not None:
            child.end()
        child = _OWN.child = _Child(work)
    return child


class _Child:
    """A process that runs cases one after the other. ready: its first message"""

    def __init__(self, work: Work):
        self.work = work
        self._pipe, theirs = Pipe()
        threads = {name: os.environ.get(name, "1") for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.runner.cluster.child", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **threads},
            start_new_session=True,
        )
        theirs.close()
        self.host = socket.gethostname()
        self.ready: Ready | Answer = self._asked(work)

    def alive(self) -> bool:
        return self._process.poll() is None

    def run(self, case: Case) -> Answer:
        answer = self._asked(case)
        if answer.ends:
            self.end()
        return replace(answer, host=self.host)

    def end(self) -> None:
        """End the process, even inside a kernel."""
        self._pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDING)
            return
        self._process.kill()
        self._process.wait()

    def _asked(self, what: Work | Case) -> Ready | Answer:
        pipe: Connection = self._pipe
        try:
            pipe.send(what)
            return pipe.recv()
        except (EOFError, OSError):
            self.end()
            raise Died(f"its process on {self.host} {_ended(self._process.returncode)}") from None


def _ended(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
