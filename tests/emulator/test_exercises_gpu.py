"""The exercises on a Hopper GPU, where there is one: every byte is the model's, and so the emulator's.

On a machine with one: `python -m pytest tests/emulator/test_exercises_gpu.py`.
"""

from __future__ import annotations

import numpy as np
import on_gpu
import pytest
from exercises import ALL, Exercise

from harness.studies.museum.driver import device


@pytest.fixture(scope="module")
def arch() -> str:
    found = device()
    if found is None:
        pytest.skip("no GPU from Hopper on")
    return found


@pytest.mark.parametrize("each", [pytest.param(each, id=each.name) for each in ALL])
def test_the_gpu_writes_what_the_model_says(each: Exercise, arch: str) -> None:
    wanted, found = each.wanted(each.arrays), on_gpu.run(each, arch)
    for name, array in each.arrays.items():
        right = wanted.get(name, array)
        if right is None:
            continue
        wrong = np.flatnonzero(found[name] != right)
        shown = [f"[{i}] {found[name][i]:#x}, not {right[i]:#x}" for i in wrong[:4].tolist()]
        assert not wrong.size, f"{name} of {each.name}, {len(wrong)} bytes: {'; '.join(shown)}"


def test_every_exercise_compiles_to_machine_code() -> None:
    """Where there is no GPU, at least ptxas reads the assembly. A few stand for all, because it takes seconds."""
    for name in ("ring", "load.3d", "store.2d", "reduce.2d"):
        (each,) = (each for each in ALL if each.name == name)
        assert on_gpu.cubin(each.source, "sm_90a")
