"""Run each tool over a set of cases in parallel processes, and collect the findings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evidence.sanitizer.compute_sanitizer import Log, kernel_names, read_log, reason, wrapped
from evidence.sanitizer.plugin import FILE as NOTE
from harness.errors import DeviceUnavailable, Exit
from harness.files import PACKAGE, WORKDIR
from harness.records.journal import FILE as JOURNAL
from harness.records.run_folder import Header, read_run
from harness.suite.suite import find_case
from harness.verdict import Verdict

GRACE = 60  # seconds for a process to finish its case and print its summary
PLANTED_SECONDS = 90


@dataclass
class ToolResult:
    """The result of one tool.

    planted: whether the tool saw its planted error
    cases: how many there were; left_out: case id → why the tool does not run it; may be empty
    done: how many ran; failed: the cases whose verdict is not PASS
    silent: processes without a summary, or that never got their cases
    again: how many ran a second time because the tool broke down in their process, and its reports of that
    broken: processes in which the tool broke down again
    """

    tool: str
    planted: bool
    cases: int = 0
    left_out: dict[str, str] = field(default_factory=dict)
    done: int = 0
    failed: list[str] = field(default_factory=list)
    errors: int = 0
    silent: int = 0
    again: int = 0
    breakdowns: Counter[str] = field(default_factory=Counter)
    broken: int = 0
    seconds: float = 0.0
    findings: Counter[str] = field(default_factory=Counter)

    @property
    def missing(self) -> int:
        """Cases that neither ran nor were left out."""
        return self.cases - len(self.left_out) - self.done

    @property
    def complete(self) -> bool:
        """Whether the tool saw its planted error, ran every case not left out for a reason, and did not break down."""
        explained = all(self.left_out.values())
        heard = self.planted and not self.silent and not self.broken
        return heard and explained and self.done > 0 and self.missing == 0


def run_planted(sanitizer: str, tools: Sequence[str], folder: Path) -> dict[str, bool]:
    """Whether each tool sees its planted error. Raises DeviceUnavailable if none sees any."""
    folder.mkdir(parents=True, exist_ok=True)
    commands = {
        tool: [
            *wrapped(sanitizer, tool, folder / f"{tool}.log", number, [f"planted_{tool}"]),
            *(sys.executable, "-m", "evidence.sanitizer.planted", tool),
        ]
        for number, tool in enumerate(tools)
    }
    _run_parallel(commands, folder, PLANTED_SECONDS)
    logs = {tool: read_log(folder / f"{tool}.log") for tool in tools}
    seen = {tool: bool(log.errors) for tool, log in logs.items()}
    if not any(seen.values()):
        lines = [line for log in logs.values() for line in log.findings] or _last_lines(folder)
        raise DeviceUnavailable(
            "compute-sanitizer sees none of the errors planted for it, so it cannot work on this machine; "
            f"it says: {lines[0] if lines else 'nothing'}"
        )
    return seen


@dataclass(frozen=True)
class Process:
    """A process that ran cases under a tool. cases: the ids it had to run, None if it never knew them"""

    run: Path
    log: Log
    cases: list[str] | None
    left_out: list[str]

    @property
    def broke_down(self) -> bool:
        """Whether the tool broke down, so that its results here do not count, and the cases to run again are known."""
        return bool(self.log.breakdowns and self.cases)


def check(
    sanitizer: str, tool: str, planted: bool, suites: Sequence[str], options: Sequence[str], jobs: int, seconds: float,
    folder: Path,
) -> ToolResult:  # fmt: skip
    """Run the cases under one tool. options: pytest's; seconds: after this time no case is started

    If the tool broke down in a process, its cases run once more, in half as many processes, which need half the memory,
    with the same time limit.
    """
    began = time.monotonic()
    found = ToolResult(tool, planted)
    processes = _run_cases(sanitizer, tool, suites, options, jobs, seconds, folder)
    lost = [process for process in processes if process.broke_down]
    again = [case_id for process in lost for case_id in process.cases]
    kept = [process for process in processes if process not in lost]
    if again:
        words = [*options, *(word for case_id in again for word in ("--case", case_id))]
        jobs = max(1, min(jobs // 2, len(again)))
        second = _run_cases(sanitizer, tool, suites, words, jobs, seconds, folder / "again")
        found.broken = sum(process.broke_down for process in second)
        kept += second
    found.again = len(again)
    found.breakdowns = sum((process.log.breakdowns for process in lost), Counter())
    left_out = [case_id for process in processes for case_id in process.left_out]
    found.left_out = {case_id: reason(tool, find_case(case_id)) for case_id in left_out}
    found.cases = len(left_out)
    for process in kept:
        _add(found, process)
    found.seconds = time.monotonic() - began
    return found


def _run_cases(
    sanitizer: str, tool: str, suites: Sequence[str], options: Sequence[str], jobs: int, seconds: float, folder: Path
) -> list[Process]:
    folder.mkdir(parents=True, exist_ok=True)
    commands = {}
    for number in range(jobs):
        name = f"shard{number + 1}"
        commands[name] = [
            *wrapped(sanitizer, tool, folder / f"{name}.log", number, kernel_names()),
            *(sys.executable, "-P", str(PACKAGE / "runner/pytest_child.py"), *suites, "--device", "cuda", "-n", "0"),
            *("-p", "evidence.sanitizer.plugin", "--tool", tool, "--stop-at", str(time.time() + seconds)),
            *("--shard", f"{number + 1}/{jobs}", "--run-dir", str(folder / name), "-q", *options),
        ]
    _run_parallel(commands, folder, seconds + GRACE)
    processes = []
    for name in commands:
        run, log = folder / name, read_log(folder / f"{name}.log")
        note = json.loads((run / NOTE).read_text()) if (run / NOTE).exists() else {}
        processes.append(Process(run, log, note.get("cases"), note.get("left_out", [])))
    return processes


def _add(found: ToolResult, process: Process) -> None:
    found.cases += len(process.cases or ())
    found.silent += process.cases is None or (process.log.errors is None and process.cases != [])
    found.errors += process.log.errors or 0
    found.findings += process.log.findings
    for record in read_run(process.run).records if (process.run / JOURNAL).exists() else ():
        found.done += 1
        if record["verdict"] not in (Verdict.PASS, Verdict.EXCLUDED):
            found.failed.append(f"{record['verdict']} {record['case_id']}: {record['reason']}")


def _run_parallel(commands: dict[str, list[str]], folder: Path, seconds: float) -> None:
    """Run commands in parallel, with their output in `NAME.txt`; kill the ones that exceed the time limit."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    running = []
    for name, command in commands.items():
        with (folder / f"{name}.txt").open("w") as out:
            options = {"cwd": WORKDIR, "env": environment, "stdout": out, "stderr": subprocess.STDOUT}
            running.append(subprocess.Popen(command, **options))
    end = time.monotonic() + seconds
    for process in running:
        try:
            process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _last_lines(folder: Path) -> list[str]:
    texts = (path.read_text(errors="replace").strip() for path in sorted(folder.glob("*.txt")))
    return [text.splitlines()[-1] for text in texts if text]


def header_of(folder: Path) -> Header:
    """The header of any run in the subfolders. Raises DeviceUnavailable if no process started one."""
    for path in sorted(folder.rglob(JOURNAL)):
        return read_run(path.parent).about
    lines = [line for tool in sorted(folder.iterdir()) for line in _last_lines(tool)]
    raise DeviceUnavailable(f"no case was begun under compute-sanitizer; pytest says: {(lines or ['nothing'])[-1]}")


def exit_code(found: Iterable[ToolResult]) -> Exit:
    """The exit code: an error counts as wrong bytes, an incomplete tool as NOISY."""
    found = list(found)
    if any(each.errors or each.failed for each in found):
        return Exit.BYTES_DIFFER
    return Exit.CLEAN if found and all(each.complete for each in found) else Exit.NOISY
