"""The process of a subject: what it is given, how it ends, and that the next case gets a new one."""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from harness.device.emulator import EmulatorDevice
from harness.errors import LaunchError, UsageError
from harness.subjects import messages, shared
from harness.subjects.audit.verify import audit
from harness.subjects.device import with_subject
from harness.subjects.process import LONGEST_TEXT, Child, checked, environment
from harness.subjects.subject import load, source_of, start
from harness.subjects.violations import Violation, ViolationError
from harness.suite.suite import find_case
from harness.verdict import Verdict

CASE = "swizzle/default/128x64/normal/eager"
OTHER = "swizzle/direction=columnwise/128x64/normal/eager"
MINE = """
import os
from evidence.cheating.tools import work

def quantize(case, inputs, outputs):
    if "columnwise" in case.id:
        os._exit(7)
    work(inputs["scale_inv"], outputs["swizzled_scale_inv"])

def looks(case, inputs, outputs):
    here = "/proc/self/fd"
    links = [os.readlink(f"{here}/{n}") for n in os.listdir(here) if os.path.islink(f"{here}/{n}")]
    own = [link for link in links if not link.startswith(("/dev/null", "socket:", "/proc", "/memfd"))]
    raise ValueError(repr((own, sorted(name for name in os.environ if name.startswith(("HARNESS", "PYTEST"))))))

def counts(case, inputs, outputs):
    global calls
    calls = globals().get("calls", 0) + 1
    work(inputs["scale_inv"], outputs["swizzled_scale_inv"])
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Child]]:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    children: list[Child] = []
    yield children
    for child in children:
        child.end()


def device_of(mine: list[Child], function: str):
    child = Child(f"mine:{function}")
    mine.append(child)
    return with_subject(EmulatorDevice(), start(child.name, child))


def test_a_process_serves_case_after_case_and_the_next_one_after_an_offence_is_new(mine):
    device = device_of(mine, "quantize")
    first = device.child._process.pid
    assert audit(find_case(CASE), device).verdict is Verdict.PASS
    assert device.child._process.pid == first
    result = audit(find_case(OTHER), device)
    assert (result.verdict, result.offence) == (Verdict.LAUNCH_ERROR, "leaves")
    assert result.reason == "leaves: the process of mine:quantize ended with exit code 7"
    assert device.child._process is None
    assert audit(find_case(CASE), device).verdict is Verdict.PASS
    assert device.child._process.pid != first


def test_a_process_ends_with_its_owner(mine):
    child = device_of(mine, "quantize").child
    number = child._process.pid
    child.end()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_a_subject_sees_no_file_and_no_variable_of_the_run(mine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HARNESS_CACHE", os.environ.get("HARNESS_CACHE", "/nowhere"))
    result = audit(find_case(CASE), device_of(mine, "looks"))
    assert result.reason.endswith("raised ValueError at mine.py:14: ([], [])")


def test_variables_of_the_run_are_left_out():
    found = environment({"HOME": "/h", "PYTEST_CURRENT_TEST": "x", "HARNESS_CACHE": "y", "CUDA_HOME": "/c"})
    assert found.keys() == {"HOME", "CUDA_HOME", "PYTHONPATH"}


def test_a_module_is_found_without_being_imported(mine, tmp_path: Path):
    assert Path(source_of("mine:quantize")) == tmp_path / "mine.py"
    assert Path(source_of("torchao")).name == "torchao.py"
    assert source_of("evidence.cheating.cheats:Cheat").endswith("cheating/cheats.py")
    assert source_of("nosuch.module:f") is None


def test_a_subject_that_cannot_be_loaded_is_one_sentence(mine):
    with pytest.raises(UsageError, match="mine has no function 'looked'; did you mean 'looks'"):
        device_of(mine, "looked")


def test_shared_memory_cannot_be_cut_off():
    block = shared.HostBlock(1 << 16)
    with pytest.raises(PermissionError):
        os.ftruncate(block.passed[0], 0)
    other = shared.attached(block.nbytes, block.passed[0])
    block.close_passed()
    other[5] = 7
    assert block.bytes[5] == 7
    first, second = block.empty(3), block.empty(256)
    second[...] = 9
    place = block.place(second, "float32", (8, 8))
    assert place.offset == 256 and place.of(other).tobytes() == bytes([9]) * 256
    assert not np.shares_memory(first, second)


# Answers of a process that is not to be trusted


@pytest.mark.parametrize(
    "sent, error",
    [
        (struct.pack("<Q", 1 << 40), ValueError),
        (struct.pack("<Q", 4) + b"nope", ValueError),
        (struct.pack("<Q", 2) + b"[]", ValueError),
        (struct.pack("<Q", 200_000) + b"[" * 200_000, ValueError),
        (struct.pack("<Q", 2) + b"\xff\xff", ValueError),
        (struct.pack("<Q", 9) + b"{}", EOFError),
        (b"", EOFError),
    ],
)
def test_what_is_no_answer_is_an_error_of_one_kind(sent: bytes, error: type[Exception]):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(error):
            messages.read_answer(ours, 5.0)


def test_an_answer_that_comes_in_drops_is_not_waited_for():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(struct.pack("<Q", 100) + b"{")
        with pytest.raises(TimeoutError):
            messages.read_answer(ours, 0.05)


@pytest.mark.parametrize(
    "answer",
    [
        {"ok": {}},
        {"token": "other", "ok": {}},
        {"token": "t"},
        {"token": "t", "ok": 3},
        {"token": "t", "error": ["nosuch", "x"]},
        {"token": "t", "error": ["usage", "stop the run"]},
        {"token": "t", "error": ["raises"]},
        {"token": "t", "error": [["raises"], "x"]},
    ],
)
def test_an_answer_that_is_not_of_the_protocol_is_refused(answer):
    with pytest.raises(ValueError, match="an answer"):
        checked("mine", answer, "t")


def test_a_sentence_of_a_subject_is_one_printable_line_of_bounded_length():
    text = "a\nb\x1b[31m\u202e" + "c" * 10_000
    with pytest.raises(ViolationError) as caught:
        checked("mine", json.loads(json.dumps({"token": "t", "error": ["raises", text]})), "t")
    finding = caught.value.finding
    assert finding.violation is Violation.RAISES
    assert finding.sentence.startswith("mine a b?[31m?ccc") and len(finding.sentence) <= LONGEST_TEXT + 10
    with pytest.raises(LaunchError):
        checked("mine", {"token": "t", "error": ["launch", "x"]}, "t")


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [('{"scale flor"}', "CONVENTIONS of subject named:f has 'scale flor'; did you mean 'scale floor'?"),
     ('"scale floor"', "CONVENTIONS of subject named:f is 'scale floor' alone; give a tuple or a set of names")],
)  # fmt: skip
def test_a_convention_that_there_is_not_is_refused(tmp_path: Path, monkeypatch, declared: str, sentence: str):
    (tmp_path / "named.py").write_text(f"CONVENTIONS = {declared}\ndef f(case, inputs):\n    return {{}}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "named", raising=False)
    with pytest.raises(UsageError) as refused:
        load("named:f")
    assert str(refused.value) == sentence
