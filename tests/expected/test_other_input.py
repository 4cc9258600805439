"""A run of every case has another input, so that what a kernel keeps from call to call shows, and only that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from own_recipe import NAME, change, in_use, written

from harness.device.device import Outcome
from harness.device.emulator import EmulatedProgram, EmulatorDevice
from harness.subjects.audit.verify import audit
from harness.subjects.card.card import read_card
from harness.subjects.card.device import with_card
from harness.subjects.card.verify import verify_card
from harness.subjects.device import with_subject
from harness.subjects.process import Child
from harness.subjects.subject import start
from harness.suite.suite import find_case
from harness.verdict import Result, Verdict
from harness.verify.verify import verify

OUTLIVES = "on a second input with a smaller amax at the same addresses, and are right in a fresh"

# A recipe of a user

CASE = f"{NAME}/default/48x80/normal/eager"
HEADER = '#include "scheduler/launch.cuh"'
AMAX = "fmaxf(amax, fabsf(x[i]));  // fmaxf drops NaN\n"
HERE = "((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * kThreads + threadIdx.x"
# What each thread does with the amax of its block; `kept` has an entry for each thread of the grid.
GROWS = "amax = __uint_as_float(max(atomicMax(&kept[at], __float_as_uint(amax)), __float_as_uint(amax)));"
NEVER_RESET = f"  const u32 at = {HERE};\n  {GROWS}\n"
RESET = f"{NEVER_RESET}  kept[at] = 0;\n"
FIRST_CALL = (
    f"  const u32 at = {HERE};\n  if (kept[at] == 0) kept[at] = __float_as_uint(amax);\n"
    "  amax = __uint_as_float(kept[at]);\n"
)
IN_TURNS = f"  const u32 turn = calls[{HERE}]++ % 2, at = turn * 8192 + {HERE};\n  {GROWS}\n"
CLEARED_IN_TURNS = f"{IN_TURNS}  kept[8192 - turn * 8192 + {HERE}] = 0;\n"
EPOCHS = f"  calls[{HERE}] += 1;\n  kept[{HERE}] ^= 1;\n"  # as of a barrier whose sense is reversed


def own(folder: Path, steps: str, *cases: str) -> list[Result]:
    written(folder)
    change(folder, ".cu", HEADER, f"{HEADER}\n__device__ unsigned kept[16384], calls[8192];", first=True)
    change(folder, ".cu", AMAX, AMAX + steps, first=True)
    with in_use(folder):
        return [verify(find_case(case), EmulatorDevice()) for case in cases or (CASE,)]


@pytest.mark.parametrize("steps", ["", RESET, CLEARED_IN_TURNS, EPOCHS], ids=["none", "reset", "in_turns", "epochs"])
def test_variables_themselves_are_not_judged(tmp_path: Path, steps: str):
    (result,) = own(tmp_path / "own", steps)
    assert (result.verdict, result.reason) == (Verdict.PASS, "")


@pytest.mark.parametrize("steps", [NEVER_RESET, FIRST_CALL, IN_TURNS], ids=["never_reset", "first_call", "in_turns"])
def test_what_outlives_a_call_is_told(tmp_path: Path, steps: str):
    (result,) = own(tmp_path / "own", steps)
    assert result.verdict is Verdict.MISMATCH
    assert result.reason.endswith(f"{OUTLIVES} module: state outlives the call")
    lines = dict(line.split(maxsplit=1) for line in result.story.splitlines())
    assert lines["input"] == "a second input with a smaller amax at the same addresses; right on the case's own"
    assert lines["cause"] == "state outlives the call: the same input is right in a fresh module"
    assert lines["first"].startswith("[0, 0]") and {"field", "expected", "actual"} <= set(lines)
    assert "trace" not in lines  # which would show the case's own input
    assert max(map(len, result.story.splitlines()[:-1])) <= 110


def test_what_an_earlier_case_left_is_told_as_well(tmp_path: Path):
    """The second case's own input has smaller amaxes than the first case left."""
    _, result = own(tmp_path / "own", NEVER_RESET, CASE, CASE.replace("normal", "zero_rows"))
    assert result.verdict is Verdict.MISMATCH
    assert result.reason.endswith("right in a fresh module: state outlives the call")


@pytest.mark.parametrize(
    ("steps", "verdict", "reason"),
    [
        ("  if (amax > 0.0f && amax < 0.01f) amax += 1.0f;\n", Verdict.MISMATCH, "on a second input with"),
        ("  if (amax > 0.0f && amax < 0.4f) return;\n", Verdict.UNWRITTEN, "were never written on a second input"),
    ],
    ids=["wrong", "unwritten"],
)
def test_what_is_wrong_on_the_other_input_alone_is_no_state(tmp_path: Path, steps: str, verdict: Verdict, reason: str):
    (result,) = own(tmp_path / "own", steps.replace("0.01f", "0.4f"))
    assert result.verdict is verdict, result.story
    assert reason in result.reason and "state" not in result.reason


# A card and a function

AMAX_CASE = "per_tensor/stage=amax/48x80/normal/eager"
KERNELS = """
__device__ unsigned kept, calls;
__device__ void grow(const unsigned short* in, int n) {
  for (int i = threadIdx.x; i < n; i += 128) atomicMax(&kept, (in[i] & 0x7fffu) << 16);
  __syncthreads();
}
extern "C" __global__ void never_reset(const unsigned short* in, float* row, float* col, int n) {
  grow(in, n);
  if (threadIdx.x == 0) row[0] = col[0] = __uint_as_float(atomicMax(&kept, 0u));
}
extern "C" __global__ void reset(const unsigned short* in, float* row, float* col, int n) {
  grow(in, n);
  if (threadIdx.x == 0) row[0] = col[0] = __uint_as_float(atomicExch(&kept, 0u));
  if (threadIdx.x == 0) calls += 1;
}
extern "C" __global__ void first_call(const unsigned short* in, float* row, float* col, int n) {
  if (calls == 0) grow(in, n);
  __syncthreads();
  if (threadIdx.x == 0) row[0] = col[0] = __uint_as_float(atomicMax(&kept, 0u));
  if (threadIdx.x == 0) calls = 1;
}
"""
CARD = """\
code: own.cu
recipe: per_tensor
flags: {stage: amax, outputs: both, dtype: bf16, rht: false}
launches:
  - kernel: KERNEL
    block: 128
    arguments: [array: input, array: rowwise_amax, array: columnwise_amax, i32: rows * cols]
"""
FUNCTIONS = """
import numpy as np

kept = [0.0]

def amax(inputs):
    return float(np.abs(inputs["input"].astype(np.float32)).max())

def put(outputs, value):
    for array in outputs.values():
        array[...] = value

def reset(case, inputs, outputs):
    kept[0] = amax(inputs)
    put(outputs, kept[0])

def never_reset(case, inputs, outputs):
    kept[0] = max(kept[0], amax(inputs), 1e-30 * len(outputs))
    put(outputs, kept[0])

def slowly(case, inputs, outputs):
    kept[0] = max(0.5 * kept[0], amax(inputs))
    put(outputs, kept[0])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.cu").write_text(KERNELS)
    (tmp_path / "keeps.py").write_text(FUNCTIONS)
    return tmp_path


@pytest.mark.parametrize("kernel", ["never_reset", "first_call", "reset"])
def test_a_card(folder: Path, kernel: str):
    (folder / "card.yaml").write_text(CARD.replace("KERNEL", kernel))
    result = verify_card(find_case(AMAX_CASE), with_card(EmulatorDevice(), read_card("card.yaml")))
    if kernel == "reset":
        assert (result.verdict, result.reason) == (Verdict.PASS, "")
    else:
        assert result.verdict is Verdict.MISMATCH
        assert result.reason.endswith(f"{OUTLIVES} module: state outlives the call")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["never_reset", "slowly", "reset"])
def test_a_function(folder: Path, name: str):
    subject = start(f"keeps:{name}", Child(f"keeps:{name}"))
    result = audit(find_case(AMAX_CASE), with_subject(EmulatorDevice(), subject))
    subject.child.end()
    if name == "reset":
        assert (result.verdict, result.reason) == (Verdict.PASS, "")
    elif name == "never_reset":  # an amax alone is then the answer for the first data
        assert result.offence == "caches_by_pointer"
    else:
        assert result.verdict is Verdict.MISMATCH
        assert result.reason.endswith(f"{OUTLIVES} process: state outlives the call")
        assert "cause     state outlives the call: the same data are right in a fresh process" in result.story


# Orders and approximations


@pytest.mark.parametrize("order", [0, 1, 2])
def test_an_order_that_changes_bytes_is_nondeterministic(order: int, monkeypatch: pytest.MonkeyPatch):
    runs = EmulatedProgram.run

    def run(self: EmulatedProgram, poison: int, repeat: int, nearest: bool = False) -> Outcome:
        found = runs(self, poison, repeat, nearest)
        if repeat == order:
            found.outputs["rowwise_amax"][0] ^= 1
        return replace(found, approximated=("ex2.approx.f32 at a.cu:1",) if repeat else ())

    monkeypatch.setattr(EmulatedProgram, "run", run)
    result = verify(find_case(AMAX_CASE), EmulatorDevice())
    assert result.verdict is Verdict.NONDETERMINISTIC
    assert "because of an approximate instruction: PTX leaves the last bits of ex2.approx.f32" in result.reason
