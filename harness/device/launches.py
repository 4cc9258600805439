"""What a case launches, whoever wrote the kernels: a list that one program for each kind of device runs.

A recipe is bound here, by its suite and the names of its kernels' parameters; a card by `harness.subjects.card`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from harness.contract.case import Case
from harness.jit.compile import Compiled, compile_kernel
from harness.jit.geometry import Grid
from harness.suite.launch_plan import Step, bind, plan, scratch_and_workspace
from ptx_emulator.tensor_map import TensorMap


class Code(Protocol):
    """The code of a kernel: PTX for the emulator, `Compiled.cubin_path` or `image` for a GPU.

    file: whose line a place is that has no line of a source
    """

    @property
    def ptx(self) -> str: ...

    @property
    def file(self) -> str: ...


class Arrays(Protocol):
    """The arrays of one run on a device. arrays: by the names that arguments use"""

    arrays: Mapping[str, Any]

    def address(self, name: str) -> int:
        """The address of an array's first byte."""

    def table(self, addresses: bytes) -> int:
        """Put an array of pointers into memory, and return its address."""

    def tensor_map(self, tensor: TensorMap) -> bytes:
        """Encode a tensor map as 128 bytes. Raises MalformedMap."""


# The type and value of each parameter: an array, a number, bytes, or None for an absent pointer.
Arguments = Callable[[Arrays], Iterator[tuple[str, Any]]]


@dataclass(frozen=True, eq=False)
class BoundLaunch:
    """One launch of a kernel.

    entry: the kernel's name in its code; name: in sentences; grids: the device's own first, then others that must give
    the same bytes; block: threads; arguments: given the arrays of a run
    cluster: CTAs, if the kernel does not say it itself; shared: bytes of dynamic shared memory
    early: whether it may begin before the launch ahead has ended
    together: whether all its CTAs must run at once, as in a cooperative launch
    by_address: whether arguments are bytes that may hold the address of any array
    step: of a recipe; where: file and line of somebody else's launch
    """

    code: Code
    entry: str
    name: str
    grids: tuple[Grid, ...]
    block: Grid
    arguments: Arguments
    cluster: Grid | None = None
    shared: int = 0
    early: bool = False
    together: bool = False
    by_address: bool = False
    step: Step | None = None
    where: str = ""

    @property
    def title(self) -> str:
        """The kernel as a sentence names it: one of a recipe behind the architecture that it is compiled for."""
        return f"{self.code.arch} {self.name}" if self.step else self.name


@dataclass(frozen=True, eq=False)
class LibraryCall:
    """A call of a library. Only a GPU runs it; the emulator has `played` in its place."""

    step: Step
    arguments: Arguments


@dataclass(frozen=True)
class Zeroed:
    """An array that is set to zero, as by cudaMemsetAsync."""

    array: str


class Constant(NamedTuple):
    """A variable of the code that a host sets. where: file and line; content: its bytes, given the arrays of a run"""

    name: str
    where: str
    content: Callable[[Arrays], bytes]

    @property
    def changed(self) -> str:
        """The sentence for one that kernels have written."""
        return f"'{self.name}', set at {self.where}, has changed after the last launch, so a second run would differ"


@dataclass(frozen=True, eq=False)
class Launches:
    """The launches of a case, in order.

    scratch, workspace: name to bytes; scratch is zero before the first launch and must be after the last, a workspace
    has any contents; left: what is said of scratch that is not zero
    libraries: name and version of each that is called; constants: of the code, set before the launches
    """

    bound: tuple[BoundLaunch | LibraryCall | Zeroed, ...]
    scratch: Mapping[str, int] = field(default_factory=dict)
    workspace: Mapping[str, int] = field(default_factory=dict)
    left: str = ", so a second run would differ"
    libraries: tuple[str, ...] = ()
    constants: tuple[Constant, ...] = ()

    @property
    def of_kernels(self) -> list[BoundLaunch]:
        return [each for each in self.bound if isinstance(each, BoundLaunch)]

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of a recipe, library calls among them; none of a card."""
        return tuple(each.step for each in self.bound if not isinstance(each, Zeroed) and each.step)

    @property
    def kernels(self) -> tuple[Compiled, ...]:
        """Our own kernels."""
        return tuple(each.code for each in self.of_kernels if each.step)

    @property
    def grids(self) -> tuple[Grid, ...]:
        """The grid of each of `kernels` on this device."""
        return tuple(each.grids[0] for each in self.of_kernels if each.step)

    @property
    def early(self) -> tuple[int, ...]:
        """The numbers of the `kernels` that begin early."""
        return tuple(number for number, each in enumerate(self.of_kernels) if each.step and each.early)

    def not_zero(self, name: str) -> str:
        return f"scratch {name!r} is not zero after the last launch{self.left}"


def recipe_launches(
    case: Case,
    arch: str,
    kernels: Path,
    multiprocessors: int,
    held: Callable[[Compiled], int],
    suites: Path | None = None,
) -> Launches:
    """The launches of a recipe's kernels, compiled. Raises CompileError, and RecipeError as `plan` does.

    arch: as for `compile_kernel`; kernels, suites: as for `plan`; held: CTAs of a kernel that an SM holds at once
    """

    def compiled(step: Step) -> Compiled:
        return compile_kernel(step.signature, step.flags, arch)

    def fits(step: Step) -> bool:
        kernel = compiled(step)
        ctas = math.prod(kernel.launch.grid(step.case.problem, multiprocessors))
        return ctas <= held(kernel) * multiprocessors

    def bound(step: Step) -> BoundLaunch | LibraryCall:
        def arguments(arrays: Arrays) -> Iterator[tuple[str, Any]]:
            return bind(step, arrays.arrays)

        if step.library:
            return LibraryCall(step, arguments)
        kernel = compiled(step)
        return BoundLaunch(
            kernel, kernel.symbol, kernel.expression, kernel.launch.grids(step.case.problem, multiprocessors),
            (kernel.launch.threads, 1, 1), arguments, early=step.early and begins_early(arch), together=step.together,
            step=step,
        )  # fmt: skip

    steps = plan(case, kernels, fits, suites)
    return Launches(tuple(map(bound, steps)), *scratch_and_workspace(steps))


def begins_early(arch: str) -> bool:
    """Whether a launch may begin before the previous one has ended; never before sm_90."""
    return int(re.findall(r"\d+", arch)[0]) >= 90
