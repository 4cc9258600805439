"""Verification on other splits of an allocation: the same launches, other extents, a mismatch that names the split."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np
import pytest

from harness.contract.case import Case, other_splits
from harness.contract.field import Field
from harness.device.device import Outcome
from harness.device.emulator import EmulatorDevice
from harness.expected.expected import Expected, expect_split
from harness.ground.command_lines import Asked
from harness.suite.suite import find_case
from harness.verdict import Verdict
from harness.verify.judge import POISONS
from harness.verify.screen import screen
from harness.verify.verify import verify

CASE = find_case("grouped/outputs=rowwise/0+128+0of384x48/normal/graph")


@pytest.fixture(autouse=True)
def all_runs_have_the_cases_input(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("harness.verify.verify.other_expected", lambda *_: None)


class Replayed:
    """Writes what the oracles say of the split that it was given last, or of the first one that it was given.

    spill: one entry of slack is written as well
    """

    name, targets, modes, subject_label = "fake", ("sm_90a",), frozenset({"graph"}), ""
    accepts, to_host, reserve = EmulatorDevice.accepts, EmulatorDevice.to_host, EmulatorDevice.reserve

    def __init__(self, stale: bool = False, spill: bool = False):
        self.stale, self.spill, self.seen, self.prepared = stale, spill, [], 0
        self.answers = {_key(each.inputs): each for each in map(expect_split, (CASE, *other_splits(CASE)))}

    def admit(self, case: Case) -> None:
        """Everything."""

    def prepare(self, case: Case, target: str, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]):
        self.prepared += 1
        self.current = self.answers[_key(inputs)]
        return SimpleNamespace(kernels=(), run=self.run, resplit=self.resplit)

    def resplit(self, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> None:
        self.seen.append(inputs["first_dims"].tolist())
        if not self.stale:
            self.current = self.answers[_key(inputs)]
        self.fields = fields

    def run(self, poison: int, repeat: int) -> Outcome:
        trespass = "output 'rowwise_data': 1 bytes of its slack were written" if self.spill and self.seen else ""
        return Outcome({name: self.bytes_of(name, poison) for name in self.current.values}, trespass)

    def bytes_of(self, name: str, poison: int) -> np.ndarray:
        actual = np.ascontiguousarray(self.current.values[name]).reshape(-1).view(np.uint8)
        if not self.seen:
            return actual
        whole = np.full(self.fields[name].nbytes, poison, np.uint8)
        whole[: actual.size] = actual[: whole.size]
        return whole


def _key(inputs: Mapping[str, np.ndarray]) -> bytes:
    return inputs["first_dims"].tobytes()


def test_one_program_runs_every_split():
    device = Replayed()
    result = verify(CASE, device)
    assert (result.verdict, device.prepared) == (Verdict.PASS, 1)
    assert device.seen == [[rows for rows, _ in split.problem.tensors] for split in other_splits(CASE)]
    fields = [field for each in device.answers.values() for field in each.fields.values()]
    assert result.bytes_compared == len(POISONS) * sum(field.nbytes for field in fields)


def test_a_graph_that_keeps_the_first_split_is_told_with_the_split():
    result = verify(CASE, Replayed(stale=True))
    first, *_ = other_splits(CASE)
    assert result.verdict in (Verdict.MISMATCH, Verdict.UNWRITTEN)
    assert result.reason.endswith(f"when the split became {first.shape}")
    told = screen(result, Asked.here())
    assert told.endswith(f"verify --case '{CASE.id}'") and " trace " not in told
    assert f"{result.verdict}  {first.id}" in result.story


def test_slack_that_is_written_in_another_split_is_out_of_bounds():
    result = verify(CASE, Replayed(spill=True))
    assert result.verdict is Verdict.OUT_OF_BOUNDS
    assert "of its slack were written, when the split became" in result.reason


def test_large_cases_are_run_on_their_own_split_alone():
    device = Replayed()
    assert verify(CASE, device, numpy_largest=CASE.work - 1).verdict is Verdict.PASS
    assert device.seen == []


def test_oracles_that_disagree_on_a_split_say_which(monkeypatch: pytest.MonkeyPatch):
    wrong = Expected({}, {}, {}, (), "the oracles disagree on 3 bytes of rowwise_data, first at byte 7")
    monkeypatch.setattr("harness.verify.verify.expect_split", lambda *_: wrong)
    result = verify(CASE, Replayed())
    assert result.verdict is Verdict.SETUP_ERROR
    assert result.reason.startswith("split ")
