"""The exercises on a Hopper GPU, where there is one: every byte is the model's, and so the emulator's.

On a machine with one: `python -m pytest tests/ptx_emulator/test_exercises_gpu.py -m gpu`. With OUT=folder, all arrays
of an exercise that differs are left there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import on_gpu
import pytest
from arithmetic_exercises import ARITHMETIC
from exercises import ALL, BEFORE, Exercise

from evidence.museum.driver import device


@pytest.fixture(scope="module")
def worker() -> Iterator[on_gpu.Worker]:
    found = on_gpu.Worker()
    yield found
    found.end()


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*(each.name for each in ALL), *ARITHMETIC])
def test_the_gpu_writes_what_the_model_says(name: str, worker: on_gpu.Worker) -> None:
    each = on_gpu.named(name)
    if int((device() or "sm_0a")[3:-1]) < each.since:
        pytest.skip(f"needs sm_{each.since}")
    wanted, found = each.wanted(each.arrays), worker.run(each.name)
    for name, array in each.arrays.items():
        right = wanted.get(name, array)
        if right is None:
            continue
        wrong = np.flatnonzero(found[name] != right)
        if wrong.size and "OUT" in os.environ:
            np.savez_compressed(Path(os.environ["OUT"]) / f"{each.name}.npz", **found)
        shown = [f"[{i}] {found[name][i]:#x}, not {right[i]:#x}" for i in wrong[:4].tolist()]
        assert not wrong.size, f"{name} of {each.name}, {len(wrong)} bytes: {'; '.join(shown)}"


@pytest.mark.gpu
@pytest.mark.parametrize("each", BEFORE, ids=[each.name for each in BEFORE])
def test_a_gpu_ends_a_store_before_the_tensor(each: Exercise, worker: on_gpu.Worker) -> None:
    with pytest.raises(RuntimeError, match="CUDA_ERROR_ILLEGAL_INSTRUCTION"):
        worker.run(each.name)


def test_an_exercise_that_fails_names_itself_and_spoils_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no GPU, each fails in a process of its own."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    worker = on_gpu.Worker()
    for each in ALL[:2]:
        with pytest.raises(RuntimeError, match=rf"^{each.name}: "):
            worker.run(each.name)
    worker.end()


def test_every_exercise_compiles_to_machine_code() -> None:
    """Where there is no GPU, at least ptxas reads the assembly. A few stand for all, because it takes seconds."""
    for name in ("ring", "load.3d", "store.2d", "reduce.2d"):
        (each,) = (each for each in ALL if each.name == name)
        assert on_gpu.cubin(each.source, "sm_90a")
