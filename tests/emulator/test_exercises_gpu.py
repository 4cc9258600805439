"""The exercises on a Hopper GPU, where there is one: every byte is the model's, and so the emulator's.

On a machine with one: `python -m pytest tests/emulator/test_exercises_gpu.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import on_gpu
import pytest
from exercises import ALL, READINGS, SLICED

from harness.studies.museum.driver import device


@pytest.fixture(scope="module")
def worker() -> Iterator[on_gpu.Worker]:
    if device() is None:
        pytest.skip("no GPU from Hopper on")
    found = on_gpu.Worker()
    yield found
    found.end()


@pytest.mark.parametrize("number", range(len(ALL)), ids=[each.name for each in ALL])
def test_the_gpu_writes_what_the_model_says(number: int, worker: on_gpu.Worker) -> None:
    each = ALL[number]
    if int((device() or "sm_0a")[3:-1]) < each.since:
        pytest.skip(f"needs sm_{each.since}")
    wanted, found = each.wanted(each.arrays), worker.run(number)
    for name, array in each.arrays.items():
        right = wanted.get(name, array)
        if right is None:
            continue
        wrong = np.flatnonzero(found[name] != right)
        shown = [f"[{i}] {found[name][i]:#x}, not {right[i]:#x}" for i in wrong[:4].tolist()]
        assert not wrong.size, f"{name} of {each.name}, {len(wrong)} bytes: {'; '.join(shown)}"


def slices_of(out: np.ndarray) -> list[int]:
    """The byte of global memory that each 16 bytes of shared memory came from."""
    return (2 * out.view(np.uint16).reshape(-1, 8)[:, 0].astype(np.int64)).tolist()


def as_read(strides: Sequence[int], slices_first: bool) -> list[int]:
    """The same by a reading; the slices of one place lie side by side in shared memory, or those of all places of the
    third dimension do."""
    slices, second, third = strides
    outer, inner = ((2, slices), (SLICED.box[1], second)) if slices_first else ((SLICED.box[1], second), (2, slices))
    return [z * third + i * outer[1] + j * inner[1]
            for z in range(SLICED.box[2]) for i in range(outer[0]) for j in range(inner[0])]  # fmt: skip


def readings(found: list[int]) -> list[str]:
    """The readings of two slices that give these places."""
    orders = {"slice by slice": True, "slices side by side": False}
    return [f"{name}, {order}" for name, strides in READINGS.items() for order, first in orders.items()
            if as_read(strides, first) == found]  # fmt: skip


def test_a_gpu_tells_how_slices_are_read(worker: on_gpu.Worker, capsys: pytest.CaptureFixture[str]) -> None:
    found = slices_of(worker.run(len(ALL))["out"])
    with capsys.disabled():
        print(f"\nplaces of 16 bytes of two slices: {found}\nread as: {readings(found) or 'none of the readings'}")
    assert readings(found)


@pytest.mark.parametrize("slices_first", [True, False])
@pytest.mark.parametrize("name", READINGS)
def test_each_reading_of_slices_is_told_from_the_others(name: str, slices_first: bool) -> None:
    found = as_read(READINGS[name], slices_first)
    out = np.concatenate([np.arange(place // 2, place // 2 + 8, dtype=np.uint16) for place in found]).view(np.uint8)
    assert len(out) == SLICED.bytes
    assert [each.startswith(name) for each in readings(slices_of(out))] == [True]


def test_an_exercise_that_fails_names_itself_and_spoils_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no GPU, each fails in a process of its own."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    worker = on_gpu.Worker()
    for number in (0, 1):
        with pytest.raises(RuntimeError, match=rf"^{ALL[number].name}: "):
            worker.run(number)
    worker.end()


def test_every_exercise_compiles_to_machine_code() -> None:
    """Where there is no GPU, at least ptxas reads the assembly. A few stand for all, because it takes seconds."""
    for name in ("ring", "load.3d", "store.2d", "reduce.2d"):
        (each,) = (each for each in ALL if each.name == name)
        assert on_gpu.cubin(each.source, "sm_90a")
