"""A run of every case has another input, so that what a kernel keeps from call to call shows, and only that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from own_recipe import NAME, change, in_use, written

from harness.contract.interval import Interval
from harness.device.emulator import EmulatorDevice
from harness.suite.suite import find_case, suite_of
from harness.verdict import Result, Verdict
from harness.verify.expected import expect, expect_on, make_inputs
from harness.verify.other_input import follow, other_inputs, smaller

CASE = f"{NAME}/default/48x80/normal/eager"
KEPT = '#include "scheduler/launch.cuh"'
AMAX = "fmaxf(amax, fabsf(x[i]));  // fmaxf drops NaN\n"
AT = "((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * kThreads + threadIdx.x"
# What each thread of a CTA does with the amax of its block, and with what it has written.
NEVER_RESET = f"  amax = __uint_as_float(max(atomicMax(&kept[{AT}], __float_as_uint(amax)), __float_as_uint(amax)));\n"
RESET = NEVER_RESET + f"  kept[{AT}] = 0;\n"
FIRST_CALL = f"  if (kept[{AT}] == 0) kept[{AT}] = __float_as_uint(amax);\n  amax = __uint_as_float(kept[{AT}]);\n"
SLOTS = (
    f"  const u32 turn = calls[{AT}]++ % 2, at = turn * 8192 + {AT};\n"
    "  amax = __uint_as_float(max(atomicMax(&kept[at], __float_as_uint(amax)), __float_as_uint(amax)));\n"
)
CLEARED_SLOTS = SLOTS + f"  kept[(1 - turn) * 8192 + {AT}] = 0;\n"
EPOCHS = f"  calls[{AT}] += 1;\n  kept[{AT}] ^= 1;\n"  # as of a barrier whose sense is reversed


def judged(folder: Path, steps: str) -> Result:
    written(folder)
    change(folder, ".cu", KEPT, f"{KEPT}\n__device__ unsigned kept[16384], calls[8192];", first=True)
    change(folder, ".cu", AMAX, AMAX + steps, first=True)
    with in_use(folder):
        from harness.verify.verify import verify

        return verify(find_case(CASE), EmulatorDevice())


@pytest.mark.parametrize("steps", ["", RESET, CLEARED_SLOTS, EPOCHS], ids=["none", "reset", "slots", "epochs"])
def test_variables_themselves_are_not_judged(tmp_path: Path, steps: str):
    result = judged(tmp_path / "own", steps)
    assert (result.verdict, result.reason) == (Verdict.PASS, "")


@pytest.mark.parametrize("steps", [NEVER_RESET, FIRST_CALL, SLOTS], ids=["never_reset", "first_call", "slots"])
def test_what_outlives_a_call_is_told(tmp_path: Path, steps: str):
    result = judged(tmp_path / "own", steps)
    print(result.story)
    assert result.verdict is Verdict.MISMATCH
    assert "state outlives the call" in result.reason
