"""The three runs of a verification have three orders of CTAs and warps, and all grids, so that what depends shows."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import own_recipe
import pytest

from harness.contract.case import Case
from harness.device.emulator import EmulatorDevice
from harness.expected.expected import fields_of, make_inputs
from harness.files import KERNELS
from harness.jit.geometry import Grid
from harness.suite.suite import find_case
from harness.verdict import Result, Verdict
from harness.verify.verify import verify
from ptx_emulator.launches import Module
from ptx_emulator.schedule import ASCENDING, DESCENDING, Schedule

CASE = find_case("swizzle/default/3216x144/normal/eager")
SQUARE = find_case("per_tensor/block=block_16x16/272x400/normal/eager")
CASES = [replace(CASE, seed_of=f"number {i}") for i in range(8)]
STORE = "patch.store_swizzled(swizzled_scale_inv);"
# Strong stores, which do not race, in its place.
STRONG = """for (int i = 0; i < 16; ++i) {
      if (!patch.holds(i / 4)) continue;
      reinterpret_cast<volatile u32*>(swizzled_scale_inv + patch.swizzled(i / 4))[i % 4] = patch.word[i % 4][i / 4];
    }"""
FIRST = "  const TileOrigin tile = tile_origin(SwizzleTile::kRows, SwizzleTile::kCols);\n"
SWIZZLE = (
    FIRST
    + """  ScalePatch patch = scale_patch<direction>(rows, cols, tile.row, tile.col);
  if (!patch.allocated()) return;
  patch.load_compact"""
)
MET = (STORE, "patch.word[0][0] *= met;\n  " + STORE)
# Each lane sets a flag and looks at that of another, which is not there if this one came first.
FLAGS = """
  __shared__ u32 here[SwizzleTile::kThreads];
  here[threadIdx.x] = 0;
  __syncthreads();
  atomicExch(here + threadIdx.x, 1u);
  %s
  const u32 met = atomicOr(here + (threadIdx.x ^ %d), 0u);
"""


def verified(folder: Path, *changes: tuple[str, str], case: Case = CASE) -> Result:
    kernels = shutil.copytree(KERNELS, folder / "kernels", dirs_exist_ok=True)
    text = (kernels / "swizzle.cu").read_text()
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    (kernels / "swizzle.cu").write_text(text)
    return verify(case, EmulatorDevice(kernels=kernels))


def test_the_runs_take_three_orders(monkeypatch: pytest.MonkeyPatch):
    taken = []

    def launch(*_: object, schedule: Schedule, **__: object) -> None:
        taken.append(schedule)
        raise InterruptedError

    monkeypatch.setattr("harness.device.emulator.launch", launch)
    program = EmulatorDevice().prepare(CASE, "sm_90a", make_inputs(CASE), fields_of(CASE))
    for repeat in range(3):
        with pytest.raises(InterruptedError):
            program.run(0xA5, repeat)
    assert taken == [ASCENDING, DESCENDING, Schedule(seed=CASE.seed)]


def test_every_grid_that_the_size_of_a_device_chooses_gets_its_turn(monkeypatch: pytest.MonkeyPatch):
    launched = []

    def launch(module: Module, symbol: str, *, grid: Grid, **_: object) -> SimpleNamespace:
        launched.append((symbol, grid))
        return SimpleNamespace(lane_instructions=0, approximated=())

    monkeypatch.setattr("harness.device.emulator.launch", launch)
    flags = SQUARE.flags.replace(stage="encode")  # the one launch; behind an amax it begins early
    case, tiles, patches = replace(SQUARE, flags=flags), (4, 3, 1), (2, 2, 1)
    program = EmulatorDevice().prepare(case, "sm_90a", make_inputs(case), fields_of(case))
    for repeat in range(3):
        program.run(0x5A, repeat)
    assert [grid for symbol, grid in launched if "encode_square" in symbol] == [tiles, patches, tiles]


def test_strong_stores_to_places_of_their_own_are_right(tmp_path: Path):
    assert verified(tmp_path, (STORE, STRONG)).verdict is Verdict.PASS


@pytest.mark.parametrize("who", ["blockIdx.y", "threadIdx.x / 32"])
def test_the_last_one_wins(tmp_path: Path, who: str):
    last = f"\n  if (threadIdx.x % 32 == 0) *reinterpret_cast<volatile u32*>(swizzled_scale_inv) = {who};"
    result = verified(tmp_path, (STORE, STRONG + last))
    assert result.verdict is Verdict.NONDETERMINISTIC
    assert result.reason == "sm_90a: runs on the same input differ in swizzled_scale_inv"


@pytest.mark.parametrize("distance", [1, 32])
def test_one_that_runs_ahead(tmp_path: Path, distance: int):
    changes = (SWIZZLE, SWIZZLE.replace(FIRST, FIRST + FLAGS % ("", distance))), MET
    verdicts = {verified(tmp_path, *changes, case=case).verdict for case in CASES}
    assert Verdict.NONDETERMINISTIC in verdicts and verdicts <= {Verdict.PASS, Verdict.NONDETERMINISTIC}


def test_none_runs_ahead_of_a_barrier(tmp_path: Path):
    changes = (SWIZZLE, SWIZZLE.replace(FIRST, FIRST + FLAGS % ("__syncthreads();", 32))), MET
    assert {verified(tmp_path, *changes, case=case).verdict for case in CASES} == {Verdict.PASS}


@pytest.mark.parametrize("quotient, right", [("__fdiv_rn", True), ("__fdividef", False)])
def test_a_second_opinion_on_a_recipe_of_ones_own(tmp_path: Path, quotient: str, right: bool):
    own_recipe.written(tmp_path)
    own_recipe.change(tmp_path, ".cu", "1.0f / scale_inv.value", f"{quotient}(1.0f, scale_inv.value)")
    with own_recipe.in_use(tmp_path):
        result = verify(find_case("toy/default/48x80/normal/eager"), EmulatorDevice())
    if right:
        assert (result.verdict, result.second_opinion) == (Verdict.PASS, {})
        return
    line = next(n for n, text in enumerate((tmp_path / "toy.cu").read_text().splitlines(), 1) if quotient in text)
    assert result.verdict is Verdict.NONDETERMINISTIC
    assert f"PTX leaves the last bits of div.approx.f32 at toy.cu:{line} open" in result.reason
    assert "nearest   with the nearest value in every order (ascending, descending, drawn), 0 of " in result.story
    assert (result.second_opinion["differing"], result.second_opinion["alike"]) == (0, True)
