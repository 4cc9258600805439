"""A case whose run raises, and one whose GPU has no memory left, get their verdicts."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from processes import LONGEST

from harness.contract.case import Case
from harness.device.emulator import EmulatorDevice
from harness.errors import (
    AccessError,
    CompileError,
    ContractError,
    InputError,
    LaunchError,
    NoDevice,
    NotCapable,
    NotEmulated,
    StorageError,
)
from harness.expected.expected import Expected, expect, make_inputs
from harness.expected.other_input import WORDS
from harness.suite.suite import find_case
from harness.verdict import Result, Story, Verdict
from harness.verify import verify as verifying
from harness.verify.judge import Wrong
from harness.verify.not_run import keep_note
from harness.verify.verify import attempt, blank, disagreeing, splits_judged, verify

CASE = find_case("swizzle/default/16x16/normal/eager")
SPLIT = find_case("grouped/outputs=rowwise/0+128+0of384x48/normal/graph")


class Gpu(EmulatorDevice):
    """Admits all. asked: for what room, and whether alone"""

    subject_label = "theirs 1.0"

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, bool]] = []

    def admit(self, case: Case) -> None:
        """Everything."""

    @contextmanager
    def reserve(self, case: Case, needs: int = 0, alone: bool = False) -> Iterator[None]:
        assert case is CASE
        self.asked.append((needs, alone))
        yield


class OnCuda(Gpu):
    name = "cuda"


class OutOfMemoryError(RuntimeError):
    """As torch calls it."""


class CupysOutOfMemoryError(MemoryError):
    """As CuPy has it."""


CupysOutOfMemoryError.__name__ = "OutOfMemoryError"


def raising(*errors: BaseException) -> tuple[Callable[[Result], Result], list[Result]]:
    """A run that raises one after the other, and then passes; what it was called with."""
    left, called = list(errors), []

    def run(empty: Result) -> Result:
        called.append(empty)
        if left:
            raise left.pop(0)
        return replace(empty, bytes_compared=7)

    return run, called


def test_a_blank_result_names_the_case_and_what_it_runs_on():
    run, called = raising()
    keep_note(CASE.id, "16x16", "of an attempt before")
    result = attempt(CASE, Gpu(), run)
    assert called == [blank(CASE, Gpu())] and result.verdict is Verdict.PASS and result.bytes_compared == 7
    assert (result.case_id, result.recipe, result.input, result.device) == (CASE.id, "swizzle", "normal", "emulator")
    assert (result.targets, result.subject, result.notes) == (("sm_90a", "sm_100a"), "theirs 1.0", ())
    assert 0 <= result.seconds < LONGEST


@pytest.mark.parametrize(
    ("error", "verdict", "reason"),
    [
        (AccessError("out_of_bounds", "a.cu:3", "reads"), Verdict.OUT_OF_BOUNDS, "out of bounds at a.cu:3: reads"),
        (AccessError("misaligned", "a.cu:3", "reads"), Verdict.OUT_OF_BOUNDS, "misaligned at a.cu:3: reads"),
        (AccessError("unwritten_read", "a.cu:3", "reads"), Verdict.UNWRITTEN, "unwritten read at a.cu:3: reads"),
        (AccessError("race", "a.cu:3", "reads"), Verdict.NONDETERMINISTIC, "race at a.cu:3: reads"),
        (AccessError("deadlock", "a.cu:3", "waits"), Verdict.LAUNCH_ERROR, "deadlock at a.cu:3: waits"),
        (CompileError("refused\nat length"), Verdict.COMPILE_ERROR, "refused"),
        (LaunchError("trapped"), Verdict.LAUNCH_ERROR, "trapped"),
        (NotEmulated("lacks it"), Verdict.NOT_EMULATED, "lacks it"),
        (NoDevice("no memory"), Verdict.NO_DEVICE, "no memory"),
        (NotCapable("cannot"), Verdict.LAUNCH_ERROR,
         "admitted, and then called incapable, which is no excuse: cannot"),
        (InputError("a tensor"), Verdict.SETUP_ERROR, "a tensor"),
        (ContractError("a flag"), Verdict.SETUP_ERROR, "a flag"),
        (MemoryError("12 TiB"), Verdict.NO_DEVICE, "too little memory for the case: 12 TiB"),
    ],
)  # fmt: skip
def test_an_error_becomes_a_verdict(error: Exception, verdict: Verdict, reason: str):
    device, (run, called) = Gpu(), raising(error)
    result = attempt(CASE, device, run)
    assert (result.verdict, result.reason, len(called)) == (verdict, reason, 1)
    first = f"{verdict}  {CASE.id}\n  {error and reason}"
    assert result.story.startswith(first) and ("no kernel was judged" in result.story) is (not verdict.judges)
    assert result.findings.where == (" ".join(reason.split(": ")[:1]) if isinstance(error, AccessError) else "")
    assert device.asked == [(0, False)] and result.trace == ()


@pytest.mark.parametrize("error", [RuntimeError("CUDA error"), StorageError("a full disk"), KeyError("a mistake")])
def test_what_is_no_fault_of_the_case_is_raised(error: Exception):
    with pytest.raises(type(error)):
        attempt(CASE, Gpu(), raising(error)[0])


def test_what_a_device_does_not_admit_is_excluded_before_there_are_data(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(verifying, "make_inputs", None)
    run, called = raising()
    result = attempt(replace(CASE, mode="graph"), EmulatorDevice(), run)
    assert result.verdict is Verdict.EXCLUDED and "no CUDA graphs" in result.reason and not called


@pytest.mark.parametrize("kind", [OutOfMemoryError, CupysOutOfMemoryError])
def test_a_case_whose_gpu_is_full_is_tried_again_while_no_large_one_runs(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(verifying, "gpu_needs", lambda case, device, inputs: len(inputs) and 5)
    device, (run, called) = Gpu(), raising(kind("8 GiB"))
    assert attempt(CASE, device, run).verdict is Verdict.PASS
    assert device.asked == [(5, False), (5, True)] and len(called) == 2
    device, (run, called) = Gpu(), raising(kind("8 GiB"), kind("9 GiB"))
    result = attempt(CASE, device, run)
    assert (result.verdict, len(called)) == (Verdict.NO_DEVICE, 2)
    assert result.reason == "too little memory for the case, also while no other large case ran on the GPU: 9 GiB"
    device, (run, called) = Gpu(), raising(kind("8 GiB"))
    attempt(CASE, device, run, draw=False)
    assert device.asked == [(0, False), (0, True)]  # without inputs


def test_what_the_first_attempt_held_is_freed_before_the_second():
    held: list[weakref.ref] = []

    class Held:
        pass

    def run(empty: Result) -> Result:
        assert not [each for each in held if each() is not None]
        of_this_frame = Held()
        held.append(weakref.ref(of_this_frame))
        if len(held) == 1:
            error = OutOfMemoryError("8 GiB")  # its traceback refers to this frame, and the frame to it
            raise error
        return empty

    gc.disable()
    try:
        assert attempt(CASE, Gpu(), run).verdict is Verdict.PASS and len(held) == 2
    finally:
        gc.enable()


# Oracles


@pytest.mark.parametrize(
    ("where", "differing", "trace", "of"),
    [
        ("", ("rowwise_data", (3, 2)), True, "rowwise_data, on which the oracles disagree"),
        ("on another: ", ("rowwise_data", (3, 2)), False, "rowwise_data, on which the oracles disagree"),
        ("", ("rowwise_data", None), False, "rowwise_data, on which the oracles disagree"),
        ("", ("", None), False, ""),
    ],
)
def test_only_oracles_that_disagree_on_the_case_s_own_input_are_traced(where, differing, trace: bool, of: str):
    case = find_case("per_tensor/default/48x80/normal/eager")
    expected = replace(expect(case), disagreement="the oracles disagree", differing=differing)
    result = disagreeing(blank(case, EmulatorDevice()), case, expected, where)
    assert (result.verdict, result.reason) == (Verdict.SETUP_ERROR, f"{where}the oracles disagree")
    assert bool(result.trace) is trace and result.findings.where == of
    assert not trace or result.trace[:4] == ("--field", "rowwise_data", "--at", "3,4")


def test_oracles_that_disagree_judge_no_kernel(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(EmulatorDevice, "prepare", None)
    wrong = Expected({}, {}, {}, (), "the oracles disagree")
    for name, says in (("expect", ""), ("other_expected", f"on {WORDS}: ")):
        with monkeypatch.context() as patch:
            patch.setattr(verifying, name, lambda *_: wrong)
            result = verify(CASE, EmulatorDevice())
        assert (result.verdict, result.reason) == (Verdict.SETUP_ERROR, f"{says}the oracles disagree")


def test_oracles_are_asked_on_the_device_about_the_inputs_that_are_given(monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple] = []
    right, wrong = expect(CASE), Expected({}, {}, {}, (), "the oracles disagree")

    def asks(name: str, answer: Expected) -> None:
        monkeypatch.setattr(verifying, name, lambda case, *given: asked.append((name, *given)) or answer)

    for name, answer in (("expect", right), ("expect_on", right), ("other_expected", wrong)):
        asks(name, answer)
    inputs = make_inputs(CASE)
    for device, where in ((EmulatorDevice(), "cpu"), (OnCuda(), "cuda")):
        asked.clear()
        verify(CASE, device, 9)
        verify(CASE, device, 9, inputs)
        assert asked == [
            ("expect", where, 9), ("other_expected", right, where, False),
            ("expect_on", inputs, where, 9), ("other_expected", right, where, True),
        ]  # fmt: skip


@pytest.mark.parametrize(("target", "more"), [("sm_90a", ()), ("sm_100a", ("--target", "sm_100a"))])
def test_a_trace_names_the_target_unless_it_is_the_first(monkeypatch: pytest.MonkeyPatch, target: str, more: tuple):
    story = Story("head", trace=("--field", "data"))
    wrong = Wrong(Verdict.MISMATCH, "bytes differ", story)
    monkeypatch.setattr(verifying, "judge", lambda case, device, on, *_: ([None], wrong if on == target else None))
    monkeypatch.setattr(verifying, "digests", lambda *_: "")
    result = verify(CASE, EmulatorDevice())
    assert result.trace == ("--field", "data", *more) and result.bytes_compared == 0
    assert [each.split()[0] for each in result.instantiations] == ["sm_90a", "sm_100a"][: 2 if more else 1]


def test_inputs_are_drawn_before_the_device_is_waited_for_unless_they_are_given(monkeypatch: pytest.MonkeyPatch):
    drawn: list[list[str]] = []
    monkeypatch.setattr(verifying, "gpu_needs", lambda case, device, inputs: drawn.append([*inputs]) or 0)
    for name in ("expect", "expect_on"):
        monkeypatch.setattr(verifying, name, lambda *_: Expected({}, {}, {}, (), "the oracles disagree"))
    inputs = make_inputs(CASE)
    verify(CASE, EmulatorDevice())
    verify(CASE, EmulatorDevice(), inputs=inputs)
    assert drawn == [[*inputs], []]


def test_other_splits_are_judged_up_to_the_work_that_numpy_does():
    assert splits_judged(SPLIT, SPLIT.work) and not splits_judged(SPLIT, SPLIT.work - 1)
    assert splits_judged(CASE, CASE.work) == ()
