"""A process below a supervisor: how it knows that it is below one, its settings, and the words of pytest it changes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import evidence
import harness
import harness.runner
import ptx_emulator
from harness.errors import Exit
from harness.runner import below_supervisor
from harness.runner.below_supervisor import (
    CHILD,
    NO_DEVICE_BELOW,
    SUPERVISOR,
    first_option,
    no_such_option,
    not_read,
    process_exit_code,
    refused_by_pytest,
    settings,
    supervised,
    without_pytests,
    without_settings,
)


def test_the_first_word_that_is_an_option_is_named_without_its_value():
    assert first_option(["suites", "--devise=cuda", "-x"]) == "--devise"
    assert first_option(["suites", "a=b"]) == first_option([]) == ""


def test_an_option_that_is_near_is_offered():
    assert (
        no_such_option("--devise", ["--set", "--device"]) == "there is no option '--devise'; did you mean '--device'?"
    )
    far = no_such_option("--zzz", ["--set", "--device"])
    assert far == "there is no option '--zzz'; `harness verify --help` and `pytest --help` list those that are"


def test_the_words_of_every_gate_are_left_out_wherever_they_stand():
    ours = settings()
    assert without_settings([*ours, "a"]) == without_settings(["a", *ours]) == ["a"]
    assert without_settings([*ours[:-1], "a"]) == [*ours[:-1], "a"] and without_settings([Path("a"), 1]) == ["a", "1"]
    assert without_settings(["a", *ours, "b", *ours]) == ["a", "b", *ours]


def test_outside_of_a_checkout_warnings_are_left_alone(monkeypatch: pytest.MonkeyPatch):
    assert settings().count("-W") == 3 and settings()[-5] == "error"
    for name, value in (("RECIPE_DIRS", {"own": Path("own")}), ("INSTALLED", True)):
        with monkeypatch.context() as patch:
            patch.setattr(below_supervisor, name, value)
            assert "-W" not in settings() and "--noconftest" in settings()


def test_variables_that_choose_what_runs_are_not_passed_on_and_told():
    given = {"PYTEST_ADDOPTS": "-x", "PYTEST_THEME": "dark", "PYTEST_PLUGINS": " ", "PYTEST_OWN": "1", "HOME": "/"}
    assert without_pytests(given) == {"PYTEST_THEME": "dark", "HOME": "/"}
    assert not_read(given) == "PYTEST_ADDOPTS is not read: only the command line says what runs"
    both = not_read(given | {"PYTEST_PLUGINS": "a"})
    assert both == "PYTEST_ADDOPTS and PYTEST_PLUGINS are not read: only the command line says what runs"
    assert not_read({"PYTEST_ADDOPTS": "", "PYTEST_THEME": "dark"}) == ""


@pytest.mark.parametrize("below", [False, True])
def test_no_device_has_a_code_of_its_own_below_a_supervisor(monkeypatch: pytest.MonkeyPatch, below: bool):
    monkeypatch.setattr(below_supervisor, "supervised", lambda: below)
    codes = {code: process_exit_code(code) for code in Exit}
    assert codes == {code: int(code) for code in Exit} | {Exit.NO_DEVICE: NO_DEVICE_BELOW if below else 4}


OWN, PARENT = 1001, 1000


@pytest.mark.parametrize(
    ("child", "above", "named", "programs", "is_below"),
    [
        (OWN, {OWN: 7}, "7", {}, True),
        (PARENT, {PARENT: 8, 8: 7}, "7", {}, True),  # a worker, below a shell
        (0, {OWN: 7, PARENT: 7}, "7", {}, False),
        (OWN, {OWN: 7, 7: 1}, "9", {}, False),
        (OWN, {OWN: 7}, None, {}, False),
        (OWN, {OWN: 7}, "7", {7: "sh"}, False),
        (OWN, {7: 9}, "9", {}, False),
        (OWN, {OWN: 7}, str(OWN), {}, False),
    ],
    ids=range(8),
)
def test_who_runs_the_child_below_the_named_process_is_supervised(monkeypatch, child, above, named, programs, is_below):
    monkeypatch.setattr(below_supervisor, "_runs_child", lambda pid: pid == child)
    monkeypatch.setattr(below_supervisor, "_parent", lambda pid: above.get(pid, 0))
    monkeypatch.setattr(below_supervisor, "_program", lambda pid: programs.get(pid, "python"))
    monkeypatch.setattr(os, "getpid", lambda: OWN)
    monkeypatch.setattr(os, "getppid", lambda: PARENT)
    monkeypatch.delenv(SUPERVISOR, raising=False)
    if named:
        monkeypatch.setenv(SUPERVISOR, named)
    assert supervised() is is_below


def test_processes_are_told_by_their_files(monkeypatch: pytest.MonkeyPatch):
    own = os.getpid()
    assert below_supervisor._parent(own) == os.getppid() and below_supervisor._parent(0) == 0
    assert below_supervisor._program(own) == Path(sys.executable).resolve() and below_supervisor._program(0) is None
    assert not below_supervisor._runs_child(own) and not below_supervisor._runs_child(0)
    child = os.fsencode(CHILD)
    for words, runs in (
        ([b"python", b"-P", child, b"suites"], True), ([b"python", b"-P", child], True),
        ([b"python", child, b"-P"], False), ([b"python", b"-P", b"pytest"], False), ([b"-P", child], False),
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(
                below_supervisor, "Path", lambda name, w=words: SimpleNamespace(read_bytes=lambda: b"\0".join(w))
            )
            assert below_supervisor._runs_child(OWN) is runs


def test_what_pytest_refuses_is_told_with_the_options_of_plugins_that_are_named(tmp_path: Path, monkeypatch):
    (tmp_path / "own_option.py").write_text("def pytest_addoption(parser): parser.addoption('--own', type=int)\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert refused_by_pytest(["suites", "--devise=cuda", "--own"]) == ("--devise", "")
    assert refused_by_pytest(["-p", "own_option", "--own", "3", "--device", "cuda", "-n", "2", "-x"]) == ("", "")
    option, says = refused_by_pytest(["-p", "own_option", "--own", "three"])
    assert option == "" and says.startswith("argument --own: invalid int value: 'three'")
    assert refused_by_pytest(["-p", "no_such_plugin"]) == ("", "")  # the process that runs the cases says it


def test_our_modules_are_imported_ahead_of_pytest_and_no_others():
    plain = below_supervisor._PlainImports
    ours = {"harness.errors": harness, "ptx_emulator.memory": ptx_emulator, "evidence.targets": evidence}
    assert all(plain.find_spec(name, package.__path__).name == name for name, package in ours.items())
    for name, package in (("harness", None), ("harness.runner.hooks", harness.runner), ("numpy.linalg", np)):
        assert plain.find_spec(name, package and package.__path__) is None  # left to pytest
    hook = next(number for number, each in enumerate(sys.meta_path) if type(each).__name__ == "AssertionRewritingHook")
    assert sys.meta_path.index(plain) < hook
