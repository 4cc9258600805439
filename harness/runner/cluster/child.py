"""The process that runs cases for a worker of a cluster: `python -m harness.runner.cluster.child FD`.

FD is one end of a pipe. It reads `Work` and says that it is ready, then reads cases and answers each. It ends with the
pipe, when nothing comes for a while, and after a case that broke its device.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import sys
import threading
import traceback
from multiprocessing.connection import Connection

from harness.contract.case import Case
from harness.device.device import Device
from harness.device.select import select
from harness.errors import HarnessError, InputError
from harness.expected.expected import NUMPY_LARGEST
from harness.ground.strictness import use_strict
from harness.records import seal
from harness.runner.cluster.worker import Answer, Ready, Work, sealed_here
from harness.suite.suite_file import use_recipe_dir
from harness.verify import isolation
from harness.verify.verify import verify

IDLE = 60.0  # seconds; a process that gets no request for so long ends, to free its memory


def main(words: list[str]) -> int:
    """Serve the pipe until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C also reaches the run, which then closes the pipe
    pipe = Connection(int(words[0]))
    asked: queue.Queue[Work | Case] = queue.Queue()
    threading.Thread(target=_read, args=(pipe, asked), daemon=True).start()
    work = asked.get()
    try:
        device = _begin(pipe, work)
    except HarnessError as error:
        pipe.send(Answer.of(error))
        return 0
    watchdog = isolation.Watchdog(work.case_timeout, lambda *late: _too_late(pipe, device, *late))
    while True:
        try:
            case = asked.get(timeout=IDLE)
        except queue.Empty:
            return 0
        with watchdog.over(case):
            answer = _answer(case, device, work)
        pipe.send(answer)
        if answer.ends:
            return 0


def _read(pipe: Connection, asked: queue.Queue[Work | Case]) -> None:
    """Read in a thread of its own, so that the process ends at once with its parent, even inside a kernel."""
    try:
        while True:
            asked.put(pipe.recv())
    except (EOFError, OSError):
        os._exit(0)


def _begin(pipe: Connection, work: Work) -> Device:
    if work.strict:
        use_strict()
    for folder in work.recipe_dirs:
        use_recipe_dir(folder)
    device = select(work.device)
    if device.name == "cuda":
        device.processes = os.cpu_count() or 1  # a machine has no more workers than cores
    memory = getattr(device, "memory", 0)
    pipe.send(Ready(socket.gethostname(), device.identity(), memory, sealed_here(work.suites)))
    return device


def _answer(case: Case, device: Device, work: Work) -> Answer:
    try:
        for name, digest in seal.tensors([case]).items():
            if digest != work.tensors.get(name):
                raise InputError(f"{name} is not the same file here as where the run began; copy it to this machine")
        return Answer(isolation.attempt(case, device, lambda: verify(case, device, NUMPY_LARGEST)).to_record())
    except isolation.GaveUp as last:
        return Answer(last.result.to_record(), ends=True)
    except HarnessError as error:
        return Answer.of(error)
    except Exception:
        return Answer(kind="CaseError", sentence=f"{case.id} raised\n{traceback.format_exc()}")


def _too_late(pipe: Connection, device: Device, case: Case, reason: str, detail: str) -> None:
    pipe.send(Answer(isolation.given_up(case, device, reason, detail).to_record(), ends=True))
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
