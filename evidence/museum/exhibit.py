"""Read an exhibit, or any kernel with its launches: the first lines, each `// key: value`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from harness.errors import UsageError
from ptx_emulator.tensor_map import BITS, TensorMap

FOLDER = Path(__file__).parent / "exhibits"
BYTES = "bytes"  # the check for an exhibit that writes wrong bytes


@dataclass(frozen=True)
class Array:
    """An array of an exhibit.

    content: `ramp`, its `inverse`, `zero`, `nan`, or `unwritten`, which must be written before it is read
    """

    name: str
    size: int
    content: str


@dataclass(frozen=True)
class Map:
    """A tensor map of a whole array. array: its name; kind: type of the elements; extents, box: innermost first"""

    name: str
    array: str
    kind: str
    extents: tuple[int, ...]
    box: tuple[int, ...]


@dataclass(frozen=True)
class ExhibitLaunch:
    """A launch. early: it may begin before the previous one has ended"""

    kernel: str
    grid: int
    block: int
    arguments: tuple[str, ...]
    early: bool


@dataclass(frozen=True)
class Kernels:
    """A source with its launches. same: pairs of arrays that must be equal at the end"""

    name: str
    source: str
    story: str
    arch: str
    arrays: Mapping[str, Array]
    maps: Mapping[str, Map]
    launches: Sequence[ExhibitLaunch]
    same: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Exhibit(Kernels):
    """An exhibit. thread: where people met the bug; check: a kind of Fault, or BYTES"""

    thread: str
    check: str


Of = TypeVar("Of", bound=Kernels)


@cache
def headers() -> dict[str, str]:
    """The headers that exhibits may include, by name."""
    return {path.name: path.read_text() for path in sorted(FOLDER.glob("*.cuh"))}


@cache
def exhibits() -> tuple[Exhibit, ...]:
    """All exhibits, by name. Raises UsageError for one that cannot be read."""
    return tuple(read(path) for path in sorted(FOLDER.glob("*.cu")))


def read(path: Path) -> Exhibit:
    """One exhibit. Raises UsageError for a line that is missing or not understood."""
    return _read(path, Exhibit, ("thread", "check"))


def read_kernels(path: Path) -> Kernels:
    """A source that is no exhibit. Raises UsageError for a line that is missing or not understood."""
    return _read(path, Kernels, ())


def _read(path: Path, kind: type[Of], more: Sequence[str]) -> Of:
    """more: what a source of this kind says besides its kernels"""
    said = _said(path)
    try:
        return kind(**_of_kernels(path, said), **{name: said[name][0] for name in more})
    except (KeyError, ValueError) as error:
        lines = ", ".join((*more, "story", "array"))
        sentence = f"it begins with the lines {lines} and launch; {type(error).__name__}: {error}"
        raise UsageError(f"{path}: {sentence}") from None


def _said(path: Path) -> dict[str, list[str]]:
    said: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        key, colon, value = line.removeprefix("// ").partition(": ")
        if not line.startswith("// ") or not colon:
            break
        said.setdefault(key, []).append(value.strip())
    return said


def _of_kernels(path: Path, said: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    return {
        "name": path.stem,
        "source": path.read_text(),
        "story": " ".join(said["story"]),
        "arch": said.get("arch", ["sm_90a"])[0],
        "arrays": {array.name: array for array in map(_array, said["array"])},
        "maps": {each.name: each for each in map(_map, said.get("map", []))},
        "launches": [_launch(each) for each in said["launch"]],
        "same": [tuple(each.split()) for each in said.get("same", [])],
    }


def _array(text: str) -> Array:
    name, size, content = text.split()
    return Array(name, int(size), content)


def _map(text: str) -> Map:
    name, array, kind, extents, box = text.split()
    return Map(name, array, kind, *(tuple(map(int, each.split("x"))) for each in (extents, box)))


def _launch(text: str) -> ExhibitLaunch:
    kernel, grid, block, *arguments = text.split()
    early = "early" in arguments
    return ExhibitLaunch(kernel, int(grid), int(block), tuple(each for each in arguments if each != "early"), early)


OPTIONS = ("-std=c++17", "-ftz=false", "-fmad=false", "-lineinfo")


def map_of(found: Map, address: int) -> TensorMap:
    """The tensor map of a dense array."""
    width = BITS[found.kind] // 8
    strides = tuple(width * math.prod(found.extents[: i + 1]) for i in range(len(found.extents) - 1))
    return TensorMap(found.kind, address, found.extents, strides, found.box, (1,) * len(found.box))


def contents(array: Array) -> np.ndarray:
    """The bytes of an array before the launches."""
    data = np.zeros(array.size, np.uint8)
    if array.content in ("ramp", "inverse"):
        data[:] = np.arange(array.size, dtype=np.int64) % 251
        data ^= 0xFF if array.content == "inverse" else 0
    elif array.content in ("nan", "unwritten"):
        data[:] = 0xFF
    return data
