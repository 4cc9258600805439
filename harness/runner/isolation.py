"""How a case that takes its process down costs itself only: a record is left behind, and another process goes on.

A kernel that never comes back cannot be stopped, and one that broke the CUDA context has broken it for every later case
of the process; both end with the process. A worker of pytest-xdist leaves the record where the controller looks for it,
which replaces the worker. Without workers the process replaces itself by one that resumes the run.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from harness.contract.case import Case
from harness.device.device import Device
from harness.errors import StorageError, UsageError
from harness.files import ROOT, write_text
from harness.runner.records import Record, finished
from harness.verdict import Result, Verdict
from harness.verify.verify import blank, failed

CASE_TIMEOUT = 600  # seconds; the largest cases take a minute or two to draw and to ask the oracles about
ENDED = 70  # exit code of a worker that gave up its case, which nobody sees but pytest-xdist
_GRACE = 30  # seconds after which a process ends that cannot even run a second Python thread
_LAST_WORDS = "last_words"


class Watchdog:
    """Calls `late` with a case, and what its thread is doing, if it takes longer than this; 0 seconds are for ever.

    late: called in another thread; does not return
    """

    def __init__(self, seconds: float, late: Callable[[Case, str, str], None]):
        self.seconds, self.late = seconds, late

    @contextmanager
    def over(self, case: Case) -> Iterator[None]:
        """Watch the calling thread as long as the context lasts."""
        if not self.seconds:
            yield
            return
        watched, done, lock = threading.get_ident(), threading.Event(), threading.Lock()

        def expire() -> None:
            with lock:
                if not done.is_set():
                    self.late(case, *_doing(watched, self.seconds))

        timer = threading.Timer(self.seconds, expire)
        timer.daemon = True
        timer.start()
        faulthandler.dump_traceback_later(self.seconds + _GRACE, exit=True)
        try:
            yield
        finally:
            with lock:
                done.set()
            timer.cancel()
            faulthandler.cancel_dump_traceback_later()


def given_up(case: Case, device: Device, reason: str, detail: str = "") -> Record:
    """The record of a case that its process does not survive. detail: more lines for its story"""
    story = f"{Verdict.LAUNCH_ERROR}  {case.id}\n  {reason}\n{detail}  reproduce: make verify CASE='{case.id}'"
    return _plain(failed(blank(case, device), Verdict.LAUNCH_ERROR, reason, story))


def died(case: Case, how: str) -> Record:
    """The record of a case whose process ended without a word."""
    reason = f"{how}, and left no word; --resume runs the case again"
    story = f"{Verdict.LAUNCH_ERROR}  {case.id}\n  {reason}\n  reproduce: make verify CASE='{case.id}'"
    return _plain(Result(case.id, case.recipe, Verdict.LAUNCH_ERROR, reason, story, case.input, died=True))


def leave(run_dir: Path, record: Record) -> NoReturn:
    """End this worker, whatever else it is doing, with the record where `last_words` finds it."""
    try:
        write_text(run_dir / f"{_LAST_WORDS}.{os.getpid()}.json", json.dumps(record))
    except StorageError as error:
        print(error, file=sys.stderr)
    os._exit(ENDED)


def last_words(run_dir: Path, case_id: str) -> Record | None:
    """What the worker that gave up this case left, once."""
    for path in run_dir.glob(f"{_LAST_WORDS}.*.json"):
        try:
            record = finished(path, path.read_bytes())
        except (OSError, UsageError):
            continue
        if record["case_id"] == case_id:
            path.unlink(missing_ok=True)
            return record
    return None


def forget(run_dir: Path) -> None:
    """Remove the last words of a run that was killed before anyone read them."""
    for path in run_dir.glob(f"{_LAST_WORDS}.*.json"):
        path.unlink(missing_ok=True)


def become(words: Sequence[str], folder: Path) -> NoReturn:
    """Replace this process by `python -m pytest` with these words in this folder, whatever else it is doing."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.chdir(folder)
    # What CUDA holds open must be closed, or the context of this process would live on in the next.
    for number in range(3, 4096):
        with suppress(OSError):
            os.set_inheritable(number, False)
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *words])


def _doing(thread: int, seconds: float) -> tuple[str, str]:
    """In a line and in several: where the thread is, the innermost line of the harness first."""
    frames = traceback.extract_stack(sys._current_frames()[thread])
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(ROOT / "harness")]
    last = (own or frames)[-1]
    place = f"{Path(last.filename).name}:{last.lineno}, {last.line}"
    detail = "".join(f"  {line}\n" for line in "".join(traceback.format_list(own or frames[-6:])).splitlines())
    return f"no end after {seconds:g} s, in {place}", detail


def _plain(result: Result) -> Record:
    return json.loads(json.dumps(result.to_record()))
