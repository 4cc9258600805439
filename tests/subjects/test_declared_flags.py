"""The flags that a function declares: read without running it, and taken on by the cases of a set."""

from __future__ import annotations

from pathlib import Path

import pytest
from in_process import in_process

from harness.device.emulator import EmulatorDevice
from harness.errors import NotCapable, SuiteError
from harness.files import SUITES
from harness.runner.request import Request
from harness.subjects import subject as subjects
from harness.subjects.declared_flags import declared_flags
from harness.subjects.device import with_subject
from harness.subjects.subject import Subject
from harness.suite.suite import find_case

SWIZZLE = (SUITES / "swizzle.yaml",)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def mine(text: str) -> None:
    Path("mine.py").write_text(
        f"raise SystemExit('this line is never run')\n{text}\ndef f(case, inputs, outputs): ...\n"
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ('HARNESS_FLAGS = {"to": "swizzled"}', {"to": ("swizzled",)}),
        ('HARNESS_FLAGS: dict = {"to": ["swizzled", "compact"]}', {"to": ("swizzled", "compact")}),
        ('HARNESS_FLAGS = {"to": "swizzled"}\nprint(HARNESS_FLAGS["to"])', {"to": ("swizzled",)}),
    ],
)
def test_they_are_read_without_running_the_module(text: str, found: dict):
    mine(text)
    assert declared_flags("mine:f", SWIZZLE) == found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('HARNESS_FLAGS = {"too": "swizzled"}', "mine.py:2: HARNESS_FLAGS: no recipe has a flag 'too'; did"),
        ('HARNESS_FLAGS = {"to": "swizzle"}', "mine.py:2: HARNESS_FLAGS: to has no value 'swizzle'; did you mean 'sw"),
        ("HARNESS_FLAGS = dict(to='swizzled')", "mine.py:2: HARNESS_FLAGS is read without running the module"),
        ("HARNESS_FLAGS = {'to': []}", "mine.py:2: HARNESS_FLAGS is read without"),
        ("HARNESS_FLAGS = ['to']", "mine.py:2: HARNESS_FLAGS is read without"),
        ("HARNESS_FLAGS = {}\nHARNESS_FLAGS['to'] = 'swizzled'", "mine.py:3: HARNESS_FLAGS is read without"),
        ("HARNESS_FLAGS = {}\nHARNESS_FLAGS.update(to='swizzled')", "mine.py:3: HARNESS_FLAGS is read without"),
        ("HARNESS_FLAGS = {}\nHARNESS_FLAGS = {'to': 'swizzled'}", "mine.py:3: HARNESS_FLAGS is read without"),
        ("if True:\n    HARNESS_FLAGS = {'to': 'swizzled'}", "mine.py:3: HARNESS_FLAGS is read without"),
        ("from theirs import HARNESS_FLAGS", "mine.py:2: HARNESS_FLAGS is read without"),
    ],
)
def test_what_cannot_be_read_or_is_misspelled_is_one_sentence(text: str, says: str):
    mine(text)
    with pytest.raises(SuiteError) as refused:
        declared_flags("mine:f", SWIZZLE)
    assert str(refused.value).startswith(says), refused.value


def selected(*words: str) -> list[str]:
    request = Request.of([str(SUITES / "per_tensor.yaml"), *words], Path.cwd(), Path.cwd()).selected()
    return list(request.selection.by_id)


def test_the_cases_of_a_set_take_them_on():
    mine('HARNESS_FLAGS = {"outputs": "rowwise", "rounding": "rne", "rht": False}')
    every = selected()
    taken = selected("--subject", "mine:f")
    assert all("outputs=rowwise" in case_id and "sr" not in case_id.split("/")[1] for case_id in taken)
    assert len(taken) > len(every) // 2 > sum("outputs=rowwise" in case_id for case_id in every)
    mine("")
    assert selected("--subject", "mine:f") == every


def test_a_case_with_others_is_excluded_and_says_what_the_function_is_for():
    subject = Subject("mine:f", "source 0", lambda *_: None, flags={"to": ("swizzled",), "of_another_recipe": (1,)})
    device = with_subject(EmulatorDevice(), in_process(subject))
    device.admit(find_case("swizzle/default/16x16/normal/eager"))
    with pytest.raises(NotCapable, match=r"^the function is for to=swizzled$"):
        device.admit(find_case("swizzle/to=compact/16x16/normal/eager"))


@pytest.mark.parametrize("reason", ["capability: needs a GPU", "the function is for to=swizzled"])
def test_a_refusal_cannot_pass_for_the_device_s_or_for_a_declaration(reason: str):
    subject = Subject("mine:f", "source 0", lambda *_: None, refuses=lambda case: reason)
    with pytest.raises(NotCapable, match="^it says: "):
        with_subject(EmulatorDevice(), in_process(subject)).admit(find_case("swizzle/default/16x16/normal/eager"))


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("torchao", "per_tensor"),
        ("torchao_compiled", "per_tensor"),
        ("torchao_triton", "swizzle"),
        ("fouroversix_pytorch", "per_tensor"),
        ("fouroversix_triton", "per_tensor"),
        ("fouroversix_triton", "four_over_six"),
        ("cuda_fp4", "per_tensor"),
    ],
)
def test_what_comes_with_the_harness_refuses_little_of_the_cases_that_its_flags_leave(name: str, recipe: str):
    words = [str(SUITES / f"{recipe}.yaml"), "--subject", name]
    chosen = Request.of(words, Path.cwd(), Path.cwd()).selected().selection
    subject = subjects.load(name)
    refused = sum(bool(subject.refuses(case)) for case in chosen.by_id.values())
    assert len(chosen) > 10 and 2 * refused <= len(chosen)


@pytest.mark.parametrize(
    ("one", "other"),
    [("torchao", "torchao_compiled"), ("humming", "humming_invariant"), ("fouroversix_pytorch", "fouroversix_triton")],
)
def test_two_ways_to_run_one_package_declare_the_same(one: str, other: str):
    """They stand in both files, because they are read from the source."""
    assert declared_flags(one) == declared_flags(other) != {}
