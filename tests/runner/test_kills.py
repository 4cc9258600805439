"""A run that is interrupted or killed at any moment is never green early, loses nothing, and resumes to the same end.

`--kills 100` tries a hundred moments; without it a few are tried, others each time the number is raised.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from processes import LONGEST, children, lives, wait_until
from test_isolation import by_id
from toy_runs import SMOKE, Runs

from harness.errors import Exit

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
HOOKS = (pytest.param("pytest_sessionfinish", marks=pytest.mark.slow), "pytest_unconfigure")
LATEST = 3.0  # seconds after the start, by when a quiet machine is done


def start(*words: str) -> subprocess.Popen[str]:
    command = (sys.executable, "-m", "pytest", "-p", "harness.plugin", "suites", "--run-dir", "out", *words)
    # A group of its own, as a shell starts it.
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "process_group": 0}
    return subprocess.Popen(command, **pipes)


def below(pid: int) -> list[list[int]]:
    """The supervisor, its child, and the workers of that: the process ids of each level that there are now."""
    found, level = [], [pid]
    while level:
        found.append(level)
        level = [child for parent in level for child in children(parent)]
    return found


def gone(levels: list[list[int]]) -> bool:
    return not any(lives(pid) for level in levels for pid in level)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        first, *others = range(metafunc.config.getoption("--kills"))
        metafunc.parametrize("seed", [first, *(pytest.param(each, marks=pytest.mark.slow) for each in others)])


def test_a_kill_at_any_moment(run: Runs, seed: int):
    chance = random.Random(seed)
    run.verdicts(**{"48x80/ties": "MISMATCH", "toy": "SLOW"})
    processes = chance.choice([(), ("-n", "1"), ("-n", "2")])
    process = start(*processes)
    time.sleep(chance.uniform(0, LATEST))
    levels = below(process.pid)
    victim, how = chance.choice(chance.choice(levels)), chance.choice(SIGNALS)
    with suppress(ProcessLookupError):
        os.kill(victim, how)
    printed, _ = process.communicate(timeout=LONGEST)
    whole = len(by_id("out")) == SMOKE if Path("out/journal.jsonl").exists() else False
    what = f"seed {seed}, {how.name} to process {victim} of {levels}:\n{printed}"
    assert process.returncode != Exit.CLEAN, what
    assert whole or process.returncode != Exit.BYTES_DIFFER or "MISMATCH" in printed or "error: " in printed, what
    wait_until(lambda: gone(levels))
    assert gone(levels), f"{below(process.pid)} are left, {what}"
    begun = Path("out/journal.jsonl").exists()
    held = by_id("out") if begun else {}
    last = start(*processes, *(["--resume"] if begun else []))
    printed, _ = last.communicate(timeout=LONGEST)
    assert last.returncode == Exit.BYTES_DIFFER, what + printed
    now = by_id("out")
    assert {name: record["verdict"] for name, record in now.items()} == {
        name: "MISMATCH" if "48x80/ties" in name else "PASS" for name in now
    }, what + printed
    assert len(now) == SMOKE
    assert all(now[name] == record for name, record in held.items() if not record["died"]), what


@pytest.mark.parametrize(
    "processes", [(), pytest.param(("-n", "2"), marks=pytest.mark.slow)], ids=["one process", "workers"]
)
def test_sigterm_tells_how_to_go_on(run: Runs, processes: tuple[str, ...]):
    run.verdicts(**{"48x80/ties": "WAIT", "toy": "SLOW"})
    process = start(*processes)
    wait_until(run.verified)
    os.killpg(process.pid, signal.SIGTERM)
    printed, _ = process.communicate(timeout=LONGEST)
    assert process.returncode == Exit.INTERRUPTED, printed
    assert "cases are done; go on with" in printed and "--resume" in printed
    assert "without a result" in printed.splitlines()[-1]


@pytest.mark.parametrize("hook", HOOKS)
def test_an_interrupt_behind_the_last_case_is_one(run: Runs, hook: str):
    """An uncaught exception would exit with the code of a wrong kernel; an interrupt must not."""
    Path("slow_end.py").write_text(
        f"import time, pathlib\ndef {hook}():\n    pathlib.Path('ending').touch()\n    time.sleep(60)\n"
    )
    process = start("-p", "slow_end")
    wait_until(Path("ending").exists)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=LONGEST)
    assert process.returncode == Exit.INTERRUPTED and "Traceback" not in printed, printed
    assert len(by_id("out")) == SMOKE


@pytest.mark.parametrize("hook", HOOKS)
def test_a_plugin_that_fails_behind_the_last_case_is_not_a_wrong_kernel(run: Runs, hook: str):
    Path("failing_end.py").write_text(f"def {hook}():\n    raise RuntimeError('of another plugin')\n")
    process = start("-p", "failing_end")
    printed, _ = process.communicate(timeout=LONGEST)
    assert process.returncode == Exit.BYTES_DIFFER and "RuntimeError: of another plugin" in printed, printed
    assert printed.splitlines()[-1].endswith("; exit 1 (every case is right, but the run failed, as it says above)")
    assert len(by_id("out")) == SMOKE
