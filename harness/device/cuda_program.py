"""One case on a CUDA device: kernels loaded from cubins, launched eagerly or as a captured graph."""

from __future__ import annotations

import copy
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Protocol

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.device import cublas
from harness.device.device import Outcome
from harness.device.early_launch import EarlyLaunch
from harness.device.equal_bytes import equal_bytes
from harness.device.launches import begins_early
from harness.device.memory import Guarded, Memory, kept_or_uploaded
from harness.errors import LaunchError
from harness.jit.compile import Compiled, compile_kernel
from harness.jit.geometry import Grid
from harness.suite.launch_plan import Step, bind, own_memory, plan

_RENEWALS = count(1)
_SCALARS = {"int": np.int32, "u32": np.uint32, "u64": np.uint64, "i64": np.int64, "float": np.float32}


class Gpu(Protocol):
    """The part of `CudaDevice` that a program needs."""

    kernels: Path
    suites: Path | None
    multiprocessors: int


@dataclass(frozen=True)
class Launches:
    """The launches of a case on a GPU, compiled, without memory.

    other_grids: grids that another GPU might use; early: numbers of the kernels that begin early
    libraries: name and version of each that is called
    """

    steps: tuple[Step, ...]
    kernels: tuple[Compiled, ...]
    grids: tuple[Grid, ...]
    other_grids: tuple[Grid, ...]
    early: tuple[int, ...]
    libraries: tuple[str, ...]


def launches_of(device: Gpu, case: Case, target: str) -> Launches:
    """Plan and compile. Raises CompileError."""

    def compiled(step: Step) -> Compiled:
        return compile_kernel(step.signature, step.flags, target)

    def fits(step: Step) -> bool:
        kernel = compiled(step)
        blocks = math.prod(kernel.launch.grid(step.case.problem, device.multiprocessors))
        return blocks <= device.multiprocessors * blocks_per_sm(kernel)

    steps = plan(case, device.kernels, fits, device.suites)
    own = [step for step in steps if not step.library]
    kernels = tuple(map(compiled, own))
    choices = [
        kernel.launch.grids(step.case.problem, device.multiprocessors)
        for step, kernel in zip(own, kernels, strict=True)
    ]
    return Launches(
        steps,
        kernels,
        tuple(grids[0] for grids in choices),
        tuple(grids[-1] for grids in choices),
        tuple(number for number, step in enumerate(own) if step.early and begins_early(target)),
        tuple(f"{step.signature.name} of {cublas.version()}" for step in steps if step.library),
    )


class CudaProgram:
    """One case on the GPU, launched eagerly or replayed from a graph that was captured once."""

    renewal = 0  # of its modules; 0 for those that all programs share

    def __init__(self, device: Gpu, case: Case, target: str, memory: Memory, wait: bool = True):
        """wait: whether to wait for the current stream, which filled the memory; if not, launch on that stream"""
        import cupy

        self.case = case
        planned = launches_of(device, case, target)
        self.steps, self.kernels, self.libraries = planned.steps, planned.kernels, planned.libraries
        self.grids, self.other_grids, self.early = planned.grids, planned.other_grids, planned.early
        self.side_stream = cupy.cuda.Stream(non_blocking=True)
        self._place(memory)
        if wait:
            # A non-blocking stream would not wait for the copies above.
            cupy.cuda.get_current_stream().synchronize()

    def on(self, memories: Sequence[Memory]) -> list[CudaProgram]:
        """The same launches on other memories; nothing is planned or compiled again."""
        import cupy

        others = [copy.copy(self) for _ in memories]
        for other, memory in zip(others, memories, strict=True):
            other._place(memory)
        cupy.cuda.get_current_stream().synchronize()
        return others

    def _place(self, memory: Memory) -> None:
        import cupy

        self.memory = memory
        scratch, workspace = own_memory(self.steps)
        self.scratch = {name: cupy.zeros(size, cupy.uint8) for name, size in scratch.items()}
        self.workspace = {name: Guarded(Field((size,), "uint8")) for name, size in workspace.items()}
        self._bind()

    def share(self, other: CudaProgram) -> None:
        """Use the scratch and workspaces of a program on the same memory where they are as large as this one's.

        The two may then never run at the same time.
        """
        (scratch, workspace), (its_scratch, its_workspace) = own_memory(self.steps), own_memory(other.steps)
        self.scratch |= {name: other.scratch[name] for name, _ in scratch.items() & its_scratch.items()}
        self.workspace |= {name: other.workspace[name] for name, _ in workspace.items() & its_workspace.items()}
        self._bind()

    def _bind(self) -> None:
        self.calls = tuple(self._calls(self.grids))
        others = self.other_grids != self.grids
        self.other_calls = tuple(self._calls(self.other_grids)) if others else self.calls
        self.graph = None

    def launch(self, repeat: int = 0) -> None:
        """Queue every launch on the current stream, on odd repeats with grids of another GPU. Does not allocate or
        wait.
        """
        for call in self.other_calls if repeat % 2 else self.calls:
            call()

    def run(self, poison: int, repeat: int) -> Outcome:
        """Poison, launch or replay, wait, check guards.

        Eager launches go to the default stream on even repeats and to a non-blocking one on odd repeats.
        """
        import cupy

        stream = cupy.cuda.Stream.null if repeat % 2 == 0 and self.case.mode == "eager" else self.side_stream
        with cuda_errors(self.case.id):
            with stream:
                self.poison(poison)
                self.enqueue(repeat)
            stream.synchronize()
        return self.outcome(poison)

    def resplit(self, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> None:
        self.memory.put({name: kept_or_uploaded(value) for name, value in inputs.items()})
        self.memory.refit(fields)
        # A non-blocking stream would not wait for these copies.
        import_module("cupy").cuda.get_current_stream().synchronize()

    def renew(self) -> bool:
        self.graph, self.renewal = None, next(_RENEWALS)
        self._bind()
        return True

    def poison(self, byte: int) -> None:
        for guarded in (*self.memory.outputs.values(), *self.workspace.values()):
            guarded.poison(byte)

    def enqueue(self, repeat: int = 0) -> None:
        """Queue the launches, or the graph that the first call captures, on the current stream; wait for nothing."""
        import cupy

        with cuda_errors(self.case.id):
            if self.case.mode != "graph":
                self.launch(repeat)
                return
            if self.graph is None:
                self.graph = self.capture()
            self.graph.launch(cupy.cuda.get_current_stream())

    def outcome(self, poison: int) -> Outcome:
        """Copies of the outputs, and any writes outside of them, once the stream is done. poison: as in `run`"""
        outputs = {name: output.payload.copy() for name, output in self.memory.outputs.items()}
        found = Outcome(outputs, self._trespass(poison))
        # The next run poisons the outputs on another stream, which does not wait for these copies.
        import_module("cupy").cuda.get_current_stream().synchronize()
        return found

    def capture(self):
        with self.side_stream:
            self.load_libraries()
            self.side_stream.begin_capture()
            self.launch()
            return self.side_stream.end_capture()

    def load_libraries(self) -> None:
        """Call each library once, because its machine code is loaded at the first call and not during a capture."""
        for call, step in zip(self.calls, self.steps, strict=True):
            if step.library:
                call()

    def _calls(self, grids: tuple[Grid, ...]) -> Iterator[Callable[[], None]]:
        """Every launch with its arguments. grids: of our own kernels"""
        guarded = {**self.memory.outputs, **self.workspace}
        arrays = {**self.memory.inputs, **{name: it.allocation for name, it in guarded.items()}, **self.scratch}
        kernels = iter(zip(self.kernels, grids, range(len(grids)), strict=True))
        for step in self.steps:
            bound = list(bind(step, arrays))
            if step.library:
                given = (value if isinstance(value, int) else value.data.ptr for _, value in bound)
                yield partial(cublas.call_of(step.signature.name, str(step.flags.dtype)), *given)
                continue
            kernel, grid, number = next(kernels)
            arguments = tuple(
                np.uint64(0) if value is None else value if not isinstance(value, int | float) else _scalar(kind, value)
                for kind, value in bound
            )
            function = load(kernel, step.together, self.renewal)
            if number in self.early:
                yield EarlyLaunch(function.kernel.ptr, kernel.expression, grid, kernel.launch.threads, arguments)
            else:
                yield partial(function, grid, (kernel.launch.threads,), arguments)

    def _trespass(self, poison: int) -> str:
        sentence = self.memory.trespass(poison)
        if sentence:
            return sentence
        for name, guarded in self.workspace.items():
            sentence = guarded.trespass(poison)
            if sentence:
                return f"workspace {name!r}: {sentence}"
        for name, value in self.scratch.items():
            if not equal_bytes(value, 0):
                return f"scratch {name!r} is not zero after the last launch, so a second run would differ"
        return ""


@contextmanager
def cuda_errors(where: str) -> Iterator[None]:
    """Raise LaunchError, which says `where`, for an error that CUDA reports."""
    import cupy

    try:
        yield
    except (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError) as error:
        raise LaunchError(f"{where}: {error}") from None


def native_target(major: int, minor: int) -> str:
    """The most specific target of a compute capability: `sm_90a` for 9.0, `sm_80` for 8.0."""
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


@lru_cache(maxsize=512)
def _module(cubin_path: str, together: bool):
    import cupy

    return cupy.RawModule(path=cubin_path, enable_cooperative_groups=together)


def load(kernel: Compiled, together: bool = False, renewal: int = 0):
    """The kernel's function from its cubin.

    together: launch so that all blocks run at once, or fail
    renewal: number of a module with variables of its own; 0 for the one that all programs share
    """
    path = _copied(kernel.cubin_path, renewal) if renewal else kernel.cubin_path
    return _module(path, together).get_function(kernel.symbol)


@lru_cache(maxsize=512)
def _copied(cubin_path: str, renewal: int) -> str:
    """The path of a copy, which lasts as long as the process, because CuPy loads a path once."""
    return shutil.copy(cubin_path, tempfile.mkdtemp(prefix=f"{renewal}-", dir=_copies().name))


@lru_cache(maxsize=1)
def _copies() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="nvfp4-modules-")


def blocks_per_sm(kernel: Compiled) -> int:
    """How many blocks of a kernel the driver says a multiprocessor holds at once."""
    import cupy

    return cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(load(kernel).kernel.ptr, kernel.launch.threads, 0)


def _scalar(kind: str, value: int | float):
    try:
        return _SCALARS[kind](value)
    except OverflowError:
        raise LaunchError(f"{value} does not fit a parameter of type {kind!r}; take it as i64") from None
    except KeyError:
        raise LaunchError(f"no way to pass a parameter of type {kind!r}; use one of {', '.join(_SCALARS)}") from None
