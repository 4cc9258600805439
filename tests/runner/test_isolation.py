"""A case that takes its process down costs itself only, whatever the way, and a killed run loses what was in flight.

The kernels are stand-ins that hang, end the process, break the device for every later case or find it gone.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from processes import LONGEST, children, wait_until
from toy_runs import SMOKE, Runs

from harness.device.cuda import CudaDevice
from harness.device.device import Device, InPlaceOfOurs
from harness.device.emulator import EmulatorDevice
from harness.errors import DeviceUnavailable, Exit
from harness.ground.seconds import WAITS
from harness.records import seal
from harness.subjects.device import HostDevice
from harness.suite.suite import find_case
from harness.verify.isolation import Watchdog

IN_ONE_PROCESS, IN_WORKERS, IN_ONE_WORKER = (), ("-n", "2"), ("-n", "1")


def verdicts(run: Runs) -> dict[str, str]:
    """Case id → verdict; each case stands there once."""
    records = run.journal()
    assert len({record["case_id"] for record in records}) == len(records)
    return {record["case_id"]: record["verdict"] for record in records}


def alone(run: Runs, part: str) -> list[dict]:
    """The records of the cases with this in their id, which must be all that are not a PASS."""
    assert len(verdicts(run)) == SMOKE
    wrong = [record for record in run.journal() if record["verdict"] != "PASS"]
    assert {record["case_id"] for record in wrong} == {name for name in verdicts(run) if part in name}
    return wrong


@pytest.mark.parametrize(
    "processes", [IN_ONE_PROCESS, pytest.param(IN_WORKERS, marks=pytest.mark.slow)], ids=["one process", "workers"]
)
def test_a_kernel_that_hangs_costs_its_case(run: Runs, processes: tuple[str, ...]):
    run.verdicts(**{"48x80/ties": "HANG"})
    result = run("suites", "--case-timeout", "3", "--junitxml", "junit.xml", *processes, fork=True)
    assert result.ret == Exit.BYTES_DIFFER
    wrong = alone(run, "48x80/ties")
    for record in wrong:
        assert record["verdict"] == "LAUNCH_ERROR" and record["reason"].startswith("no end after 3 s, in ")
        assert not record["died"]
    result.stdout.fnmatch_lines(["*LAUNCH_ERROR  toy/*/48x80/ties/eager"])
    assert len(run.verified()) == SMOKE
    # Every case is told of, by whichever process did it.
    result.assert_outcomes(passed=SMOKE - len(wrong), failed=len(wrong))
    cases = list(ElementTree.parse("junit.xml").iter("testcase"))
    assert len(cases) == SMOKE and sum(case.find("failure") is not None for case in cases) == len(wrong)


SLOW_BREAKS = (("LOUD", IN_ONE_PROCESS), ("STICKY", IN_WORKERS))


@pytest.mark.parametrize(
    ("word", "processes"),
    [("STICKY", IN_ONE_PROCESS), *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW_BREAKS)],
)
def test_a_kernel_that_breaks_the_device_for_its_process_costs_its_case(run: Runs, word: str, processes):
    run.verdicts(**{"16x16/ties": word})
    assert run("suites", *processes, fork=True).ret == Exit.BYTES_DIFFER
    assert {record["verdict"] for record in alone(run, "16x16/ties")} == {"LAUNCH_ERROR"}
    assert len(run.verified()) == SMOKE


def test_a_kernel_that_ends_its_worker_costs_its_case_and_is_run_again(run: Runs):
    run.verdicts(**{"16x16/ties": "EXIT"})
    result = run("suites", "-n", "2", fork=True)
    assert result.ret == Exit.BYTES_DIFFER
    wrong = alone(run, "16x16/ties")
    assert all(record["died"] and "crashed while running" in record["reason"] for record in wrong)
    run.verdicts()
    assert run("suites", "--resume").ret == Exit.CLEAN
    assert len(run.verified()) == SMOKE + len(wrong)


@pytest.mark.slow
def test_every_case_may_cost_a_worker(run: Runs):
    run.verdicts(toy="STICKY")
    # pytest-xdist itself replaces four for each one.
    assert run("suites", "-n", "1", "-k", "normal or 16x16", fork=True).ret == Exit.BYTES_DIFFER
    assert len(run.verified()) == len(run.journal()) > 5


# One worker would go on with the next case before the controller hears that the GPU of this one is gone.
@pytest.mark.parametrize("processes", [
    IN_ONE_PROCESS, *(pytest.param(each, marks=pytest.mark.slow) for each in (IN_ONE_WORKER, IN_WORKERS)),
], ids=["here", "worker", "workers"])  # fmt: skip
def test_a_gpu_that_vanishes_ends_the_run_with_what_was_measured(run: Runs, processes: tuple[str, ...]):
    # In workers not the first case of one, which may be ready while the other still starts.
    run.verdicts(**{"48x80/normal" if processes == IN_WORKERS else "16x16/ties": "GONE"})
    result = run("suites", *processes, fork=True)
    assert result.ret == Exit.NO_DEVICE
    result.stderr.fnmatch_lines(["error: GPU 0 is there no more: cudaErrorNoDevice"])
    told = f"interrupted: {len(run.journal())} of {SMOKE} cases are done; go on with"
    result.stdout.fnmatch_lines([told, "*--resume"])
    assert 0 < len(run.journal()) < SMOKE and set(verdicts(run).values()) == {"PASS"}
    run.verdicts()
    assert run("suites", "--resume").ret == Exit.CLEAN
    assert len(verdicts(run)) == SMOKE


# Disks


def test_a_full_disk_under_the_compiler_ends_the_run(run: Runs):
    run.verdicts(**{"48x80": "FULL"})
    result = run("suites")
    assert result.ret == Exit.USAGE
    result.stderr.fnmatch_lines(["error: /cache/of/kernels cannot be written: No space left on device; *"])
    result.stdout.no_fnmatch_line("*Traceback*")
    assert 0 < len(run.journal()) < SMOKE


# Python ignores SIGXFSZ, so a write beyond the limit is EFBIG, after half a line, as it is on a full disk.
LIMITED = "import resource, sys, pytest; resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0})); sys.exit(pytest.main())"


@pytest.mark.parametrize(
    "processes", [IN_ONE_PROCESS, pytest.param(IN_WORKERS, marks=pytest.mark.slow)], ids=["one process", "workers"]
)
def test_a_disk_that_fills_up_ends_the_run_with_what_is_on_it(run: Runs, processes: tuple[str, ...]):
    words = ("suites", "-p", "harness.plugin", "-p", "no:cacheprovider", "--run-dir", "out", *processes)
    room = len(json.dumps(seal.seal())) + 2000  # for the header and some records
    done = subprocess.run(
        [sys.executable, "-c", LIMITED.format(room), *words], capture_output=True, text=True, timeout=LONGEST
    )
    assert done.returncode == Exit.USAGE, done.stdout + done.stderr
    assert "error: " in done.stderr and "cannot be written: File too large; make room" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    kept = run.journal()
    assert 0 < len(kept) < SMOKE
    assert run("suites", "--resume").ret == Exit.CLEAN
    assert run.journal()[: len(kept)] == kept and len(verdicts(run)) == SMOKE


def test_a_disk_that_takes_no_report_is_one_sentence_behind_the_verdicts(run: Runs):
    Path("full").write_text("")
    result = run("suites")
    assert result.ret == Exit.USAGE
    result.stderr.fnmatch_lines(["error: report.html cannot be written: No space left on device"])
    result.stdout.fnmatch_lines(["*cases*8 PASS*"])
    assert len(run.journal()) == SMOKE


@pytest.mark.parametrize("option", ["--run-dir", "--junitxml"])
def test_a_folder_that_cannot_be_written_is_one_sentence(run: Runs, option: str):
    # A file in the place of a folder, and a file system that takes nothing: neither root may write there.
    Path("file").write_text("")
    for folder in ("file/out", "/proc/out"):
        result = run("suites", option, folder)
        assert result.ret == Exit.USAGE, result.stdout.str()
        result.stderr.fnmatch_lines([f"error: *{folder.partition('/out')[0]}*cannot be written: *"])
        result.stdout.no_fnmatch_line("*Traceback*")
        (run.run_dir / "journal.jsonl").unlink(missing_ok=True)


# kill -9


def start(*words: str) -> subprocess.Popen:
    command = (sys.executable, "-m", "pytest", "-p", "harness.plugin", "suites", "--run-dir", "out", *words)
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kills(run: Runs, process: subprocess.Popen, seed: int, of_worker: bool) -> Iterator[int]:
    """Kill the process, or one of its workers, at a random moment after its first case; its exit code."""
    chance = random.Random(seed)
    begun = len(run.verified())
    while len(run.verified()) == begun and process.poll() is None:
        time.sleep(0.01)
    time.sleep(chance.uniform(0, 0.25))
    victims = children(process.pid) if of_worker else [process.pid]
    if victims and process.poll() is None:
        os.kill(chance.choice(victims), signal.SIGKILL)
        yield 1
    Path("go on").touch()
    process.wait(LONGEST)
    Path("go on").unlink()


@pytest.mark.parametrize(
    ("processes", "of_worker"),
    [(IN_ONE_PROCESS, False), *(pytest.param(IN_ONE_WORKER, each, marks=pytest.mark.slow) for each in (False, True))],
    ids=["one process", "controller", "worker"],
)  # fmt: skip
def test_a_kill_loses_what_was_in_flight_and_nothing_else(run: Runs, processes, of_worker: bool):
    run.verdicts(**{"16x16/ties": "MISMATCH", "48x80/ties": "WAIT", "toy": "SLOW"})
    Path("go on").touch()
    assert run("suites", "--run-dir", "undisturbed").ret == Exit.BYTES_DIFFER
    Path("go on").unlink()
    expected = by_id("undisturbed")
    Path("verified.txt").unlink()
    killed, held = 0, {}
    for seed in range(1 if of_worker else 2):
        resume = ["--resume"] if Path("out/journal.jsonl").exists() else []
        killed += sum(kills(run, start(*processes, *resume), seed, of_worker))
        now = by_id("out")
        assert all(now[name] == record for name, record in held.items() if not record["died"])
        held = now
    assert killed
    Path("go on").touch()
    assert run("suites", "--resume", *processes, fork=bool(processes)).ret == Exit.BYTES_DIFFER
    assert by_id("out") == expected
    assert len(run.verified()) <= SMOKE + killed * max(1, len(processes))


def by_id(folder: str) -> dict[str, dict]:
    """Case id → the last of its records whose line has its end."""
    lines = Path(folder, "journal.jsonl").read_text().splitlines(keepends=True)
    records = (json.loads(line) for line in lines[1:] if line.endswith("\n"))
    return {record["case_id"]: record for record in records}


@pytest.mark.parametrize("left", ["", '{"sources": "half a he'])
def test_a_run_killed_before_its_first_line_can_be_started_and_resumed(run: Runs, left: str):
    for option in ((), ("--resume",)):
        run.run_dir.mkdir(exist_ok=True)
        (run.run_dir / "journal.jsonl").write_text(left)
        assert run("suites", *option).ret == Exit.CLEAN
        assert len(verdicts(run)) == SMOKE


def test_two_runs_do_not_write_one_journal(run: Runs):
    run.verdicts(toy="WAIT")
    process = start()
    try:
        wait_until(run.verified)
        result = run("suites", "--resume")
        assert result.ret == Exit.USAGE
        result.stderr.fnmatch_lines(["error: *journal.jsonl is written by another run; *"])
    finally:
        process.kill()
        process.wait()


def test_a_resumed_run_tells_its_earlier_failures_again(run: Runs):
    run.verdicts(ties="MISMATCH")
    run("suites")
    result = run("suites", "--resume", "-v")
    assert result.ret == Exit.BYTES_DIFFER
    result.stdout.fnmatch_lines(["*DONE BEFORE*", "THE STORY of toy/*/ties/eager"])


@pytest.mark.slow
def test_stopping_at_the_first_failure_holds_for_a_hanging_one(run: Runs):
    run.verdicts(**{"16x16/ties": "HANG"})
    assert run("suites", "-x", "--case-timeout", "3", fork=True).ret == Exit.BYTES_DIFFER
    assert sum(record["verdict"] == "LAUNCH_ERROR" for record in run.journal()) == 1
    assert len(run.journal()) < SMOKE


@pytest.mark.parametrize(("status", "gone"), [(700, False), (719, False), (46, True), (100, True), (0, False)])
def test_a_gpu_tells_a_broken_context_from_one_that_is_gone(monkeypatch: pytest.MonkeyPatch, status: int, gone: bool):
    class CUDARuntimeError(RuntimeError):
        def __init__(self):
            super().__init__(f"cudaError {status}")
            self.status = status

    def synchronize() -> None:
        if status:
            raise CUDARuntimeError

    runtime = SimpleNamespace(
        deviceSynchronize=synchronize, memGetInfo=lambda: (1, 2), CUDARuntimeError=CUDARuntimeError
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    device = CudaDevice.__new__(CudaDevice)
    device.index = 3
    if gone:
        with pytest.raises(DeviceUnavailable, match="GPU 3 is there no more: cudaError"):
            device.lost()
    else:
        assert device.lost() == (f"cudaError {status}" if status else "")


@pytest.mark.parametrize("device", [EmulatorDevice, HostDevice, CudaDevice, InPlaceOfOurs(EmulatorDevice(), "")])
def test_every_device_can_be_asked_what_a_run_asks(device: object):
    asked = {name for name, member in vars(Device).items() if callable(member) and not name.startswith("_")}
    assert "lost" in asked and [name for name in asked if not callable(getattr(device, name, None))] == []


# The time limit of a case: waits for room are not the case's own time

LIMITED_CASE = find_case("swizzle/default/16x16/normal/eager")


@pytest.mark.parametrize("waits", [1, 3])
def test_a_wait_for_room_is_not_counted(waits: int):
    late = []
    with Watchdog(0.5, lambda *told: late.append(told)).over(LIMITED_CASE):
        for _ in range(waits):
            with WAITS.waiting():
                time.sleep(0.8 / waits)
    assert not late


@pytest.mark.parametrize("wait", [0, 0.2])
def test_the_rest_is(wait: float):
    late = []
    with Watchdog(0.1, lambda *told: late.append(told)).over(LIMITED_CASE):
        with WAITS.waiting() if wait else nullcontext():
            time.sleep(wait)
        wait_until(lambda: late)
    assert len(late) == 1 and late[0][1].startswith("no end after 0.1 s")
