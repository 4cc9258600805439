"""The runs that `judge` makes, their inputs and order, and the verdict it finds from their bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.contract.field import Field
from harness.contract.interval import Interval
from harness.device.device import Outcome
from harness.device.emulator import EmulatorDevice
from harness.errors import AccessError, LaunchError
from harness.expected.expected import Expected
from harness.expected.other_input import WORDS, Other
from harness.suite.suite import find_case
from harness.verdict import Story, Verdict
from harness.verify import judge as judging
from harness.verify.judge import STATE, Wrong, explained, judge

CASE = find_case("swizzle/default/16x16/normal/eager")
FIELDS = {"amax": Field((2,), "uint8"), "data": Field((3,), "uint8")}
OWN = Expected(
    {"x": np.zeros(1)}, FIELDS, {"amax": np.array([7, 8], np.uint8), "data": np.arange(3, dtype=np.uint8)}, ()
)
OTHER = Other({"x": np.ones(1)}, FIELDS, {name: value + 16 for name, value in OWN.values.items()}, ())
A, B, C = ("own", 0xA5, 0), ("own", 0x5A, 1), ("own", 0xA5, 2)  # the runs of a case: its input, the poison, the number
A_OTHER, AGAIN, C_OTHER = ("other", 0xA5, 0), ("other", 0x5A, 2), ("other", 0xA5, 2)
NAMED = tuple(f"ex2.approx.f32 at a.cu:{line}" for line in range(4))


class Program:
    """Writes what is expected of the input in place, as `writes` changes it: given the run, and how often renewed.

    ran: the runs; nearest: those with nearest values; keeps: whether it has variables
    """

    def __init__(self, writes: Callable[..., object], keeps: bool, approximated: tuple[str, ...]):
        self.writes, self.keeps, self.approximated = writes, keeps, approximated
        self.on, self.renewed, self.trespass = "own", 0, ""
        self.ran: list[tuple[str, int, int]] = []
        self.nearest: list[tuple[str, int, int]] = []

    def resplit(self, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> None:
        assert fields is FIELDS
        self.on = "other" if inputs is OTHER.inputs else "own"

    def renew(self) -> bool:
        self.renewed += 1
        return self.keeps

    def order(self, repeat: int) -> Any:
        return SimpleNamespace(approximation=repeat, name=f"order {repeat}")

    def run(self, poison: int, repeat: int, nearest: bool = False) -> Outcome:
        ran = self.on, poison, repeat
        (self.nearest if nearest else self.ran).append(ran)
        found = {name: value.copy() for name, value in (OWN if self.on == "own" else OTHER).values.items()}
        trespass = None if nearest else self.writes(found, ran, self.renewed)
        return Outcome(found, trespass if isinstance(trespass, str) else "", self.approximated)


def judged(
    writes: Callable[..., object] = lambda *_: None, other: Other | None = OTHER, keeps: bool = False,
    approximated: tuple[str, ...] = (), **more: Any,
) -> tuple[Program, list[Outcome], Wrong | None]:  # fmt: skip
    program = Program(writes, keeps, approximated)
    return program, *judge(CASE, EmulatorDevice(), "sm_90a", program, OWN, other, **more)


def wrong_if(when: Callable[[tuple[str, int, int], int], bool], name: str = "data") -> Callable[..., None]:
    def writes(found: dict[str, np.ndarray], ran: tuple[str, int, int], renewed: int) -> None:
        if when(ran, renewed):
            found[name][-1] ^= 0x80

    return writes


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    """The arguments by which each story was made."""
    found: list[SimpleNamespace] = []

    def story_of(case, target, expected, runs, poisons, verdict, cause, approximated, nearest) -> Story:
        names = "case", "target", "expected", "runs", "poisons", "verdict", "cause", "approximated", "nearest"
        given = case, target, expected, runs, list(poisons), verdict, cause, approximated, nearest
        found.append(SimpleNamespace(**dict(zip(names, given, strict=True))))
        return Story("head", (("cause", cause),), ("--field", "data"))

    monkeypatch.setattr(judging, "story_of", story_of)
    return found


def test_three_runs_the_last_on_the_other_input():
    for other, runs in ((None, [A, B, C]), (OTHER, [A, B, C_OTHER])):
        program, outcomes, wrong = judged(other=other)
        assert (program.ran, len(outcomes), wrong, program.renewed) == (runs, 3, None, 0)
        assert program.on == runs[-1][0]  # stays in place


@pytest.mark.parametrize("other", [None, OTHER])
@pytest.mark.parametrize("name", FIELDS)
def test_bytes_that_are_always_wrong_are_a_mismatch(told, other: Other | None, name: str):
    program, outcomes, wrong = judged(wrong_if(lambda ran, _: ran[0] == "own", name), other)
    assert program.ran == [A, B, C] and program.renewed == bool(other) and len(outcomes) == 3
    assert wrong[:2] == (Verdict.MISMATCH, f"sm_90a: bytes differ in {name}")
    assert (told[0].poisons, told[0].cause, told[0].expected, len(told[0].runs)) == ([0xA5, 0x5A, 0xA5], "", OWN, 3)
    assert (told[0].case, told[0].target, told[0].verdict) == (CASE, "sm_90a", Verdict.MISMATCH)
    assert wrong.story.trace  # of the case's own input


@pytest.mark.parametrize("run", [A, B, C])
@pytest.mark.parametrize("other", [None, OTHER])
def test_one_run_that_is_wrong_by_itself_is_nondeterministic(told, run: tuple[str, int, int], other: Other | None):
    program, _, wrong = judged(wrong_if(lambda ran, _: ran in (run, C_OTHER)), other, keeps=True)
    assert wrong[:2] == (Verdict.NONDETERMINISTIC, "sm_90a: runs on the same input differ in data")
    assert program.renewed == 0 and told[0].cause == "" and wrong.second_opinion is None
    assert program.ran == ([A, B, C_OTHER, C] if other and run == C else [A, B, C])


@pytest.mark.parametrize(("wrong_at", "renewed"), [((0,), 2), ((0, 1), 1), ((0, 2), 2)])
def test_what_is_right_twice_in_a_fresh_module_outlives_the_call(told, wrong_at: tuple[int, ...], renewed: int):
    """wrong_at: how often the module was renewed when a run is wrong"""
    program, _, wrong = judged(wrong_if(lambda _, renewed: renewed in wrong_at), keeps=True)
    assert wrong.verdict is Verdict.MISMATCH
    assert (program.ran, program.renewed) == ([A, B, C, *[A] * renewed], renewed)
    assert told[0].cause == (STATE if wrong_at == (0,) else "")
    assert wrong.reason.endswith("are right in a fresh module: state outlives the call") is (wrong_at == (0,))


@pytest.mark.parametrize("keeps", [False, True])
def test_bytes_that_are_wrong_on_the_other_input_alone(told, keeps: bool):
    program, outcomes, wrong = judged(wrong_if(lambda ran, _: ran[0] == "other"), keeps=keeps)
    fresh = [C_OTHER] if keeps else []
    assert program.ran == [A, B, C_OTHER, C, AGAIN, *fresh, A_OTHER] and program.renewed == 1
    assert wrong[:2] == (Verdict.MISMATCH, f"sm_90a: bytes differ in data on {WORDS}") and len(outcomes) == 3
    assert told[0].poisons == [0xA5, 0x5A, 0xA5] and (told[0].expected, told[0].cause) == (OTHER, "")
    assert wrong.story.trace == () and wrong.story.rows[0] == ("input", f"{WORDS}; right on the case's own")


def test_what_outlives_a_call_shows_on_the_other_input(told):
    program, _, wrong = judged(wrong_if(lambda ran, renewed: ran[0] == "other" and not renewed), keeps=True)
    assert program.ran == [A, B, C_OTHER, C, AGAIN, C_OTHER, C_OTHER] and program.renewed == 2
    assert (
        wrong.reason
        == f"sm_90a: bytes differ in data on {WORDS}, and are right in a fresh module: state outlives the call"
    )
    assert (told[0].cause, told[0].poisons) == (STATE, [0xA5, 0x5A])


def test_an_order_that_is_wrong_on_the_other_input_alone(told):
    program, _, wrong = judged(wrong_if(lambda ran, _: ran in (C_OTHER, AGAIN)), approximated=NAMED)
    assert wrong.verdict is Verdict.NONDETERMINISTIC and program.ran[-1] == A_OTHER
    assert told[0].approximated == NAMED[:3] and told[0].nearest
    assert told[0].cause == f"approximate instruction: PTX leaves the last bits of {', '.join(NAMED[:3])} open"
    assert wrong.second_opinion.orders == ("order 2", "order 0") and program.nearest == [C_OTHER, AGAIN]
    assert f", because of an {told[0].cause}; {wrong.second_opinion} on {WORDS}" in wrong.reason


def test_runs_that_differ_on_the_other_input_are_not_asked_for_anew():
    program, _, wrong = judged(wrong_if(lambda ran, _: ran == C_OTHER), keeps=True)
    assert (program.ran, program.renewed) == ([A, B, C_OTHER, C, AGAIN], 0)
    assert wrong.verdict is Verdict.NONDETERMINISTIC


@pytest.mark.parametrize(("on", "run"), [("own", B), ("other", AGAIN)])
def test_one_field_that_differs_between_runs_is_enough(on: str, run: tuple[str, int, int]):
    """The other is wrong in the same way each time, and right in a fresh module."""

    def writes(found: dict[str, np.ndarray], ran: tuple[str, int, int], renewed: int) -> None:
        found["amax"][0] ^= ran[0] == on and not renewed
        found["data"][0] ^= ran == run

    program, _, wrong = judged(writes, keeps=True)
    assert wrong.verdict is Verdict.NONDETERMINISTIC and program.renewed == 0
    assert "runs on the same input differ in amax, data" in wrong.reason


def test_a_second_opinion_repeats_the_orders_of_the_runs(told):
    program, _, wrong = judged(wrong_if(lambda ran, _: ran == B), other=None, approximated=NAMED[:1])
    assert wrong.second_opinion.orders == ("order 0", "order 1", "order 2") and program.nearest == [B, C]
    assert told[0].approximated == NAMED[:1] and NAMED[0] in wrong.reason


def test_oracles_that_doubt_the_other_input_judge_no_kernel():
    doubting = replace(OTHER, doubt=lambda: "torch has other bytes")
    _, _, wrong = judged(wrong_if(lambda ran, _: ran[0] == "other"), doubting)
    assert wrong[:2] == (Verdict.SETUP_ERROR, f"on {WORDS}: torch has other bytes")
    _, _, wrong = judged(wrong_if(lambda ran, _: True), doubting)
    assert wrong.verdict is Verdict.MISMATCH  # that of the case's own input is not doubted


@pytest.mark.parametrize("other", [None, OTHER])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_write_to_other_bytes_ends_the_runs(number: int, other: Other | None):
    def writes(found: object, ran: tuple[str, int, int], _: int) -> str:
        return "input 'x' was changed" if ran[2] == number else ""

    program, outcomes, wrong = judged(writes, other)
    where = f", on {WORDS}" if other and number == 2 else ""
    assert wrong[:2] == (Verdict.OUT_OF_BOUNDS, f"sm_90a: input 'x' was changed{where}")
    assert len(program.ran) == number + 1 and len(outcomes) == min(number, 2)


def test_what_explains_every_byte_of_all_runs_excuses_them():
    asked = []

    def excuses(expected: Expected, outcome: Outcome) -> bool:
        asked.append((expected, outcome.outputs["data"][-1]))
        return True

    _, _, wrong = judged(wrong_if(lambda *_: True), excuses=excuses)
    assert wrong is None and asked == [(OWN, 0x82), (OTHER, 0x92)]
    assert judged(wrong_if(lambda ran, _: ran == B), excuses=excuses)[2].verdict is Verdict.NONDETERMINISTIC
    assert judged(wrong_if(lambda *_: True), excuses=lambda *_: False)[2].verdict is Verdict.MISMATCH

    def writes(found: dict[str, np.ndarray], ran: tuple[str, int, int], _: int) -> None:
        found["amax"][0] ^= 1
        found["data"][0] ^= ran == B

    assert judged(writes, excuses=excuses)[2].verdict is Verdict.NONDETERMINISTIC  # of one field that differs


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (AccessError("race", "a.cu:3", "reads"), f"a.cu:3: reads, on {WORDS}"),
        (LaunchError("trapped"), f"trapped, on {WORDS}"),
    ],
)
@pytest.mark.parametrize("run", [C_OTHER, AGAIN])
def test_an_error_on_the_other_input_says_so(error: Exception, says: str, run: tuple[str, int, int]):
    def writes(found: dict[str, np.ndarray], ran: tuple[str, int, int], _: int) -> None:
        if ran == run:
            raise error
        if ran[0] == "other":
            found["data"][0] ^= 1

    with pytest.raises(type(error)) as raised:
        judged(writes)
    assert str(raised.value) == says and getattr(raised.value, "kind", "race") == "race"


@pytest.mark.parametrize("share", [1, 3])
def test_bytes_that_no_run_wrote_are_counted(told, share: int):
    def writes(found: dict[str, np.ndarray], ran: tuple[str, int, int], _: int) -> None:
        found["data"][:share] = ran[1]

    _, _, wrong = judged(writes)
    assert wrong[:2] == (Verdict.UNWRITTEN, f"sm_90a: {share} of 3 bytes of data were never written")
    runs = [{"amax": OWN.values["amax"], "data": np.full(3, 0xA5, np.uint8)}]
    assert explained(CASE, "sm_90a", OWN, ["data"], runs * 3, cause="known").verdict is Verdict.MISMATCH
    assert told[-1].cause == "known"
    assert explained(CASE, "sm_90a", OWN, ["data"], runs, poisons=[0xA5], cause="known").verdict is Verdict.UNWRITTEN
    assert told[-1].cause == ""


def test_of_several_fields_that_no_run_wrote_the_first_is_counted():
    runs = [{name: np.full(value.shape, poison, np.uint8) for name, value in OWN.values.items()} for poison in (1, 2)]
    wrong = explained(CASE, "sm_90a", OWN, ["amax", "data"], runs, poisons=[1, 2])
    assert wrong[:2] == (Verdict.UNWRITTEN, "sm_90a: 2 of 2 bytes of amax were never written")


def test_values_are_outside_of_intervals_if_all_wrong_fields_have_them():
    bounds = Interval(OWN.values["data"], OWN.values["data"])
    expected, runs = replace(OWN, values=OWN.values | {"data": bounds}), [dict(OWN.values)] * 3
    for names, says in ((["data"], "values are outside their intervals"), (["amax", "data"], "bytes differ")):
        found = explained(CASE, "sm_90a", expected, names, runs)
        assert found[:2] == (Verdict.MISMATCH, f"sm_90a: {says} in {', '.join(names)}")
