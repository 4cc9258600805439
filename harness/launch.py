"""How a kernel is launched: its geometry as the `.cu` declares it, and its arguments by name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import TypeVar

from harness.case import Case
from harness.errors import CompileError
from harness.pipeline import Stage, stages
from harness.signature import KERNELS, CallParameter, Signature, read_signatures
from harness.tensor import round_up

Array = TypeVar("Array")

PADDED_TO = 128  # Schedule::tiles covers the extents rounded up to this, because scale matrices are padded to it
LARGEST_Y = 65535

Grid = tuple[int, int, int]


class Schedule(IntEnum):
    """How blocks of threads share the tiles of a case, number for number as in `kernels/tile.cuh`."""

    TILES = 0
    PERSISTENT = 1
    RESIDENT = 2
    PATCHES = 3


@dataclass(frozen=True)
class Launch:
    """The `Launch` constant of a kernel, field for field (see `kernels/tile.cuh`).

    tile_rows, tile_cols: elements one block of threads takes, in all or (persistent) at a time
    blocks_per_sm: that a multiprocessor holds at once, or more of them, or (patches) is given at least; 0 if it does
    not matter
    """

    tile_rows: int
    tile_cols: int
    threads: int
    blocks_per_sm: int
    schedule: int

    def grids(self, case: Case, multiprocessors: int) -> tuple[Grid, ...]:
        """`grid` first, then what other devices have in its place. A kernel writes the same bytes on all of them."""
        if self.schedule != Schedule.PATCHES:
            return (self.grid(case, multiprocessors),)
        by_patch = replace(self, schedule=Schedule.TILES)
        by_tile = replace(by_patch, tile_rows=PADDED_TO, tile_cols=PADDED_TO)
        patches, tiles = (launch.grid(case, multiprocessors) for launch in (by_patch, by_tile))
        enough = math.prod(patches) >= self.blocks_per_sm * multiprocessors
        return (patches, tiles) if enough else (tiles, patches)

    def grid(self, case: Case, multiprocessors: int) -> Grid:
        """Blocks of threads along x, y and z for the case's extents; never none, even for a group without elements.

        Tiles of a GEMM are of its output, whose extents nothing pads.
        """
        if self.schedule == Schedule.PATCHES:
            return self.grids(case, multiprocessors)[0]
        padded_to = 1 if case.n else PADDED_TO
        tiles = [self._tiles(*extents, padded_to) for extents in case.launched_parts or (case.launched,)]
        count = sum(math.prod(both) for both in tiles)
        if self.schedule == Schedule.PERSISTENT:
            if not case.tensors and not case.n:  # one tensor is walked element by element, and no padding
                count = -(-case.elements // (self.tile_rows * self.tile_cols))
            return max(1, min(count, self.blocks_per_sm * multiprocessors)), 1, 1
        if case.tensors:
            return max(1, count), 1, 1
        down, across = (max(1, count) for count in tiles[0])
        layers = -(-down // LARGEST_Y)
        return across, -(-down // layers), layers

    def _tiles(self, rows: int, cols: int, padded_to: int) -> tuple[int, int]:
        """How many tiles, down and across, cover a matrix and the padding of its scales."""
        return -(-round_up(rows, padded_to) // self.tile_rows), -(-round_up(cols, padded_to) // self.tile_cols)


def read_launch(ptx: str, symbol: str, kernel: str) -> Launch:
    """The initialiser of the constant `symbol` in PTX text; CompileError if it is not five integers."""
    found = re.search(rf"\.align 4 \.b8 {re.escape(symbol)}\[20\] = \{{([\d, ]+)\}};", ptx)
    if not found:
        raise CompileError(
            f"{kernel}: its file has no "
            f"`__constant__ Launch {kernel}_launch = {{rows, cols, threads, blocks_per_sm, schedule}};`"
        )
    # Trailing zero bytes are left out of an initialiser.
    content = bytes(int(byte) for byte in found[1].split(",")).ljust(20, b"\0")
    return Launch(*(int.from_bytes(content[i : i + 4], "little", signed=True) for i in range(0, 20, 4)))


@dataclass(frozen=True)
class Step:
    """One launch of a case: of a kernel, or, with the signature that stands for it, of a library.

    stage: whose launch it is, with the case that has its flags, extents and numbers
    scratch: name to bytes, zero before the first launch and after the last; names as the stage's arrays have them
    workspace: name to bytes, with any contents before the first launch and after the last
    together: True if its blocks wait for each other, so that all of them must run at once
    """

    signature: Signature
    stage: Stage
    scratch: Mapping[str, int] = field(default_factory=dict)
    workspace: Mapping[str, int] = field(default_factory=dict)
    together: bool = False
    library: bool = False

    @property
    def case(self) -> Case:
        """Whose flags, extents and numbers the launch has."""
        return self.stage.case


def plan(
    case: Case,
    kernels: Path = KERNELS,
    fits: Callable[[Step], bool] = lambda step: False,
    suites: Path | None = None,
) -> tuple[Step, ...]:
    """The launches of a case in order, as its suite lists them, from the `.cu` files in `kernels`.

    fits: whether the device runs all blocks of a launch at once; the launches that depend on it are chosen by that
    suites: the folder of the suites that list launches, if it is not this revision's; stages are this one's
    Raises CompileError if the suite names a kernel that the `.cu` does not have.
    """
    return tuple(step for stage in stages(case) if not stage.given for step in _steps(stage, kernels, fits, suites))


def _steps(stage: Stage, kernels: Path, fits: Callable[[Step], bool], suites: Path | None) -> Iterator[Step]:
    from harness.device.cublas import SIGNATURES
    from harness.suite import suite_of

    case = stage.case
    signatures = read_signatures(case.recipe, kernels)
    launches = (suite_of(case.recipe, suites) if suites else suite_of(case.recipe)).launches(case)
    for launch in launches:
        if launch.kernel is not None and launch.kernel not in signatures:
            raise CompileError(
                f"{case.where or case.recipe}: {case.recipe}.cu has no kernel {launch.kernel!r}; "
                f"it has {', '.join(signatures)}"
            )
    steps = [
        Step(
            SIGNATURES[launch.library] if launch.library else signatures[launch.name],
            stage,
            _sizes(launch.scratch, stage),
            _sizes(launch.workspace, stage),
            together=bool(launch.fits),
            library=launch.library is not None,
        )
        for launch in launches
    ]
    together = [step for step in steps if step.together]
    chosen = bool(together) and all(fits(step) for step in together)
    return (step for step, launch in zip(steps, launches, strict=True) if launch.fits in (None, chosen))


def _sizes(sizes: Mapping[str, int | str], stage: Stage) -> dict[str, int]:
    from harness.suite.sizes import size_of

    case = stage.case
    # A dense case is one tensor; what is a number of its own in the case counts. A GEMM's elements are its output's.
    extents = {"elements": math.prod(case.launched), "num_tensors": 1, **numbers(case)}
    return {stage.key(name): size_of(size, extents) for name, size in sizes.items()}


def own_memory(steps: Iterable[Step]) -> tuple[dict[str, int], dict[str, int]]:
    """Scratch and workspace of a case, name to bytes. Launches that use a name share it, at the largest size."""
    scratch: dict[str, int] = {}
    workspace: dict[str, int] = {}
    for step in steps:
        for whole, part in ((scratch, step.scratch), (workspace, step.workspace)):
            whole |= {name: max(size, whole.get(name, 0)) for name, size in part.items()}
    return scratch, workspace


def numbers(case: Case) -> dict[str, int | float]:
    """Every number a kernel may ask for by name: extents, random seed, and the flags of the case that are numbers.

    rows and cols of a group are those of its tensors as one matrix; `num_tensors` is there for a group only. A GEMM has
    M, K and N instead.
    """
    flags = {
        name: value
        for name, value in case.flags.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    extents = {"M": case.rows, "K": case.cols, "N": case.n} if case.n else {"rows": case.rows, "cols": case.cols}
    group = {"num_tensors": len(case.tensors)} if case.tensors else {}
    return {**extents, **group, "seed": case.seed, "offset": case.philox_offset, **flags}


def bind(step: Step, arrays: Mapping[str, Array]) -> Iterator[tuple[str, Array | int | float | None]]:
    """The type and value of each call parameter: an array, a number, or None for an absent optional pointer.

    arrays: all of the case, by the names that they have there
    A parameter of type float takes integers, too. Raises CompileError for a parameter whose name nothing goes by, and
    for a number with a fraction where an integer is asked for.
    """
    known = numbers(step.case)
    for parameter in step.signature.call:
        key = step.stage.key(parameter.name)
        if parameter.pointer and key in arrays:
            yield parameter.type, arrays[key]
        elif parameter.pointer and parameter.optional:
            yield parameter.type, None
        elif not parameter.pointer and parameter.name in known:
            yield parameter.type, _number(step, parameter, known[parameter.name])
        else:
            names = ", ".join(arrays if parameter.pointer else known)
            raise CompileError(
                f"{step.signature.where}: nothing binds to parameter {key!r} of "
                f"{step.signature.name}; there are {names}"
            )


def _number(step: Step, parameter: CallParameter, value: int | float) -> int | float:
    if parameter.type == "float":
        return float(value)
    if isinstance(value, float):
        raise CompileError(
            f"{step.signature.where}: parameter {parameter.name!r} of {step.signature.name} is of type "
            f"{parameter.type!r} and its flag has {value}; take it as float"
        )
    return value
