"""A printed command is what a shell makes the same words of, wherever it is printed and whatever the id has in it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness import files
from harness.device import select
from harness.ground import command_lines
from harness.ground.command_lines import Asked, handshake_command, quoted, this_harness, trace_command, verify_command
from harness.verdict import Result, Verdict
from harness.verify.screen import screen

ID = "per_tensor/rht=true,rounding=sr/128+0+8*256x512/normal/eager"
OWN = "own/default/16x16/normal/eager"
STRANGE = ("it's", "a b", "$HOME", "`id`", "!x", "ü", 'q"q', "a;b", "a#b", "back\\slash", "%", "(x)", "*?", "~", "'")
TENSORS = [f"per_tensor/default/16x16/file:/tmp/{name}/x.npy#{name}/eager" for name in STRANGE]


@pytest.fixture
def of_make(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if make had been called in the checkout with this Python."""
    monkeypatch.setattr(files, "INSTALLED", False)
    monkeypatch.chdir(files.ROOT)
    monkeypatch.setenv("MAKELEVEL", "1")
    monkeypatch.setenv("MAKEFLAGS", f" -- VENV={shlex.quote(sys.prefix)}")


def words_of(line: str) -> list[str]:
    """The words that a shell makes of a line, without those that start the harness."""
    done = subprocess.run(["sh", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True)
    words, start = done.stdout.decode().rstrip("\0").split("\0"), this_harness(Path.cwd())
    assert words[: len(start)] == start
    return words[len(start) :]


@pytest.mark.parametrize("case_id", [ID, *TENSORS])
def test_a_shell_hands_over_the_id_as_it_is(tmp_path, monkeypatch, case_id):
    monkeypatch.chdir(tmp_path)
    assert words_of(verify_command(case_id)) == ["verify", "--case", case_id]
    assert words_of(trace_command(case_id, ["--at", "0,0"])) == ["trace", case_id, "--at", "0,0"]


@pytest.mark.parametrize("name", STRANGE)
def test_a_folder_and_a_card_are_handed_over_as_they_are(tmp_path, monkeypatch, name):
    folder = tmp_path / name
    folder.mkdir(parents=True)
    (folder / "own.cu").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(files.RECIPE_DIRS, "own", folder)
    own = ["--recipe-dir", str(Path(name))]
    words = words_of(verify_command(OWN, asked=Asked.here(f"{name}/card.yaml")))
    assert words == ["verify", "own", *own, "--subject", f"{name}/card.yaml", "--case", OWN]
    assert words_of(trace_command(OWN, ())) == ["trace", *own, OWN]
    assert words_of(handshake_command(f"{name}.yaml", "4x4/normal")) == [
        "handshake", f"{name}.yaml", *own, "--case", "4x4/normal"
    ]  # fmt: skip


def test_a_pipeline_has_the_folders_of_its_stages(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(files.RECIPE_DIRS, "own", tmp_path / "pipes")
    monkeypatch.setitem(files.RECIPE_DIRS, "stage", tmp_path / "stages")
    assert words_of(verify_command(OWN))[:-2] == ["verify", "--recipe-dir", "pipes", "--recipe-dir", "stages"]
    assert words_of(verify_command(ID)) == ["verify", "--case", ID], "ours needs none"


def test_from_another_folder_a_command_goes_where_it_was_asked(tmp_path, monkeypatch):
    asked_in = tmp_path / "it's here"
    asked_in.mkdir()
    monkeypatch.chdir(asked_in)
    asked = Asked.here("mine:f", ["--case-timeout", "5"])
    monkeypatch.chdir(tmp_path)
    go, _, line = verify_command(ID, asked=asked, device="emulator").partition(" && ")
    assert go == f"cd {shlex.quote(str(asked_in))}"
    monkeypatch.chdir(asked_in)
    assert words_of(line) == [
        "verify", "--subject", "mine:f", "--case-timeout", "5", "--device", "emulator", "--case", ID
    ]  # fmt: skip


@pytest.mark.parametrize("subject", ["mine:f", "there/card.yaml"])
def test_of_a_run_in_a_file_a_command_has_what_this_command_line_names_too(tmp_path, monkeypatch, subject):
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    about = {"asked": Asked.here(subject, ["--case-timeout", "5", "--cluster", "evil"]).to_header()}
    monkeypatch.chdir(tmp_path / "there")
    mine = "card.yaml" if subject.endswith("yaml") else subject
    first = ["verify", "per_tensor"] if subject.endswith("yaml") else ["verify"]
    named = verify_command(ID, asked=Asked.from_header(about, Path("out"), mine))
    assert words_of(named) == [*first, "--subject", mine, "--case-timeout", "5", "--case", ID]
    for other in ("", "other:f"):
        line = verify_command(ID, asked=Asked.from_header(about, Path("a; b"), other))
        assert line.endswith("  # ?: as 'a; b' was made")
        assert words_of(line) == ["verify", "--subject", "?", "--case-timeout", "5", "--case", ID]
    own = verify_command(OWN, asked=Asked.from_header({"asked": Asked.here().to_header()}, Path("out")))
    assert words_of(own) == ["verify", "--recipe-dir", "?", "--case", OWN]
    assert Asked.from_header({}, Path("out")) is None


def test_make_is_printed_where_make_ran_and_nowhere_else(tmp_path, monkeypatch, of_make):
    given = f" VENV={shlex.quote(sys.prefix)}"
    assert verify_command(ID) == f"make verify CASE='{ID}'{given}"
    asked = Asked.here("torchao", ["--case-timeout", "5"])
    assert verify_command(ID, asked=asked) == (
        f"make verify CASE='{ID}' ARGS='--subject torchao --case-timeout 5'{given}"
    )
    of_ours = "per_tensor/default/16x16/file:suites/data/x.safetensors#y/eager"
    assert verify_command(of_ours) == f"make verify CASE='{of_ours}'{given}"
    assert not any(verify_command(case_id).startswith("make") for case_id in TENSORS)
    monkeypatch.chdir(tmp_path)
    assert words_of(verify_command(ID, "bench")) == ["bench", "--case", ID]


@pytest.mark.parametrize("way", ["another environment", "no make", "installed"])
def test_make_is_not_printed_where_it_would_use_another_environment(monkeypatch, of_make, tmp_path, way: str):
    if way == "another environment":
        monkeypatch.setenv("MAKEFLAGS", f" -- VENV={tmp_path}")
    elif way == "no make":
        monkeypatch.delenv("MAKELEVEL")
    else:
        monkeypatch.setattr(files, "INSTALLED", True)
    assert words_of(verify_command(ID)) == ["verify", "--case", ID]


@pytest.mark.parametrize(
    ("flags", "repeated"),
    [
        ("", ""),
        ("s -j2 --jobserver-auth=3,4", ""),
        (" -- VENV= CASE=it's ARGS=-k\\ 'a", " VENV="),
        ("s -- PYTHON=/a\\ b/python VENV=", " PYTHON='/a b/python' VENV="),
    ],
)
def test_the_environment_that_make_was_given_is_repeated(monkeypatch, of_make, flags: str, repeated: str):
    monkeypatch.setattr(command_lines, "_asked_by_make", lambda: True)
    monkeypatch.setenv("MAKEFLAGS", flags)
    assert verify_command(ID) == f"make verify CASE='{ID}'{repeated}"


@pytest.mark.parametrize("gpu", [True, False])
def test_a_device_is_named_where_auto_would_choose_another(tmp_path, monkeypatch, gpu):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("harness.verify.screen.gpu_is_there", lambda: gpu)
    for device, named in (("emulator", gpu), ("host", gpu), ("cuda", not gpu), ("", False)):
        wrong = Result(ID, "per_tensor", Verdict.MISMATCH, "why", device=device, trace=("--at", "0,0"))
        told = screen(wrong, Asked.here())
        chosen = {"host": "emulator"}.get(device, device)
        assert told.count(f"--device {chosen}") == (2 if named else 0)


def test_auto_is_a_gpu_if_one_can_be_had(monkeypatch):
    select.gpu_is_there.cache_clear()
    monkeypatch.setattr("harness.device.cuda.CudaDevice", lambda *arguments: type("Gpu", (), {"name": "cuda"}))
    assert select.gpu_is_there()
    select.gpu_is_there.cache_clear()


def test_a_screen_has_the_commands_of_who_asked():
    wrong = Result(ID, "per_tensor", Verdict.MISMATCH, "why", "MISMATCH\ncause x", trace=("--at", "0,0"))
    told = screen(wrong, Asked.here()).splitlines()
    assert told[:2] == ["MISMATCH", "cause x"] and [line.split()[0] for line in told[2:]] == ["trace", "reproduce"]
    assert told[2].endswith(f" trace '{ID}' --at 0,0") and told[3].endswith(f" verify --case '{ID}'")
    assert " trace " not in screen(wrong, Asked.here("torchao")), "a subject's bytes are not what our kernels write"
    assert screen(wrong, None) == "MISMATCH\ncause x"
    assert screen(Result(ID, "per_tensor", Verdict.MISMATCH, "why"), None) == "why"
    timed = Result(ID, "per_tensor", Verdict.MISMATCH, "why", while_timed=True)
    assert screen(timed, Asked.here()).endswith(f" bench --case '{ID}'")
    assert screen(Result(ID, "per_tensor", Verdict.PASS), Asked.here()) == ""


def test_a_record_says_what_traces_it_and_one_of_a_right_case_nothing():
    wrong = Result(ID, "per_tensor", Verdict.MISMATCH, "why", trace=("--at", "0,0"), while_timed=True)
    assert Result.from_record(wrong.to_record()) == wrong
    assert {"trace", "while_timed"}.isdisjoint(Result(ID, "per_tensor", Verdict.PASS).to_record())


def test_an_id_is_always_in_quotes():
    assert quoted("a") == "'a'" and shlex.split(quoted("it's")) == ["it's"]
