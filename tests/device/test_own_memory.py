"""Scratch and workspaces: sizes by expression, and what a device does with them before, between and after launches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness import files
from harness.contract.case import Case
from harness.contract.field import Field
from harness.device.emulator import EmulatedProgram, EmulatorDevice
from harness.errors import AccessError
from harness.files import KERNELS
from harness.suite.launch_plan import plan
from harness.suite.sizes import NAMES, size_error, size_of
from harness.suite.suite import load_suite

EXTENTS = {"rows": 48, "cols": 80, "elements": 3840, "num_tensors": 3}

SUITE = """\
recipe: memo
contract: NUMERICS 0
axes: {dtype: [bf16]}
launches:
  - kernel: memo_write
    workspace: {notes: 4 * (cols + 16)}
  - kernel: memo_read
    workspace: {notes: 4 * (cols + 16)}
    scratch: {count: elements // 960}
sets: {smoke: &one [{shapes: [[48, 80]], inputs: [normal]}], full: *one, bench: *one}
"""

KERNEL = """\
#include "numerics/types.cuh"
#include "scheduler/launch.cuh"

__global__ void memo_write(u32* notes, int cols) {
  if (threadIdx.x < cols + 16) notes[threadIdx.x] = threadIdx.x;
}

__global__ void memo_read(const u32* notes, u32* count, u32* total, int cols) {
  u32 sum = 0;
  for (int i = 0; i < cols + 16; ++i) sum += notes[i];
  atomicAdd(count, sum);
  *total = atomicExch(count, 0u);
}

__constant__ Launch memo_write_launch = {128, 128, 128, 0, Schedule::tiles};
__constant__ Launch memo_read_launch = {128, 128, 1, 0, Schedule::tiles};
"""


@pytest.mark.parametrize(
    ("size", "value"),
    [
        (16, 16),
        ("16", 16),
        ("4 * cols", 320),
        ("elements // 32", 120),
        ("rows // 32 * cols + 4", 84),
        ("4 * (rows + cols) * num_tensors", 1536),
        ("rows // 128", 0),
    ],
)
def test_a_size_is_the_value_of_its_expression(size: int | str, value: int):
    assert size_error(size) is None
    assert size_of(size, EXTENTS) == value


@pytest.mark.parametrize("name", NAMES)
def test_a_size_knows_the_extents(name: str):
    assert size_error(name) is None
    assert size_of(name, EXTENTS) == EXTENTS[name]


@pytest.mark.parametrize("text", ["rows ** 2", "rows % 2", "-rows", "rows if cols else 1", "x[0]", "rows.bit_length()"])
def test_a_size_runs_no_code(text: str):
    assert size_error(text)


class Memo:
    """A recipe of two kernels on disk: one writes a workspace, the other reads it."""

    def __init__(self, folder: Path):
        self.folder = folder
        (folder / "memo.yaml").write_text(SUITE)
        for name in ("numerics/types.cuh", "scheduler/launch.cuh"):
            (folder / name).parent.mkdir()
            (folder / name).write_text((KERNELS / name).read_text())
        self.write(KERNEL)

    def write(self, kernel: str) -> None:
        (self.folder / "memo.cu").write_text(kernel)

    @property
    def case(self) -> Case:
        return load_suite(self.folder / "memo.yaml").cases("smoke")[0]

    def prepare(self) -> EmulatedProgram:
        fields = {"total": Field((1,), "uint32")}
        return EmulatorDevice(kernels=self.folder).prepare(self.case, "sm_90a", {}, fields)


@pytest.fixture
def memo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Memo:
    monkeypatch.setattr(files, "SUITES", tmp_path)
    return Memo(tmp_path)


def test_a_plan_has_the_sizes_of_its_case(memo: Memo):
    write, read = plan(memo.case, memo.folder)
    assert (write.scratch, write.workspace) == ({}, {"notes": 384})
    assert (read.scratch, read.workspace) == ({"count": 4}, {"notes": 384})


def test_a_workspace_passes_from_one_launch_to_the_next(memo: Memo):
    program = memo.prepare()
    for repeat, poison in enumerate((0xA5, 0x5A)):
        outcome = program.run(poison, repeat)
        assert outcome.trespass == ""
        assert outcome.outputs["total"].view(np.uint32)[0] == sum(range(96))


def test_a_workspace_does_not_pass_from_one_run_to_the_next(memo: Memo):
    memo.write(KERNEL.replace("if (threadIdx.x < cols + 16)", "if (threadIdx.x < cols)"))
    with pytest.raises(AccessError) as caught:
        memo.prepare().run(0xA5, 0)
    assert caught.value.kind == "unwritten_read"
    assert "'notes'" in str(caught.value)


@pytest.mark.parametrize("right", ["threadIdx.x < cols + 16", "i < cols + 16"])
def test_a_workspace_ends_where_its_size_says(memo: Memo, right: str):
    memo.write(KERNEL.replace(right, right.replace("16", "17")))
    with pytest.raises(AccessError) as caught:
        memo.prepare().run(0xA5, 0)
    assert caught.value.kind == "out_of_bounds"


def test_scratch_that_is_left_is_named(memo: Memo):
    memo.write(KERNEL.replace("atomicExch(count, 0u)", "atomicAdd(count, 0u)"))
    assert memo.prepare().run(0xA5, 0).trespass.startswith("scratch 'count' is not zero after the last launch")
