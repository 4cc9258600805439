"""Guards a run's supervisor against a subject that stops its judge or leaves processes behind.

The judge is pytest's process and its workers. They are told from a subject's processes by a variable of the environment
that subjects are not given.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

from harness.ground.processes import STOPPED, adopt_orphans, below, end_all, has_variable, process, processes
from harness.runner.below_supervisor import SUPERVISOR

LOOK = 2.0  # seconds between two looks; a process that is stopped in both is continued
MOST_STOPS = 3  # that a run is helped out of; then it is ended


class Guard:
    """Watches the processes of a run with a subject, and ends what is left of them. Does nothing without a subject.

    Ctrl-Z stops the supervisor together with the judge, so it never finds a judge that a user stopped that way.
    """

    def __init__(self, subject: bool):
        self.subject, self._stops, self._stopped = subject, 0, set[int]()
        self._own = below(os.getpid(), processes()) if subject else set()  # of who called the supervisor
        if subject:
            adopt_orphans()

    def look(self) -> bool:
        """Continue a judge that has been stopped since the last look. False if that happened too often."""
        if not self.subject:
            return True
        among = processes()
        found = {pid for pid in below(os.getpid(), among) - self._own if among[pid].state == STOPPED}
        stopped = {pid for pid in found if has_variable(pid, SUPERVISOR, str(os.getpid()))}
        for pid in stopped & self._stopped:
            self._stops += 1
            if self._stops > MOST_STOPS:
                _say(
                    f"process {pid} of this run was stopped again and again, as by SIGSTOP of its subject; it is ended"
                )
                return False
            _say(f"process {pid} of this run was stopped, as by SIGSTOP of its subject; it is continued")
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._stopped = stopped - self._stopped
        return True

    def end_strays(self) -> None:
        """End all processes that the run left behind."""
        if self.subject:
            end_all(lambda among: below(os.getpid(), among) - self._own)


def continue_supervisor() -> None:
    """Continue the supervisor of this run if something stopped it alone."""
    pid = int(os.environ.get(SUPERVISOR, "").strip() or 0)
    seen = process(pid) if pid else None
    if seen and seen.state == STOPPED and pid in _above():
        _say(f"process {pid}, the supervisor of this run, was stopped, as by SIGSTOP of its subject; it is continued")
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGCONT)


def _above() -> set[int]:
    found, pid = set(), os.getppid()
    while pid > 1 and pid not in found and (seen := process(pid)):
        found.add(pid)
        pid = seen.parent
    return found


def _say(sentence: str) -> None:
    print(f"\nwarning: {sentence}", file=sys.stderr, flush=True)
