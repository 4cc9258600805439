"""A device with other kernels in place of ours answers for itself, and a case runs on the right targets."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from harness.contract.field import Field
from harness.device.device import InPlaceOfOurs, targets_of
from harness.device.emulator import EmulatedProgram, EmulatorDevice
from harness.device.launches import Constant, Launches
from harness.suite.suite import find_case

CASE = find_case("swizzle/default/16x16/normal/eager")


class Ours(EmulatorDevice):
    """Has a fact of its own, and one that it lost."""

    gone = "the GPU is there no more"

    def lost(self) -> str:
        return self.gone


def test_a_device_with_other_kernels_is_the_inner_one_in_all_else():
    device = InPlaceOfOurs(Ours(), "theirs 1.0")
    assert device.identity() == EmulatorDevice().identity() | {"subject": "theirs 1.0"}
    assert (device.name, device.targets, device.modes, device.subject_label) == (
        "emulator", ("sm_90a", "sm_100a"), frozenset({"eager"}), "theirs 1.0",
    )  # fmt: skip
    assert device.lost() == device.gone == Ours.gone
    for other in (copy.copy(device), pickle.loads(pickle.dumps(device))):
        assert other.identity() == device.identity() and other.lost() == Ours.gone


def test_a_case_with_a_turn_runs_on_one_target_and_others_on_all():
    device = EmulatorDevice()
    assert targets_of(device, CASE) == device.targets
    assert [targets_of(device, replace(CASE, turn=turn)) for turn in range(3)] == [
        ("sm_90a",),
        ("sm_100a",),
        ("sm_90a",),
    ]


# The emulator's sentence about memory that must not have changed


LAUNCHES = Launches((), {"count": 4}, {"notes": 8})


class Ran(EmulatedProgram):
    """A program whose launches do what `does` says to its memory."""

    def __init__(self, does=lambda memory: None):
        fields = {"data": Field((3,), "uint8"), "kept": Field((2,), "uint8", slack=4)}
        super().__init__(LAUNCHES, CASE, {"x": np.arange(4, dtype=np.uint8)}, fields)
        self.does = does

    def _launch_all(self, memory, repeat, stream, nearest=False):
        self.seen = {name: (array.data.copy(), array.writable, array.written) for name, array in memory.arrays.items()}
        self.stream, self.nearest = stream, nearest
        self.does(memory)
        return ("ex2.approx.f32 at a.cu:1",)


def test_outputs_and_workspace_are_poisoned_scratch_is_zero_and_inputs_cannot_be_written():
    program = Ran()
    for poison in (0xA5, 0x5A):
        outcome = program.run(poison, 0)
        assert {name: array.tolist() for name, (array, *_) in program.seen.items()} == {
            "x": [0, 1, 2, 3], "data": [poison] * 3, "kept": [poison] * 6, "notes": [poison] * 8, "count": [0] * 4,
        }  # fmt: skip
        assert [name for name, (_, writable, _) in program.seen.items() if not writable] == ["x"]
        unread = [name for name, (*_, written) in program.seen.items() if written is not None and not written.any()]
        assert unread == ["data", "kept", "notes"]  # until a kernel writes it
        assert {name: array.tolist() for name, array in outcome.outputs.items()} == {
            "data": [poison] * 3, "kept": [poison] * 2,
        }  # fmt: skip
        assert (outcome.trespass, outcome.approximated) == ("", ("ex2.approx.f32 at a.cu:1",))
        assert not program.nearest
    program.run(0xA5, 0, nearest=True)
    assert program.nearest


@pytest.mark.parametrize(("early", "together"), [((), False), ((False,), False), ((False, True), True)])
def test_launches_share_a_stream_if_any_begins_early(early: tuple[bool, ...], together: bool):
    program = Ran()
    program.launches = SimpleNamespace(
        of_kernels=[SimpleNamespace(early=each) for each in early], scratch={}, workspace={}
    )
    program.run(0xA5, 0)
    assert (program.stream is not None) is together


def test_bytes_that_a_producer_does_not_define_are_unwritten():
    program = Ran()
    program.unwritten = {"x": np.array([False, True, False, True])}
    program.run(0xA5, 0)
    assert program.seen["x"][2].tolist() == [1, 0, 1, 0]


def test_scratch_slack_and_constants_that_changed_are_told():
    def spoils(name: str, at: int):
        def does(memory) -> None:
            memory.arrays[name].data[at] ^= 1

        return Ran(does).run(0xA5, 0).trespass

    assert spoils("count", -1) == "scratch 'count' is not zero after the last launch, so a second run would differ"
    assert spoils("notes", -1) == spoils("kept", 1) == ""
    for at in (2, -1):
        assert spoils("kept", at) == "output 'kept': 1 bytes of its slack were written"
    constant = Constant("table", "own.cu:3", lambda memory: b"ab")
    for data, says in ((b"ab", ""), (b"aB", constant.changed)):
        program = Ran()
        program.variables = [(constant, SimpleNamespace(data=np.frombuffer(data, np.uint8)), b"ab")]
        assert program.run(0xA5, 0).trespass == says
