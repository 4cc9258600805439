"""Run NVIDIA's compute-sanitizer on the same exhibits on a GPU.

Every exhibit runs in a process of its own for each tool, because one that fails or waits leaves a context that no other
can use.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from queue import SimpleQueue
from typing import NamedTuple

from evidence.museum.exhibit import Exhibit
from evidence.sanitizer.compute_sanitizer import FIRST_PORT, PORTS, TOOLS
from harness.files import ROOT

FOUND = 99  # the exit code that the tool is told to use for a finding
RAN = (0, 1)  # exit codes of a program that ran, with right bytes or wrong ones
SECONDS = 60.0  # time limit for a tool; several never end if a kernel does not
TITLES = {"sanitizer, bug": False, "sanitizer, mend": True}
NOT_ASKED = "not asked"
_NO_END, _FAILED = "no end", "could not run"


class Said(NamedTuple):
    """The tools' verdict on an exhibit. title: the column; words: of all tools together; seconds: of their processes"""

    title: str
    exhibit: Exhibit
    words: str
    seconds: float


class _Processes:
    """The running processes, each with all processes that it started, which are ended together."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen] = set()
        self._ended = False
        self._lock = threading.Lock()

    def run(self, command: Sequence[str], seconds: float) -> int | None:
        """Run a process and return its exit code, or None if it did not end in time.

        It is then killed, because a kernel that never ends blocks the GPU for others.
        """
        with self._lock:
            if self._ended:
                return None
            process = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
            )
            self._running.add(process)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with self._lock:
                self._running.discard(process)
                _end(process)

    def end(self) -> None:
        """End all processes, and start no more."""
        with self._lock:
            self._ended = True
            for process in self._running:
                _end(process)


def _end(process: subprocess.Popen) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _together(words: Sequence[str]) -> str:
    """Combine the tools' results, each of which is its name, `no end`, that it could not run, or empty."""
    named = [each for each in words if each and each != _NO_END]
    ordered = sorted(named, key=lambda each: _FAILED in each)
    return ", ".join(ordered) or (_NO_END if _NO_END in words else "nothing")


def _asked(
    processes: _Processes, program: Sequence[str], tool: str, name: str, mended: bool, seconds: float, port: int
) -> str:
    options = ("--port", str(port), "--max-connections", str(PORTS))
    run = [sys.executable, "-m", "evidence.museum.on_gpu", name, "mend" if mended else "bug"]
    code = processes.run([*program, "--tool", tool, "--error-exitcode", str(FOUND), *options, *run], seconds)
    if code is None:
        return _NO_END
    if code == FOUND:
        return tool
    return "" if code in RAN else f"{tool} {_FAILED} (exit {code})"


def asked(program: Sequence[str], chosen: Sequence[Exhibit], jobs: int, seconds: float = SECONDS) -> Iterator[Said]:
    """Yield the tools' verdict on every bug and every mend, as soon as all tools have run on it.

    jobs: processes at a time
    """
    processes, ports = _Processes(), SimpleQueue()  # each process that runs at a time has ports of its own
    for slot in range(jobs):
        ports.put(FIRST_PORT + PORTS * slot)

    def ask(tool: str, exhibit: Exhibit, mended: bool) -> tuple[str, float]:
        port, start = ports.get(), time.perf_counter()
        found = _asked(processes, program, tool, exhibit.name, mended, seconds, port)
        ports.put(port)
        return found, time.perf_counter() - start

    pool = ThreadPoolExecutor(jobs)
    try:
        futures = {
            pool.submit(ask, tool, exhibit, mended): (title, exhibit, tool)
            for exhibit in chosen for title, mended in TITLES.items() for tool in TOOLS
        }  # fmt: skip
        found: dict[tuple[str, str], dict[str, tuple[str, float]]] = {}
        for future in as_completed(futures):
            title, exhibit, tool = futures[future]
            of = found.setdefault((title, exhibit.name), {})
            of[tool] = future.result()
            if len(of) == len(TOOLS):
                words = _together([of[each][0] for each in TOOLS])
                yield Said(title, exhibit, words, sum(took for _, took in of.values()))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        processes.end()
