"""Run suites in a child process, and decide by its journal alone how the run ended.

pytest's process loads plugins and runs conftests and kernels, any of which may end it, replace it or change its output.
So its exit code is not trusted: this process knows from the command line which cases were asked for, and reads from
disk which of them have a record.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from harness.device.select import require_clock
from harness.errors import Exit, HarnessError, UsageError, exit_of, worst
from harness.ground.command_lines import is_guest, this_python
from harness.ground.ending import ENDING, end_with_parent, hear_children
from harness.records import journal, seal
from harness.records.run_folder import new_folder, newest_run, read_run
from harness.runner import resume_command
from harness.runner.below_supervisor import CHILD, NO_DEVICE_BELOW, SUPERVISOR, not_read, without_pytests
from harness.runner.guarding import LOOK, Guard
from harness.runner.outcome import last_line, meaning, outcome
from harness.runner.request import Request, of_files, otherwise
from harness.suite.suite import FIRST, find_case
from harness.verdict import Result

_UNREADABLE = 4
GO_ON = 71  # exit code of a process that can run no other case; the run continues in a new process
_SIGNALS = (*ENDING, signal.SIGCHLD)
_FROM_TERMINAL = 0x80  # si_code of a signal that the kernel sent, SI_KERNEL, as it does for Ctrl-C
# With these an interrupted child has ended in its own way; other codes, as pytest has for a failed plugin, hide it.
_IN_ITS_OWN_WAY = (Exit.CLEAN, Exit.USAGE, NO_DEVICE_BELOW, _UNREADABLE)
_EXPLAINED = (Exit.USAGE, Exit.INTERRUPTED, Exit.NO_DEVICE)  # pytest's process has printed why it ended early


def supervise(words: Sequence[str], folder: Path, rootdir: Path, runs: Path, typed: Sequence[str] = ()) -> Exit:
    """Run `python -m pytest` with these words; the exit code of the table.

    folder: where the words were typed; rootdir: pytest's; runs: where a run without --run-dir gets its folder
    typed: the command line that stands for them, if it was not pytest's
    """
    try:
        if sys.flags.optimize:
            raise UsageError(
                "python runs with -O or PYTHONOPTIMIZE, under which pytest asserts nothing; leave that out"
            )
        for word in of_files(words):
            raise UsageError(f"'{word}' has pytest read words of a file; only the command line says what runs")
        if links := seal.links():
            raise UsageError(links[0])
        request = Request.of(words, folder, rootdir)
        # Words about cases are refused before a process is started; all else in suites is refused by that process.
        if "=" in request.narrowing.keyword:
            request.narrowing.keeps()
        for case_id in request.ids:
            find_case(case_id)
        if request.narrowing.wanted or not _may_have(request.suites, request.set_name):
            request = request.selected()
        if request.bench and "--cluster" not in request.options:  # which refuses --bench
            require_clock(request.device)
        run_dir = _run_dir(request, folder, runs)
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return Exit(error.exit_code)
    if sentence := not_read(os.environ):
        print(sentence, file=sys.stderr)
    plain = not typed
    sealed, typed = seal.seal(), [*(typed or [this_python(folder), "-m", "pytest", *words])]
    words = [*words, *([] if request.run_dir else ["--run-dir", str(run_dir)])]
    guard = Guard(is_guest(request.subject))
    with _Child(words, folder, typed, guard) as child:
        # In parallel to the child, because reading suites takes a second. The child reports errors in them.
        with suppress(HarnessError):
            request = request.selected()
            sealed = _sealed(request) | sealed
        code = child.wait()
    guard.end_strays()  # before anything is read from the disk
    while code == GO_ON:
        size = _size(run_dir)
        with _Child([*words, *([] if request.resume else ["--resume"])], folder, typed, guard, run_dir) as child:
            code = child.wait()
        guard.end_strays()
        if code == GO_ON and _size(run_dir) == size:
            code = Exit.BYTES_DIFFER  # no progress: restarting would never end
    with suppress(OSError):
        run_dir.rmdir()  # removed if it is empty
    if code == _UNREADABLE:
        print("error: pytest cannot read the command line, as it says above", file=sys.stderr)
        return Exit.USAGE
    if plain and code != Exit.USAGE:
        print(resume_command.gate(words, folder), file=sys.stderr, flush=True)
    code = Exit.NO_DEVICE if code == NO_DEVICE_BELOW else code
    if request.selection is None:
        return _known(code) or Exit.USAGE
    return _judged(request, run_dir, sealed, code)


def leave(code: Exit) -> NoReturn:
    """End this process at once with this code, without any exit handlers."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class _Child:
    """pytest in a child process that dies with this one and gets its signals forwarded."""

    def __init__(
        self, words: Sequence[str], folder: Path, typed: Sequence[str], guard: Guard, goes_on: Path | None = None
    ):
        self.words, self.folder, self.typed, self.guard = words, folder, typed, guard
        self.goes_on = journal.digest(goes_on) if goes_on else ""

    def __enter__(self) -> _Child:
        # Blocked before the start, so that no signal is lost. In the child they stay blocked until it unblocks them:
        # before the exec a signal would reach Python's handler of this process, which the exec forgets.
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        own = os.getpid()
        hear_children()

        def prepare() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, self.mask | set(ENDING))
            end_with_parent(own)

        sys.stdout.flush()
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(CHILD), *self.words],
            cwd=self.folder,
            env={
                **without_pytests(os.environ),
                SUPERVISOR: str(os.getpid()),
                resume_command.TYPED: shlex.join(self.typed),
                journal.GOES_ON: self.goes_on,
            },
            preexec_fn=prepare,
        )
        return self

    def wait(self) -> int:
        """Wait for the exit code; negative if a signal ended the child."""
        ends = interrupted = False
        next_look = time.monotonic()
        while (code := self.process.poll()) is None:
            received = signal.sigtimedwait(_SIGNALS, LOOK) if self.guard.subject else signal.sigwaitinfo(_SIGNALS)
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + LOOK
                if not self.guard.look():
                    self.process.kill()
            # Python returns a signal of no number where SIGSTOP interrupted the wait and its time is over.
            if received is None or received.si_signo not in _SIGNALS:
                continue
            interrupted |= received.si_signo in ENDING
            # Ctrl-C in a terminal reaches both processes, so it is not forwarded.
            typed = received.si_signo == signal.SIGINT and received.si_code == _FROM_TERMINAL
            if received.si_signo == signal.SIGCHLD or typed:
                continue
            self.process.send_signal(signal.SIGKILL if ends else received.si_signo)
            ends = received.si_signo != signal.SIGINT
        while signal.sigtimedwait(ENDING, 0):  # one that came when the child had ended, or just before
            interrupted = True
        return Exit.INTERRUPTED if interrupted and code >= 0 and code not in _IN_ITS_OWN_WAY else code

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)


def _run_dir(request: Request, folder: Path, runs: Path) -> Path:
    """The folder of the run.

    Raises UsageError if it holds a run without --resume, no run to resume, or one that something else was asked of.
    """
    if request.run_dir is None:
        run_dir = newest_run(runs) if request.resume else new_folder(runs=runs)
    else:
        run_dir = folder / request.run_dir
    if not request.resume:
        journal.refuse_begun(run_dir)
    elif (run_dir / journal.FILE).exists() and (why := otherwise(request, read_run(run_dir).about)):
        raise UsageError(f"{run_dir} cannot be resumed: {why}; give what it was begun with, or start anew")
    return run_dir


def _may_have(suites: Sequence[Path], set_name: str) -> bool:
    """Whether the name of a set occurs in one of the files, which takes no time to tell, unlike what sets they have."""
    word = "smoke" if set_name == FIRST else set_name
    return any(word in path.read_text(encoding="utf-8", errors="replace") for path in suites if path.is_file())


def _sealed(request: Request) -> seal.Seal:
    """Digests of all that the verdicts of the request depend on."""
    return seal.seal(request.selection.by_id.values(), request.selection.paths, request.subject)


def _judged(request: Request, run_dir: Path, sealed: seal.Seal, code: int) -> Exit:
    """Print why the run is not green, unless pytest's process did, and the last line."""
    selection = request.selection
    results, sentence = _results(request, run_dir, sealed)
    ended_by = _known(code) if _known(code) in _EXPLAINED else Exit.CLEAN
    judged, why = outcome(selection.by_id, selection.total, results, ended_by)
    if sentence and not ended_by:
        # Without a journal no kernel ran, for example with pytest's --version.
        begun = (run_dir / journal.FILE).exists() or code
        judged, why = worst([Exit.BYTES_DIFFER, judged]) if begun else Exit.USAGE, sentence
    if code < 0:
        why = f"{signal.Signals(-code).name} ended the run{'; ' + why if why else ''}"
    if why:
        print(f"error: {why}", file=sys.stderr, flush=True)
    ended = worst([_known(code), judged])
    if ended is Exit.BYTES_DIFFER and not judged:
        means = "every case is right, but the run failed, as it says above"
    else:
        means = meaning(ended, selection.by_id, results)
    # make replaces the exit code, so a run that is not green says it.
    code_too = f"; exit {int(ended)} ({means})" if ended else ""
    return _say_last(f"{last_line(selection.by_id, results)}{code_too}", ended)


def _say_last(line: str, ended: Exit) -> Exit:
    """Print the last line of the output. USAGE if it cannot be written, such as on a full disk."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        if ended is not Exit.USAGE:  # then the child has said why
            print(f"error: the output: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what flushes at exit
        return Exit.USAGE
    return ended


def _results(request: Request, run_dir: Path, sealed: seal.Seal) -> tuple[list[Result], str]:
    """The results on disk, and a sentence if they do not count."""
    if not (run_dir / journal.FILE).exists():
        return [], f"nothing was compared: the run left no {journal.FILE} in {run_dir}; `harness list` lists cases"
    try:
        run = read_run(run_dir)
    except UsageError as error:
        return [], str(error)
    if run.about.get("cases") != request.selection.digest:
        return [], (
            "the run selected other cases than the command line; neither PYTEST_ADDOPTS nor a file of pytest's may "
            "choose cases, so name --set, --case, --shard or -k as a word of its own"
        )
    if why := otherwise(request, run.about):
        return (
            [],
            f"the run is not what the command line asked for: {why}; plugins and files of pytest's may not choose it",
        )
    changed = seal.changed(sealed, run.about["sealed"]) or seal.changed(sealed, _sealed(request))
    if changed:
        return [], f"what the verdicts depend on changed during the run: {seal.listed(changed)}; start anew"
    if request.leads_elsewhere():
        return [], f"{' and '.join(request.named)} came to name other suites during the run; start anew"
    return [Result.from_record(record) for record in run.records], ""


def _known(code: int) -> Exit:
    """`exit_of` a code, but INTERRUPTED for a signal that ends a process."""
    return Exit.INTERRUPTED if -code in ENDING else exit_of(code)


def _size(run_dir: Path) -> int:
    path = run_dir / journal.FILE
    return path.stat().st_size if path.exists() else 0
