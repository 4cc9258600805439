"""How a run ends in which no kernel was judged, or in which a subject refuses most cases."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from harness import errors
from harness.device.emulator import EmulatorDevice
from harness.errors import SEVERITY, Exit, exit_of, worst
from harness.files import ROOT
from harness.runner.outcome import last_line, meaning, outcome
from harness.runner.summary import render
from harness.suite.suite import find_case
from harness.verdict import Judgement, Performance, Result, Story, Verdict
from harness.verify.isolation import given_up

SUBJECT, CARD = "mine:quantize (source 0)", "mine.yaml (source 0)"
MODE = "capability: there are no CUDA graphs on a CPU; mode 'graph' needs a GPU"


def results(*verdicts: str, subject: str = "", reason: str = "a reason") -> list[Result]:
    return [
        Result(f"toy/default/{len(verdicts)}x{n}/normal/eager", "toy", Verdict(each), reason, subject=subject)
        for n, each in enumerate(verdicts)
    ]


def ended(found: list[Result]) -> tuple[Exit, str]:
    """The exit code and the last line."""
    selected = [result.case_id for result in found]
    code, _ = outcome(selected, len(selected), found)
    return code, f"{last_line(selected, found)}; {meaning(code, selected, found)}"


@pytest.mark.parametrize(
    ("verdicts", "code", "line"),
    [
        (["SETUP_ERROR"], 64, "1 selected, 0 compared, 0 excluded, 1 not judged; no kernel was judged: the suite, "
                              "recipe, oracle or card is at fault"),
        (["NOT_EMULATED"], 4, "1 selected, 0 compared, 0 excluded, 1 not judged; no kernel was judged: the "
                              "emulator lacks what it uses"),
        (["PASS", "PASS", "NOT_EMULATED"], 4, "3 selected, 2 compared, 0 excluded, 1 not judged; in 1 case no "
                                      "kernel was judged: the emulator lacks what it uses"),
        (["PASS", "SETUP_ERROR", "NO_DEVICE"], 64, "3 selected, 1 compared, 0 excluded, 2 not judged; in 1 case no "
         "kernel was judged: the suite, recipe, oracle or card is at fault; in 1 case no kernel was judged: this "
         "machine lacks what the case takes"),
        (["MISMATCH", "SETUP_ERROR"], 1, "2 selected, 1 compared, 0 excluded, 1 not judged, 1 wrong; bytes differ; in "
                                      "1 case no kernel was judged: the suite, recipe, oracle or card is at fault"),
        (["COMPILE_ERROR"], 1, "1 selected, 0 compared, 0 excluded, 1 failed before they could be compared; a kernel "
                               "does not compile"),
        (["MISMATCH", "NOT_EMULATED"], 1, "2 selected, 1 compared, 0 excluded, 1 not judged, 1 wrong; bytes differ; in "
                                       "1 case no kernel was judged: the emulator lacks what it uses"),
    ],
)  # fmt: skip
def test_the_last_line_says_what_was_not_judged_and_why(verdicts: list[str], code: int, line: str):
    assert ended(results(*verdicts)) == (Exit(code), line)


def test_every_verdict_ends_as_the_page_says():
    rows = re.findall(r"^\| ([A-Z_, ]+) \|.*\| (\d+) \|$", (ROOT / "docs" / "concepts.md").read_text(), re.MULTILINE)
    said = {name: int(code) for names, code in rows for name in names.split(", ")}
    found = {each.name: each.exit_code for kind in (Verdict, Performance) for each in kind}
    assert found == {"FASTER": 0, "SAME": 0} | said
    right, judged = {"PASS", "CONVENTION"}, {name for name, code in said.items() if code == 1} - {"IMPOSSIBLE"}
    assert {each.name for each in Verdict if each.right} == right
    assert {each.name for each in Verdict if each.judges} - {"IMPOSSIBLE"} == right | judged


@pytest.mark.parametrize("code", Exit)
def test_the_most_serious_code_ends_a_run(code: Exit):
    serious = [130, 1, 64, 4, 2, 5, 3, 0]
    assert [int(each) for each in SEVERITY] == serious
    for other in Exit:
        assert worst([code, other]) == worst([other, code]) == min(code, other, key=serious.index)
    assert exit_of(code) is code and exit_of(-9) is exit_of(77) is Exit.BYTES_DIFFER


def test_of_many_cases_without_a_result_three_are_named():
    ids = [f"toy/default/16x{n}/normal/eager" for n in (16, 32, 48, 64, 80)]
    assert f"no result: {', '.join(ids[:3])} and 2 more; only --set" in outcome(ids, 5, [])[1]
    assert f"no result: {', '.join(ids[:3])}; only --set" in outcome(ids[:3], 5, [])[1]


def test_each_error_has_its_code():
    codes = {error: error.exit_code for error in vars(errors).values() if hasattr(error, "exit_code")}
    lacking = {errors.DeviceUnavailable, errors.NotEmulated, errors.NoDevice, errors.NotCapable}
    assert {error for error, code in codes.items() if code == Exit.NO_DEVICE} == lacking
    wrong = {errors.CaseError, errors.CompileError, errors.LaunchError, errors.AccessError}
    assert {error for error, code in codes.items() if code == Exit.BYTES_DIFFER} == wrong
    assert set(codes.values()) == {Exit.NO_DEVICE, Exit.BYTES_DIFFER, Exit.USAGE}


def test_an_error_says_where_it_is_in_one_line():
    suite, access = errors.SuiteError("a.yaml:3", "no flag"), errors.AccessError("race", "a.cu:7", "reads 4 bytes")
    assert (str(suite), suite.where) == ("a.yaml:3: no flag", "a.yaml:3")
    assert (str(access), access.kind, access.where) == ("a.cu:7: reads 4 bytes", "race", "a.cu:7")
    assert access.sentence == "reads 4 bytes"
    assert "\n" in str(errors.CompileError("one\ntwo")) and "\n" not in str(errors.UsageError("one\ntwo"))


def test_a_case_without_a_result_is_no_case_whose_bytes_differ():
    code, _ = outcome(["a", "b"], 2, [Result("a", "toy", Verdict.PASS)])
    assert code is Exit.BYTES_DIFFER
    assert meaning(code, ["a", "b"], [Result("a", "toy", Verdict.PASS)]) == "not every case was compared"


def test_the_verdicts_show_what_was_not_judged():
    told = render(results("PASS", "SETUP_ERROR", "MISMATCH"), Counter(), 1.0, 100).splitlines()
    assert any(line.startswith("1 not judged, the first SETUP_ERROR  toy/") for line in told)
    assert any(line.startswith("MISMATCH  toy/") for line in told)
    assert not any(line.startswith("SETUP_ERROR") for line in told)  # is not among what is wrong


def test_results_and_judgements_say_nothing_that_nobody_said():
    result = Result("toy/default/16x16/normal/eager", "toy", Verdict.PASS)
    record = result.to_record()
    assert {name for name, value in record.items() if value} == {"case_id", "recipe", "verdict"}
    assert len(record) == 18 and Result.from_record(record) == result
    assert replace(result, findings=Story("head")) == result  # no record has them
    judgement = Judgement("a", Performance.SAME, "why")
    assert {name for name, value in vars(judgement).items() if value} == {"case_id", "verdict", "reason"}


# A subject that refuses most


def refused(taken: int, of: int, reason: str = "rowwise only", subject: str = SUBJECT) -> list[Result]:
    pairs = [("PASS", "")] * taken + [("EXCLUDED", reason)] * (of - taken)
    return [
        Result(f"toy/default/16x{n}/normal/eager", "toy", Verdict(each), why, subject=subject)
        for n, (each, why) in enumerate(pairs)
    ]


def test_a_function_that_refuses_most_cases_is_not_green_and_not_wrong():
    found = refused(1, 125)
    code, sentence = outcome([result.case_id for result in found], 125, found)
    assert code is Exit.NO_DEVICE
    assert sentence.startswith(
        "only 1 of 125 cases were compared: the subject refuses the other 124; declare the flags"
    )
    assert ended(found)[1] == "125 selected, 1 compared, 124 excluded; too few cases were compared"
    assert "only 1 of 125 cases were compared" in render(found, Counter(), 1.0, 100)
    assert "on this device" not in sentence


@pytest.mark.parametrize(
    "found",
    [
        refused(1, 2),
        refused(2, 3),
        refused(63, 125),
        refused(40, 125, "the function is for outputs=rowwise"),  # declared
        refused(40, 125, MODE),  # the device's
        refused(40, 125, "the card is for cols that are multiples of 64", CARD),
        [*refused(50, 70), *refused(0, 55, MODE)],
    ],
)
def test_what_is_declared_and_what_a_device_lacks_narrows_a_run(found: list[Result]):
    assert outcome({result.case_id for result in found}, len(found), found)[0] is Exit.CLEAN


def test_what_a_device_lacks_is_not_counted_as_taken():
    found = [*refused(10, 35), *(Result(f"t/default/1x{n}/x/graph", "t", Verdict.EXCLUDED, MODE, subject=SUBJECT)
                                 for n in range(90))]  # fmt: skip
    assert outcome({result.case_id for result in found}, len(found), found)[0] is Exit.NO_DEVICE


def test_on_this_device_is_said_of_devices_alone():
    for subject, reason, says in (("", MODE, True), (SUBJECT, MODE, True), (SUBJECT, "rowwise only", False)):
        found = refused(0, 4, reason, subject)
        code, sentence = outcome([result.case_id for result in found], 4, found)
        assert (code, "on this device" in sentence) == (Exit.NO_DEVICE, says), sentence
    mixed = [*refused(0, 2), Result("t/default/1x1/x/graph", "t", Verdict.EXCLUDED, MODE, subject=SUBJECT)]
    _, sentence = outcome({result.case_id for result in mixed}, 3, mixed)
    assert sentence == "nothing was compared: all 3 cases are excluded; of them 1 by the device"


# A case that takes too long


@pytest.mark.parametrize(
    ("place", "verdict"),
    [
        ("harness/oracles/nvfp4.py", Verdict.SETUP_ERROR),
        ("harness/expected/expected.py", Verdict.SETUP_ERROR),
        ("ptx_emulator/machine/scheduler.py", Verdict.LAUNCH_ERROR),
        ("harness/device/cuda_program.py", Verdict.LAUNCH_ERROR),
    ],
)
def test_an_oracle_without_end_is_no_kernel_that_hangs(place: str, verdict: Verdict):
    stack = (
        f'    File "/there/harness/verify/verify.py", line 90, in attempt\n    File "/there/{place}", line 3, in f\n'
    )
    result = given_up(find_case("swizzle/default/48x80/normal/eager"), EmulatorDevice(), "no end after 3 s", stack)
    assert (result.verdict, result.story.split()[0]) == (verdict, str(verdict))
