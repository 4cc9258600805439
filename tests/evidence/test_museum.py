"""The museum of bugs: each is caught by the check that it names, and its mend by none."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner
from processes import LONGEST, lives, wait_until

import evidence.museum.driver
from evidence.commands import museum
from evidence.commands.museum import command
from evidence.museum import under_sanitizer
from evidence.museum.driver import encoded
from evidence.museum.exhibit import Exhibit, exhibits, read
from evidence.museum.run import show
from harness.errors import DeviceUnavailable, Exit, UsageError
from harness.files import ROOT
from ptx_emulator.tensor_map import TensorMap

SECONDS = 1.0  # that a bug takes to be found


@pytest.mark.parametrize("exhibit", exhibits(), ids=lambda each: each.name)
def test_the_bug_is_caught_and_the_mend_is_not_accused(exhibit: Exhibit) -> None:
    shown = show(exhibit)
    assert (shown.bug.check, shown.mend.check) == (exhibit.check, ""), (shown.bug.sentence, shown.mend.sentence)
    assert exhibit.check == "bytes" or shown.bug.where.startswith(f"{exhibit.name}.cu:")


def test_there_are_two_dozen() -> None:
    assert len({each.thread for each in exhibits()}) >= 24


def test_a_bug_and_its_mend_differ() -> None:
    assert all("MEND(" in each.source or "BUG(" in each.source for each in exhibits())


def test_the_command_shows_thread_check_and_line() -> None:
    done = CliRunner().invoke(command, ["-k", "te_3417", "-v"], standalone_mode=False)
    assert done.return_value == 0
    assert "1 of 1 caught" in done.output
    assert "wait_group.read" in done.output


def test_an_exhibit_without_its_lines_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "nobody.cu"
    path.write_text("// thread: nobody#1\n// story: nothing\n")
    with pytest.raises(UsageError, match=r"nobody.cu: it begins with the lines thread, check, story"):
        read(path)


def test_the_first_example_takes_less_than_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    (first,) = (each for each in exhibits() if each.name == "te_3417")
    show(first)  # Numba loads once
    monkeypatch.setattr(time, "perf_counter", time.process_time)  # other processes may keep the machine busy
    assert show(first).seconds < SECONDS


def test_the_driver_encodes_into_memory_that_it_can_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver refuses an address that is not a multiple of 64; a stand-in for it records the address."""
    given: list[tuple] = []

    def encode(place: ctypes.c_void_p, *rest: Any) -> int:
        ctypes.memmove(place, bytes(range(128)), 128)
        given.append((place.value, *rest))
        return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(cuTensorMapEncodeTiled=encode))
    found = TensorMap("bfloat16", 0x7000, (64, 20), (160,), (32, 8), (1, 2), "128B")
    for _ in range(8):
        assert encoded(found) == bytes(range(128))
    assert all(place % 64 == 0 for place, *_ in given)
    _, kind, rank, address, extents, strides, box, steps, interleave, swizzle, promotion, fills = given[0]
    assert (kind, rank.value, address.value) == (9, 2, 0x7000)
    assert [list(each) for each in (extents, strides, box, steps)] == [[64, 20], [160], [32, 8], [1, 2]]
    assert (interleave, swizzle, promotion, fills) == (0, 3, 0, 0)


def sanitizer(folder: Path, body: str) -> Path:
    """A stand-in for compute-sanitizer, which knows `tool`, `name` and whether it is the `bug`."""
    found = folder / "sanitizer"
    known = "tool, name, bug = sys.argv[2], sys.argv[-2], sys.argv[-1] == 'bug'"
    found.write_text(f"#!{sys.executable} -IS\nimport sys, time\n{known}\n{body}\n")
    found.chmod(0o755)
    return found


def says(program: list[str], mended: bool, seconds: float = under_sanitizer.SECONDS) -> str:
    """The words of all tools on one exhibit."""
    chosen = [each for each in exhibits() if each.name == "te_3417"]
    found = under_sanitizer.asked(program, chosen, 4, seconds)
    return next(said.words for said in found if under_sanitizer.TITLES[said.title] is mended)


def test_what_a_sanitizer_says_stands_beside(tmp_path: Path) -> None:
    """A stand-in that finds something in the bug with one tool, and does not end with another."""
    program = [str(sanitizer(
        tmp_path, "time.sleep(60 if tool == 'synccheck' else 0)\nsys.exit(99 if bug and tool == 'racecheck' else 0)"
    ))]  # fmt: skip
    assert says(program, mended=False, seconds=5.0) == "racecheck"
    assert says(program, mended=True, seconds=5.0) == "no end"


def test_a_tool_that_could_not_run_says_so(tmp_path: Path) -> None:
    """2 is what an exhibit ends with where there is no GPU; 1 is one whose bytes are wrong."""
    program = [str(sanitizer(tmp_path, "sys.exit({'memcheck': 2, 'initcheck': 1}.get(tool, 0))"))]
    assert says(program, mended=False) == "memcheck could not run (exit 2)"


def test_the_command_writes_one_table_of_both(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named = sanitizer(
        tmp_path, "sys.exit(99 if bug and name == 'te_3417' and tool in ('memcheck', 'racecheck') else 0)"
    )
    monkeypatch.setattr(museum, "gpu_name", lambda: "some GPU")
    arguments = ["-k", "TransformerEngine#34", "--sanitizer", str(named), "--jobs", "2", "--out", str(tmp_path)]
    done = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert done.return_value == 0, done.output
    rows = pd.read_csv(tmp_path / "museum.csv").set_index("thread")
    assert rows["sanitizer, bug"].to_dict() == {
        "NVIDIA/TransformerEngine#3417": "memcheck, racecheck", "NVIDIA/TransformerEngine#3474": "nothing",
    }  # fmt: skip
    assert set(rows["sanitizer, mend"]) == {"nothing"}
    assert (
        "of the same kernels on some GPU. Made by `python -m evidence museum -k" in (tmp_path / "museum.md").read_text()
    )


@pytest.mark.slow
def test_what_an_interrupted_sanitizer_said_is_written(tmp_path: Path) -> None:
    """SIGTERM, as `timeout` sends it: what was said stands there, the rest was not asked, and no process is left."""
    named = sanitizer(
        tmp_path,
        f"""
import os
if name == 'te_3474':
    open({str(tmp_path)!r} + f'/{{os.getpid()}}.pid', 'w').close()
    time.sleep(100)
sys.exit(99 if bug and tool == 'racecheck' else 0)""",
    )
    code = f"""
from evidence.__main__ import main
from evidence.commands import museum
museum.gpu_name = lambda: "some GPU"
main(["museum", "-k", "TransformerEngine#34", "--sanitizer", {str(named)!r}, "--jobs", "2", "--out", {str(tmp_path)!r}])
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    lines = []
    while not lines or "sanitizer, mend" not in lines[-1]:
        lines.append(process.stdout.readline())
        assert lines[-1], lines
    wait_until(lambda: len(list(tmp_path.glob("*.pid"))) >= 2)
    process.send_signal(signal.SIGTERM)
    rest = process.communicate(timeout=LONGEST)[0]
    assert process.returncode == Exit.INTERRUPTED and "interrupted; what compute-sanitizer was not asked" in rest
    rows = pd.read_csv(tmp_path / "museum.csv").set_index("thread")[["sanitizer, bug", "sanitizer, mend"]]
    assert rows.loc["NVIDIA/TransformerEngine#3417"].tolist() == ["racecheck", "nothing"]
    assert rows.loc["NVIDIA/TransformerEngine#3474"].tolist() == ["not asked", "not asked"]
    for path in tmp_path.glob("*.pid"):
        assert not Path(f"/proc/{path.stem}").exists()


def test_what_a_sanitizer_started_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """compute-sanitizer starts the exhibit as a child of its own, which keeps the GPU while its kernel waits."""
    named = sanitizer(
        tmp_path,
        f"""
import subprocess
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(6000)'])
open({str(tmp_path)!r} + f'/{{child.pid}}.pid', 'w').close()
time.sleep(100)""",
    )
    monkeypatch.setattr(under_sanitizer, "TOOLS", under_sanitizer.TOOLS[:1])
    assert says([str(named)], mended=False, seconds=5.0) == "no end"
    children = [path.stem for path in tmp_path.glob("*.pid")]
    assert children
    wait_until(lambda: not any(map(lives, children)))


def test_a_sanitizer_needs_a_gpu_and_a_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(evidence.museum.driver, "device", lambda: None)
    for named, sentence in ((sanitizer(tmp_path, ""), "there is no GPU"), (tmp_path / "none", "cannot be run")):
        found = CliRunner().invoke(command, ["--sanitizer", str(named)], standalone_mode=False)
        assert isinstance(found.exception, DeviceUnavailable) and sentence in str(found.exception)


def test_no_exhibit_of_that_name_is_refused() -> None:
    found = CliRunner().invoke(command, ["-k", "nothing"], standalone_mode=False)
    assert isinstance(found.exception, UsageError) and "no exhibit has 'nothing' in its name" in str(found.exception)
