"""What a run says it was asked is compared with the words of the command line; the same words do not differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.files import ROOT
from harness.ground import strictness
from harness.runner import resume_command
from harness.runner.below_supervisor import settings, without_settings
from harness.runner.request import Request, otherwise

CASE = "swizzle/default/16x16/normal/eager"
SWIZZLE = str(ROOT / "suites" / "swizzle.yaml")


@pytest.fixture(autouse=True)
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strictness, "_CHOSEN", [])


def asked(*words: str) -> Request:
    return Request.of([SWIZZLE, *words], Path.cwd(), ROOT)


def header(device: str = "emulator", subject: str = "", **changes: object) -> dict:
    of_subject = {"subject": f"{subject} (source 0123)"} if subject else {}
    folder = {"folder": str(Path.cwd()), "subject": subject, "recipe_dirs": {}, "options": []}
    return {
        "asked": folder | changes.pop("asked", {}), "device": {"device": device} | of_subject, "device_asked": "auto",
        "timed": False, "shard": "1/1",
    } | changes  # fmt: skip


@pytest.mark.parametrize(
    ("words", "about", "said"),
    [
        ([], header(), ""),
        ([], header("cuda"), ""),
        ([], {"device": {"device": "emulator"}}, "does not say what it was asked for"),
        (["--device", "emulator", "--subject", "m:f"], header("host", "m:f", device_asked="emulator"), ""),
        (["--subject", "./card.yaml"], header(subject="card.yaml"), ""),
        (["--case-timeout", "600.0"], header(), ""),
        (["--case-timeout", "5", "--resume"], header(), ""),
        (["--cluster", "here:1", "--resume"], header(asked={"options": ["--cluster", "there:1"]}), ""),
        (["--device", "emulator", "--resume"], header(), ""),
        ([], header(device_asked="emulator"), "--device was 'emulator', and on the command line it is 'auto'"),
        (["--device", "cuda"], header(device_asked="cuda"), "emulator', and on the command line it is 'cuda'"),
        (["--device", "cuda", "--resume"], header(), "--device was 'emulator'"),
        ([], header(subject="m:f"), "--subject was 'm:f', and on the command line it is not given"),
        (["--subject", "m:g"], header(subject="m:f"), "--subject was 'm:f', and on the command line it is 'm:g'"),
        (["--subject", "m:f"], header(asked={"subject": "m:f"}), "--subject was not given"),
        (["--subject", "m:f"], header(subject="m:g", asked={"subject": "m:f"}), "--subject was 'm:g (source 0123)'"),
        ([], header(asked={"recipe_dirs": {"own": "/own"}}), "--recipe-dir was '/own', and on the"),
        (["--strict-ptx", "--resume"], header(), "--strict was not given, and on the command line it is 'on'"),
        (["--cluster", "here:1"], header(asked={"options": ["--cluster", "there:1"]}), "--cluster was 'there:1'"),
        (["--shard", "1/2"], header(), "--shard was '1/1', and on the command line it is '1/2'"),
        ([], header(timed=True), "--bench was 'on'"),
    ],
)  # fmt: skip
def test_the_run_is_compared_with_the_words(words: list[str], about: dict, said: str):
    found = otherwise(asked(*words), about)
    assert said in found and bool(found) == bool(said)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["suites"], "verify"),
        (["suites/swizzle.yaml", "--set", "full", "-k", "a b", "--run-dir", "out"], "swizzle --set full -k 'a b'"),
        ([f"suites/swizzle.yaml::{CASE}"], f"verify swizzle --case {CASE}"),
        (["--bench", "suites/casts.yaml", "--run-dir=out", "--resume"], "bench casts"),
    ],
)  # fmt: skip
def test_pytests_own_exit_code_names_the_gate(monkeypatch: pytest.MonkeyPatch, words: list[str], command: str):
    monkeypatch.chdir(ROOT)
    assert f" {command}` is one" in resume_command.gate(words, ROOT)


def test_suites_of_somebody_have_no_name_for_the_gate(suite_path: Path):
    folder = suite_path.parents[1]
    assert " verify` is one" in resume_command.gate(["suites", "-x"], folder)


def test_a_header_of_times_has_no_settings_of_the_gate():
    assert without_settings(["a", *settings(), "-W", "error"]) == ["a", "-W", "error"]
    assert without_settings(["a", "-c", "b"]) == ["a", "-c", "b"]
