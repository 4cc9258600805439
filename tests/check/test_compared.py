"""The counts of what is compared: of the tree, in the file, held against each other and against a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.check import compared
from harness.check.compared import Count, DescribedGpu, counts, errors, read, shortfalls
from harness.device.emulator import EmulatorDevice
from harness.errors import UsageError
from harness.files import SUITES
from harness.subjects.device import with_subject
from harness.subjects.subject import load
from harness.suite.suite import suite_of

RECIPES = ("swizzle", "casts")
NOW = counts(map(suite_of, RECIPES))
KEY = ("swizzle", "smoke", "emulator")


def test_the_file_says_what_the_tree_compares():
    assert errors(NOW, read(), RECIPES) == []
    assert NOW[KEY].compared == 21
    assert NOW[KEY].why == "1 the emulator has no CUDA graphs; mode 'graph' needs a GPU"


def test_a_case_is_compared_or_excluded_for_a_reason():
    for count in NOW.values():
        assert count.compared + count.excluded == len(suite_of(count.recipe).cases(count.set))
        reasons = count.why.split("; ")
        assert bool(count.excluded) == bool(count.why) and len(reasons) < 6


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"compared": 22}, "21 cases are compared and must be 22"),
        (
            {"compared": 7},
            "21 cases are compared and 1 excluded, which the line does not say; run `harness check --write`",
        ),
        (
            {"excluded": 0},
            "21 cases are compared and 1 excluded, which the line does not say; run `harness check --write`",
        ),
        ({"why": "of another reason"}, "which the line does not say"),
    ],
)
def test_another_number_than_the_committed_one(changes: dict, sentence: str):
    (found,) = errors(NOW, {**NOW, KEY: replace(NOW[KEY], **changes)})
    assert found.startswith("suites/compared.csv: swizzle, set smoke, on emulator: ")
    assert sentence in found


@pytest.mark.parametrize("lost", [("casts",), ("casts", "full"), ("casts", "full", "emulator")])
def test_lines_that_are_gone_are_an_error(lost: tuple[str, ...]):
    shortened = {key: count for key, count in NOW.items() if key[: len(lost)] != lost}
    found = errors(NOW, shortened)
    assert len(found) == len(NOW) - len(shortened)
    assert all("the line is missing; run `harness check --write`" in sentence for sentence in found)


def test_a_recipe_that_is_gone_is_an_error_unless_another_is_asked_about():
    then = {**NOW, ("gone", "smoke", "emulator"): Count("gone", "smoke", "emulator", 1, 0, "")}
    (found,) = errors(NOW, then)
    assert "gone, set smoke, on emulator: 0 cases are compared and must be 1" in found
    assert errors(NOW, then, ["casts"]) == []


def test_no_file_is_an_error():
    assert "there is no count of what is compared" in errors(NOW, {})[0]


def test_the_command_writes_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compared.files, "SUITES", tmp_path)
    compared.write(NOW)
    assert read() == NOW
    committed = (SUITES / compared.FILE).read_text().splitlines()
    assert set((tmp_path / compared.FILE).read_text().splitlines()) <= set(committed)


@pytest.mark.parametrize("line", ["a,b,c,1,2", "a,b,c,1,2,why,more", "a,b,c,-1,2,why", "a,b,c,one,2,why", "", "\0"])
def test_a_line_that_the_command_does_not_write(tmp_path: Path, line: str):
    head = "recipe,set,device,compared,excluded,why\n"
    (tmp_path / compared.FILE).write_text(f"{head}{line}\n")
    with pytest.raises(UsageError, match=r"compared.csv:2: this is no line that `harness check --write` writes"):
        read(tmp_path)
    (tmp_path / compared.FILE).write_text(f"{line}\n{head}")
    with pytest.raises(UsageError, match=r"compared.csv:1: "):
        read(tmp_path)


# A run


def records(verdict: str = "PASS", compared_bytes: int = 1, leave_out: int = 0) -> list[dict]:
    cases = [case for case in suite_of("swizzle").cases("smoke") if case.mode == "eager"]
    shown = {"verdict": verdict, "bytes_compared": compared_bytes}
    return [{"case_id": case.id, **shown} for case in cases[leave_out:]]


def short(found: list[dict], device=None, set_name: str = "smoke") -> list[str]:
    return shortfalls(found, [SUITES / "swizzle.yaml"], set_name, device or EmulatorDevice())


def test_a_run_of_the_whole_set_is_not_short():
    assert short(records()) == []
    assert short(records("MISMATCH", 0)) == []  # red for another reason


@pytest.mark.parametrize("found", [[], records(leave_out=1), records("EXCLUDED", 0)])
def test_a_run_that_compared_less(found: list[dict]):
    (sentence,) = short(found)
    assert sentence.endswith(
        "cases of set smoke were compared and must be 21, as suites/compared.csv has it for emulator"
    )


def test_a_case_counts_once():
    assert short(records(leave_out=1) + records(leave_out=1))


def test_a_line_that_is_gone_among_others_of_its_set(tmp_path: Path):
    lines = (SUITES / compared.FILE).read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith("swizzle,smoke,emulator,")]
    (tmp_path / compared.FILE).write_text("".join(kept))
    (sentence,) = shortfalls(records(), [tmp_path / "swizzle.yaml"], "smoke", EmulatorDevice())
    assert "has no line for set smoke on emulator, and has others of it" in sentence
    (tmp_path / compared.FILE).write_text("".join(lines).replace("\n", "\r\n"))
    assert shortfalls(records(), [tmp_path / "swizzle.yaml"], "smoke", EmulatorDevice()) == []


LINES = (SUITES / compared.FILE).read_text().splitlines(keepends=True)


@pytest.mark.parametrize(
    "text, sentence",
    [
        (None, "there is no count of what is compared; run `harness check --write`"),
        ("", "there is no count of what is compared; run `harness check --write`"),
        (LINES[0], "there is no count of what is compared; run `harness check --write`"),
        ("".join(LINES[:2]), "swizzle: {} has no line for set smoke on emulator; `harness check --write` writes it"),
        (
            "".join(line for line in LINES if not line.startswith("swizzle,smoke,")),
            "swizzle: {} has no line for set smoke on emulator; `harness check --write` writes it",
        ),
        ("".join(LINES), ""),
    ],
    ids=["missing", "empty", "head", "cut", "shortened", "whole"],
)
def test_our_suites_have_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, sentence: str):
    """The counts of our suites are in their file, whose lines a later fall would otherwise take along."""
    ran = records()
    monkeypatch.setattr(compared.files, "SUITES", tmp_path)
    if text is not None:
        (tmp_path / compared.FILE).write_text(text)
    two = [tmp_path / "swizzle.yaml", tmp_path / "another.yaml"]  # the second has no such set
    found = shortfalls(ran, two, "smoke", EmulatorDevice())
    assert len(found) == bool(sentence)
    assert not found or sentence.format(tmp_path / compared.FILE) in found[0]


@pytest.mark.parametrize("more", [LINES[1], LINES[-1], "".join(LINES), LINES[0]], ids=["first", "last", "all", "head"])
def test_a_line_comes_once(tmp_path: Path, more: str):
    (tmp_path / compared.FILE).write_text("".join(LINES) + more)
    suites = [tmp_path / "swizzle.yaml", tmp_path / "casts.yaml"]
    (sentence,) = shortfalls(records(), suites, "smoke", EmulatorDevice())
    assert f"compared.csv:{len(LINES) + 1}: this is no line that `harness check --write` writes" in sentence


def test_a_file_that_cannot_be_read(tmp_path: Path):
    (tmp_path / compared.FILE).write_text("a" * 200_000)
    (sentence,) = shortfalls(records(), [tmp_path / "swizzle.yaml"], "smoke", EmulatorDevice())
    assert "compared.csv cannot be read: field larger than" in sentence


def test_what_no_line_is_about_is_not_short(tmp_path: Path):
    assert short([], set_name="mine") == []
    assert short([], with_subject(EmulatorDevice(), load("torchao"))) == []
    assert shortfalls([], [tmp_path / "swizzle.yaml"], "smoke", EmulatorDevice()) == []


@pytest.mark.parametrize("gib, name", [(5, ""), (6, "cuda 6 GiB"), (24, "cuda 6 GiB"), (139, "cuda 36 GiB")])
def test_a_gpu_has_the_line_of_the_most_memory_that_it_has(gib: int, name: str):
    assert compared.counted_as(DescribedGpu(gib << 30)) == name
    assert bool(short([], DescribedGpu(gib << 30))) == bool(name)
