"""A command that is ended from outside ends what it has begun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import LONGEST, children, lives, sleeps, wait_until

from harness.errors import Exit

# Each piece of work takes longer than a test waits. More of them than a pool hands out at once: some have not begun.
POOLS = {
    "side by side": "from harness.ground.side_by_side import side_by_side\n"
    "side_by_side(time.sleep, [5, 5, *[6000] * 18], 2)",
    "spawned processes": "from harness.ground.side_by_side import process_pool\n"
    "with process_pool(2, 'spawn') as pool:\n"
    "    tasks = [pool.submit(time.sleep, 6000) for _ in range(20)]\n"
    "    [task.result() for task in tasks]",
    "a pool": "import multiprocessing; from harness.ground.ending import serve_parent\n"
    "with multiprocessing.get_context('fork').Pool(2, serve_parent) as pool: pool.map(time.sleep, [6000, 6000])",
}  # fmt: skip


def started(work: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A command that does this work in two processes, and their ids."""
    lines = "\n    ".join(work.split("\n"))
    code = f"""
import signal, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which `nohup` in front of the tests ignores
from harness import cli
@cli.cli.command("work")
def command():
    {lines}
cli.Commands.get_command = lambda self, context, name: command
cli.Commands.list_commands = lambda self, context: ["work"]
cli.main(["work"])
"""
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    asleep = 0
    while asleep < 30:  # all of them, for a while: they have begun
        time.sleep(0.01)
        pids = [process.pid, *children(process.pid)]
        asleep = asleep + 1 if len(pids) > 2 and all(map(sleeps, pids)) else 0
    return process, children(process.pid)


@pytest.mark.parametrize("work", POOLS.values(), ids=POOLS)
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_pool_ends_with_its_command(work: str, ending: signal.Signals):
    """SIGTERM, as `timeout` and a CI send it, ends it as Ctrl-C does; its processes end whatever ended it."""
    process, workers = started(work)
    os.kill(process.pid, ending)
    _, printed = process.communicate(timeout=LONGEST)
    assert process.returncode == (-ending if ending == signal.SIGKILL else Exit.INTERRUPTED), printed
    assert "Traceback" not in printed
    wait_until(lambda: not any(map(lives, workers)))
    assert len(workers) >= 2 and not any(map(lives, workers))  # a third one where processes are spawned: the tracker


def test_a_process_whose_command_ended_while_it_began_ends_too(tmp_path: Path):
    """The signal of the kernel comes only to a process that asked for it while its parent lived."""
    pid = tmp_path / "pid"
    code = f"""
import multiprocessing, os, time
from pathlib import Path
from harness.ground.ending import serve_parent
def work():
    Path({str(pid)!r}).write_text(str(os.getpid()))
    while os.getppid() == multiprocessing.parent_process().pid:
        time.sleep(0.01)
    serve_parent()
    time.sleep(6000)
multiprocessing.get_context("fork").Process(target=work).start()
while not Path({str(pid)!r}).exists() or not Path({str(pid)!r}).read_text():
    time.sleep(0.01)
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    wait_until(lambda: not lives(pid.read_text()))
    assert not lives(pid.read_text())


def test_ctrl_c_is_noticed_behind_a_compilation():
    """NVRTC leaves the handlers of signals so that a thread that waits does not notice them."""
    code = "import threading; from harness.jit.nvrtc import nvrtc_build; nvrtc_build(); print('.', flush=True)\n"
    process = subprocess.Popen(
        [sys.executable, "-c", code + "threading.Event().wait()"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.readline()
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=LONGEST)
    assert printed.rstrip().endswith(b"KeyboardInterrupt")


def test_an_interrupt_within_a_finalizer_is_not_lost():
    """Python ignores what a `__del__` raises; Dask's futures have one, and a run went on that had been interrupted."""
    work = """
class Slow:
    def __del__(self):
        print('.', flush=True)
        until = time.monotonic() + 0.5
        while time.monotonic() < until: pass
slow = Slow()
del slow
time.sleep(60)"""
    code = "import time; from harness.ground.ending import interrupt_by_signals; interrupt_by_signals()" + work
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=LONGEST)
    assert printed.rstrip().endswith("KeyboardInterrupt") and "Exception ignored" not in printed
