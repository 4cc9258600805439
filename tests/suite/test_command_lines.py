"""A printed command is what a shell makes the same words of, wherever it is printed and whatever the id has in it."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from harness import files
from harness.device import select
from harness.suite.command_lines import quoted, verify_command, without_commands
from harness.verdict import Result, Verdict
from harness.verify import verify

ID = "per_tensor/rht=true,rounding=sr/128+0+8*256x512/normal/eager"
STRANGE = ("it's", "a b", "$HOME", "`id`", "!x", "ü", 'q"q', "a;b", "a#b", "back\\slash", "%", "(x)", "*?", "~", "'")
TENSORS = [f"per_tensor/default/16x16/file:/tmp/{name}/x.npy#{name}/eager" for name in STRANGE]


def words_of(line: str) -> list[str]:
    """The words that a shell makes of a line."""
    done = subprocess.run(["sh", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True)
    return done.stdout.decode().rstrip("\0").split("\0")


@pytest.mark.parametrize("case_id", [ID, *TENSORS])
def test_a_shell_hands_over_the_id_as_it_is(tmp_path, monkeypatch, case_id):
    monkeypatch.chdir(tmp_path)
    assert words_of(verify_command(case_id)) == ["harness", "verify", "--case", case_id]


@pytest.mark.parametrize("name", STRANGE)
def test_a_folder_and_a_card_are_handed_over_as_they_are(tmp_path, monkeypatch, name):
    folder = tmp_path / name
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(files.RECIPE_DIRS, "own", folder)
    words = words_of(verify_command("own/default/16x16/normal/eager", subject=f"{name}/card.yaml"))
    shown = str(Path(name))
    case = "own/default/16x16/normal/eager"
    assert words == [
        "harness", "verify", "own", "--recipe-dir", shown, "--subject", f"{name}/card.yaml", "--case", case
    ]  # fmt: skip


def test_make_is_printed_where_make_runs_and_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "INSTALLED", False)
    monkeypatch.chdir(files.ROOT)
    assert verify_command(ID) == f"make verify CASE='{ID}'"
    assert verify_command(ID, subject="torchao") == f"make verify CASE='{ID}' ARGS='--subject torchao'"
    of_ours = "per_tensor/default/16x16/file:suites/data/x.safetensors#y/eager"
    assert verify_command(of_ours) == f"make verify CASE='{of_ours}'"
    assert all(verify_command(case_id).startswith("harness ") for case_id in TENSORS)
    monkeypatch.chdir(tmp_path)
    assert verify_command(ID) == f"harness verify --case '{ID}'"
    assert verify_command(ID, "bench", "mine:f") == f"harness bench --subject mine:f --case '{ID}'"


@pytest.mark.parametrize(
    ("flags", "repeated"),
    [
        ("", ""),
        ("s -j2 --jobserver-auth=3,4", ""),
        (" -- VENV= CASE=it's ARGS=-k\\ 'a", " VENV="),
        ("s -- PYTHON=/a\\ b/python VENV=", " PYTHON='/a b/python' VENV="),
    ],
)
def test_the_environment_that_make_was_given_is_repeated(monkeypatch, flags: str, repeated: str):
    monkeypatch.setattr(files, "INSTALLED", False)
    monkeypatch.chdir(files.ROOT)
    monkeypatch.setenv("MAKEFLAGS", flags)
    assert verify_command(ID) == f"make verify CASE='{ID}'{repeated}"


@pytest.mark.parametrize("gpu", [True, False])
def test_what_the_emulator_found_is_asked_of_the_emulator(tmp_path, monkeypatch, gpu):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(verify, "gpu_is_there", lambda: gpu)
    for device in ("emulator", "host", "cuda"):
        line = verify.reproduce(Result(ID, "per_tensor", Verdict.MISMATCH, device=device))
        assert ("--device emulator" in line) == (gpu and device != "cuda")


def test_auto_is_a_gpu_if_one_can_be_had(monkeypatch):
    select.gpu_is_there.cache_clear()
    monkeypatch.setattr(select, "CudaDevice", lambda *arguments: type("Gpu", (), {"name": "cuda"}))
    assert select.gpu_is_there()
    select.gpu_is_there.cache_clear()


def test_commands_are_left_out_of_a_story():
    story = "MISMATCH\ncause x\ntrace     harness trace x\n  reproduce: harness verify x\nend"
    assert without_commands(story) == "MISMATCH\ncause x\nend"
    assert without_commands(story, "trace") == "MISMATCH\ncause x\n  reproduce: harness verify x\nend"


def test_an_id_is_always_in_quotes():
    assert quoted("a") == "'a'" and shlex.split(quoted("it's")) == ["it's"]
