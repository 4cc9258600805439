"""One case on a CUDA device: its launches, made eagerly or as a captured graph."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.device import cublas
from harness.device.cuda_code import (
    blocks_per_sm,
    bytes_at,
    cuda_errors,
    encoded,
    load,
    load_foreign,
    set_variable,
)
from harness.device.device import Outcome
from harness.device.driver_launch import DriverLaunch
from harness.device.launches import BoundLaunch, Constant, Launches, LibraryCall, Zeroed, recipe_launches
from harness.device.memory import CaseMemory, Guarded, equal_bytes, kept_or_uploaded
from harness.errors import LaunchError

_RENEWALS = count(1)
_SCALARS = {"int": np.int32, "u32": np.uint32, "u64": np.uint64, "i64": np.int64, "float": np.float32}


class Gpu(Protocol):
    """The part of `CudaDevice` that a program needs."""

    kernels: Path
    suites: Path | None
    multiprocessors: int


def launches_of(device: Gpu, case: Case, target: str) -> Launches:
    """The launches of our kernels on a GPU, compiled, without memory. Raises CompileError."""
    found = recipe_launches(case, target, device.kernels, device.multiprocessors, blocks_per_sm, device.suites)
    called = (step.signature.name for step in found.steps if step.library)
    return replace(found, libraries=tuple(f"{name} of {cublas.version()}" for name in called))


class CudaProgram:
    """One case on the GPU, launched eagerly or replayed from a graph that was captured once."""

    renewal = 0  # of its modules; 0 for those that all programs share
    variables: Sequence[tuple[Constant, int, bytes]] = ()  # that were set, their addresses, and with what

    def __init__(self, launches: Launches, case: Case, memory: CaseMemory, wait: bool = True):
        """wait: whether to wait for the current stream, which filled the memory; if not, launch on that stream"""
        import cupy

        self.launches, self.case = launches, case
        self.steps, self.kernels, self.libraries = launches.steps, launches.kernels, launches.libraries
        self.grids, self.early = launches.grids, launches.early
        self.side_stream = cupy.cuda.Stream(non_blocking=True)
        self._place(memory)
        if wait:
            # A non-blocking stream would not wait for the copies above.
            cupy.cuda.get_current_stream().synchronize()

    def on(self, memories: Sequence[CaseMemory]) -> list[CudaProgram]:
        """A copy with the launches on other memories; nothing is planned or compiled again."""
        import cupy

        others = [copy.copy(self) for _ in memories]
        for other, memory in zip(others, memories, strict=True):
            other._place(memory)
        cupy.cuda.get_current_stream().synchronize()
        return others

    def _place(self, memory: CaseMemory) -> None:
        import cupy

        self.memory = memory
        self.scratch = {name: cupy.zeros(size, cupy.uint8) for name, size in self.launches.scratch.items()}
        self.workspace = {name: Guarded(Field((size,), "uint8")) for name, size in self.launches.workspace.items()}
        self._bind()

    def share(self, other: CudaProgram) -> None:
        """Use the scratch and workspaces of a program on the same memory where they are as large as this one's.

        The two may then never run at the same time.
        """
        own, its = self.launches, other.launches
        self.scratch |= {name: other.scratch[name] for name, _ in own.scratch.items() & its.scratch.items()}
        self.workspace |= {name: other.workspace[name] for name, _ in own.workspace.items() & its.workspace.items()}
        self._bind()

    def _bind(self) -> None:
        guarded = {**self.memory.outputs, **self.workspace}
        arrays = {**self.memory.inputs, **{name: it.allocation for name, it in guarded.items()}, **self.scratch}
        self.arrays = CudaArrays(arrays)
        if self.launches.constants:
            self.renewal = next(_RENEWALS)  # a module of its own, because another program may set other values
        self.calls = tuple(self._call(each, 0) for each in self.launches.bound)
        others = any(len(each.grids) > 1 for each in self.launches.of_kernels)
        self.other_calls = tuple(self._call(each, -1) for each in self.launches.bound) if others else self.calls
        self.variables = [self._set(constant) for constant in self.launches.constants]
        self.graph = None

    def _set(self, constant: Constant) -> tuple[Constant, int, bytes]:
        """Set a variable of the code that the kernels share; return its address and its bytes, too."""
        content = constant.content(self.arrays)
        image = self.launches.of_kernels[0].code.image
        return constant, set_variable(image, constant, content, self.renewal), content

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
        self.memory.put(self.memory.pristine | {name: kept_or_uploaded(value) for name, value in inputs.items()})
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
        for call, each in zip(self.calls, self.launches.bound, strict=True):
            if isinstance(each, LibraryCall):
                call()

    def _call(self, each: BoundLaunch | LibraryCall | Zeroed, number: int) -> Callable[[], None]:
        """A launch with its arguments in place. number: of its grid"""
        if isinstance(each, Zeroed):
            array = self.arrays.arrays[each.array]
            return lambda: array.data.memset_async(0, array.nbytes, import_module("cupy").cuda.get_current_stream())
        bound = list(each.arguments(self.arrays))
        if isinstance(each, LibraryCall):
            given = (value if isinstance(value, int) else value.data.ptr for _, value in bound)
            return partial(cublas.call_of(each.step.signature.name, str(each.step.flags.dtype)), *given)
        arguments, grid = tuple(_argument(kind, value) for kind, value in bound), each.grids[number]
        if not each.step:
            return DriverLaunch(load_foreign(each, arguments, self.renewal), each, grid, arguments)
        function = load(each.code, each.together, self.renewal)
        if each.early:
            return DriverLaunch(function.kernel.ptr, each, grid, arguments)
        return partial(function, grid, each.block[:1], arguments)

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
                return self.launches.not_zero(name)
        changed = (each for each, address, held in self.variables if bytes_at(address, len(held)) != held)
        return next((each.changed for each in changed), "")


class CudaArrays:
    """The arrays of a program, by the names that arguments use, and arrays of pointers, kept alive."""

    def __init__(self, arrays: Mapping[str, Any]):
        self.arrays, self._tables = arrays, []
        self.tensor_map = encoded

    def address(self, name: str) -> int:
        return int(self.arrays[name].data.ptr)

    def table(self, addresses: bytes) -> int:
        self._tables.append(import_module("cupy").asarray(np.frombuffer(addresses, np.uint8)))
        return int(self._tables[-1].data.ptr)


def _argument(kind: str, value: Any) -> Any:
    """A parameter as bytes, a NumPy scalar, or an array."""
    if value is None:
        return np.uint64(0)
    return _scalar(kind, value) if isinstance(value, int | float) else value


def _scalar(kind: str, value: int | float):
    try:
        return _SCALARS[kind](value)
    except OverflowError:
        raise LaunchError(f"{value} does not fit a parameter of type {kind!r}; take it as i64") from None
    except KeyError:
        raise LaunchError(f"no way to pass a parameter of type {kind!r}; use one of {', '.join(_SCALARS)}") from None
