"""A kernel whose grid depends on the size of the device is run on both of its grids."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from harness.device.cuda_program import CudaProgram
from harness.device.emulator import EmulatorDevice
from harness.jit.geometry import Grid
from harness.suite.suite import find_case
from harness.verify.expected import fields_of, make_inputs
from ptx_emulator.launches import Module

CASE = find_case("per_tensor/block=block_16x16/272x400/normal/eager")
TILES, PATCHES = (4, 3, 1), (2, 2, 1)


def test_on_the_emulator_every_grid_gets_its_turn(monkeypatch: pytest.MonkeyPatch):
    launched = []

    def launch(module: Module, symbol: str, *, grid: Grid, **_: object) -> SimpleNamespace:
        launched.append((symbol, grid))
        return SimpleNamespace(lane_instructions=0, approximated=())

    monkeypatch.setattr("harness.device.emulator.launch", launch)
    case = replace(CASE, flags=CASE.flags.replace(stage="encode"))  # the one launch; behind an amax it begins early
    program = EmulatorDevice().prepare(case, "sm_90a", make_inputs(case), fields_of(case))
    for repeat in range(3):
        program.run(0x5A, repeat)
    assert [grid for symbol, grid in launched if "encode_square" in symbol] == [TILES, PATCHES, TILES]


def test_on_a_gpu_odd_turns_have_the_other_grids():
    launched = []
    program = object.__new__(CudaProgram)
    program.calls = (partial(launched.append, "own"),)
    program.other_calls = (partial(launched.append, "other"),)
    for repeat in range(3):
        program.launch(repeat)
    program.launch()
    assert launched == ["own", "other", "own", "own"]
