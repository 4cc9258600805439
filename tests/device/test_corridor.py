"""One corridor: a kernel of a recipe, and the same kernel as somebody else's PTX on a card, are launched alike."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from harness.device import emulator
from harness.device.emulator import EmulatedProgram, EmulatorDevice
from harness.errors import AccessError
from harness.expected.expected import fields_of, make_inputs
from harness.files import KERNELS, ROOT
from harness.subjects.card.card import read_card
from harness.subjects.card.device import with_card
from harness.suite.suite import find_case
from ptx_emulator.schedule import ASCENDING, DESCENDING, Schedule
from tests.test_imports import HARNESS, modules, named

CASE = find_case("swizzle/default/48x80/normal/eager")
STORE = "patch.store_swizzled(swizzled_scale_inv);"
POINTERS = ("scale_inv", "swizzled_scale_inv")


@dataclass
class Both:
    """The programs of the recipe and of a card with its PTX. ours, theirs: their launches, in order"""

    recipe: EmulatedProgram
    card: EmulatedProgram
    launches: list[tuple]

    def run(self, repeat: int) -> list:
        found = []
        for program in (self.recipe, self.card):
            try:
                found.append(program.run((0xA5, 0x5A, 0xA5)[repeat], repeat))
            except AccessError as error:
                (launch,) = program.launches.bound
                found.append((error.kind, error.where, str(error).replace(launch.title, launch.entry)))
        return found


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def prepared(wrong: str = STORE) -> Both:
        kernels = shutil.copytree(KERNELS, tmp_path / "kernels")
        text = (kernels / "swizzle.cu").read_text()
        assert text.count(STORE) == 1
        (kernels / "swizzle.cu").write_text(text.replace(STORE, wrong))
        inputs, fields = make_inputs(CASE), fields_of(CASE)
        device = EmulatorDevice(kernels=kernels)
        recipe = device.prepare(CASE, "sm_90a", inputs, fields)
        (launch,) = recipe.launches.bound
        grid, block = list(launch.grids[0]), list(launch.block)
        arguments = [
            f"{{array: {each.name}}}" if each.pointer else f"{{i32: {each.name}}}"
            for each in launch.step.signature.call
        ]
        (tmp_path / "own.ptx").write_text(launch.code.ptx)
        (tmp_path / "card.yaml").write_text(
            f"code: own.ptx\nrecipe: swizzle\nlaunches: [{{kernel: {launch.entry}, grid: {grid}, block: {block}, "
            f"arguments: [{', '.join(arguments)}]}}]\n"
        )
        monkeypatch.chdir(tmp_path)
        made: list[tuple] = []
        original = emulator.launch

        def launch_and_note(module, entry, **how):
            noted = ("grid", "block", "schedule", "dynamic_shared", "cluster", "strict", "sanitize")
            made.append((entry, *(how[name] for name in noted), len(how["args"])))
            return original(module, entry, **how)

        monkeypatch.setattr(emulator, "launch", launch_and_note)
        return Both(recipe, with_card(device, read_card("card.yaml")).prepare(CASE, "sm_90a", inputs, fields), made)

    return prepared


def test_a_recipes_kernel_and_the_same_ptx_on_a_card_give_the_same(both):
    pair = both()
    for repeat in range(3):
        ours, theirs = pair.run(repeat)
        assert np.array_equal(ours.outputs["swizzled_scale_inv"], theirs.outputs["swizzled_scale_inv"])
        assert (ours.trespass, ours.approximated) == (theirs.trespass, theirs.approximated) == ("", ())
    for ours, theirs in zip(pair.launches[0::2], pair.launches[1::2], strict=True):
        assert ours[:1] + ours[2:] == theirs[:1] + theirs[2:]
    assert [launch[1] for launch in pair.launches] == [(1, 1, 1)] * 6
    assert [launch[3] for launch in pair.launches[1::2]] == [ASCENDING, DESCENDING, Schedule(seed=CASE.seed)]


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ("*reinterpret_cast<u32*>(swizzled_scale_inv + (1 << 24)) = 0;", "out_of_bounds"),
        ("*reinterpret_cast<u32*>(swizzled_scale_inv + patch.swizzled(0) + 1) = 0;", "misaligned"),
        ("*reinterpret_cast<u32*>(swizzled_scale_inv) = threadIdx.x;", "race"),
    ],
)
def test_they_end_with_the_same_fault(both, wrong: str, kind: str):
    ours, theirs = both(wrong).run(0)
    assert ours[0] == kind and ours[1].startswith("swizzle.cu:")
    assert ours == theirs


def test_one_file_of_the_harness_launches_on_the_emulator():
    found = {
        path.relative_to(HARNESS).as_posix()
        for path in modules(ROOT).values()
        if path.is_relative_to(HARNESS)
        if {"ptx_emulator.launches.launch", "ptx_emulator.stream"} & set(named(path, ""))
    }
    assert found == {"device/emulator.py"}


def test_one_file_of_the_harness_hands_launches_to_the_driver():
    found = [
        path.relative_to(HARNESS).as_posix() for path in HARNESS.rglob("*.py") if "cuLaunchKernel" in path.read_text()
    ]
    assert found == ["device/driver_launch.py"]
