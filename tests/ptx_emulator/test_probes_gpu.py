"""Copies that no public text explains: what a Hopper GPU does with each, byte for byte, is what the emulator does.

`OUT=folder python -m pytest tests/ptx_emulator/test_probes_gpu.py -m gpu` leaves probes.txt and probes.npz there, to be
read.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import on_gpu
import pytest
from probes import PROBES, ROOM, UNTOUCHED, Probe, counted, numbered, places, told
from test_exercises import emulated

from ptx_emulator.errors import Fault, NotEmulated
from ptx_emulator.tensor_map import MalformedMap


def _asked(worker: on_gpu.Worker, each: Probe) -> tuple[dict[str, np.ndarray], str]:
    try:
        found = worker.run(each.exercise.name)
    except RuntimeError as error:
        return {}, f"{error}: {each.exercise.arguments[0]}"
    return found, told(each, found)


@pytest.mark.gpu
def test_a_gpu_tells_what_each_copy_did(tmp_path: Path) -> None:
    folder, worker = Path(os.environ.get("OUT", str(tmp_path))), on_gpu.Worker()
    arrays: dict[str, np.ndarray] = {}
    lines = []
    for each in PROBES:
        found, said = _asked(worker, each)
        lines.append(said)
        arrays |= {f"{each.name}/{name}": array for name, array in found.items()}
    worker.end()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "probes.txt").write_text("\n".join(lines) + "\n")
    np.savez_compressed(folder / "probes.npz", **arrays)
    assert arrays["load.plain/out"].view(np.uint16)[0] == 1 + (960 + 160 + 16) // 2
    assert [each.name for each in PROBES if _differs(each, arrays)] == []


def _differs(each: Probe, arrays: dict[str, np.ndarray]) -> bool:
    """Whether the emulator does something else; what a GPU refuses, it must refuse, too."""
    on_gpu = {name: arrays[f"{each.name}/{name}"] for name in each.exercise.arrays if f"{each.name}/{name}" in arrays}
    try:
        here = emulated(each.exercise)
    except (Fault, MalformedMap, NotEmulated):
        return bool(on_gpu)
    return not on_gpu or any((here[name] != array).any() for name, array in on_gpu.items())


def test_places_are_told_by_their_numbers() -> None:
    out = np.full(ROOM // 2, UNTOUCHED, np.uint16)
    source = numbered().view(np.uint16)
    out[:40], out[40:48], out[100:108] = source[120:160], 0, source[120:128]
    assert places(out.view(np.uint8)) == ["0..79 from 240..319", "80..95 filled", "200..215 from 240..255"]


@pytest.mark.parametrize(("left", "found"), [(7952, 240), (8192, 0), (8193, None)])
def test_counted_bytes_are_told_by_those_that_were_left(left: int, found: int | None) -> None:
    assert counted(np.array([left], np.uint64).view(np.uint8)) == found


@pytest.mark.slow
def test_a_load_on_the_emulator_counts_the_bytes_of_its_box() -> None:
    found = emulated(PROBES[0].exercise)
    assert counted(found["left"]) == 16 * 4 * 3 * 2


@pytest.mark.parametrize("name", ["store.plain", "reduce.end.8.2"])
def test_a_probe_on_the_emulator_is_told_as_its_map_says(name: str) -> None:
    (each,) = (each for each in PROBES if each.name == name)
    said = told(each, emulated(each.exercise))
    if name == "store.plain":
        assert "1136..1167 from 0..31" in said
    else:
        changed = [4 * (24 * row + 8 + i) for row in range(2, 6) for i in range(12)]
        assert [int(part.split(":")[0]) for part in said.split("changed: ")[1].split(", ")] == changed


def test_every_probe_compiles_to_machine_code() -> None:
    for each in (PROBES[0], PROBES[-1]):
        assert on_gpu.cubin(each.exercise.source, "sm_90a")
