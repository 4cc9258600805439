"""A CUDA device through CuPy: cubins of our own making, guard-banded buffers, eager launches and captured graphs."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from filelock import FileLock

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.interval import Demand, Interval, inside
from harness.device import cublas
from harness.device.device import Outcome
from harness.device.memory import Guarded, Memory, upload
from harness.device.power import power_limit_w
from harness.errors import DeviceUnavailable, LaunchError, NotCapable
from harness.files import KERNELS
from harness.jit.compile import Compiled, compile_kernel, nvrtc_version
from harness.jit.geometry import Grid
from harness.suite.launch_plan import Step, bind, own_memory, plan

BYTES_PER_ELEMENT = 16  # of a case, with the oracle's temporaries
LARGE = 8  # a case that needs more than one part in LARGE of the GPU's memory has the GPU alone

# The machine's and no kernel's: cudaErrorDevicesUnavailable, NoDevice, InvalidDevice, ECCUncorrectable, SystemNotReady.
_GONE = {46, 100, 101, 214, 802}

_SCALARS = {"int": np.int32, "u32": np.uint32, "u64": np.uint64, "i64": np.int64, "float": np.float32}


class CudaDevice:
    """The GPU with this index, running the `.cu` files of the folder `kernels`.

    suites: the folder of the suites that list their launches, if it is not this revision's

    Raises DeviceUnavailable if CuPy, torch with CUDA, or the GPU is missing.
    """

    name = "cuda"
    modes = frozenset({"eager", "graph"})
    subject_label = ""

    def __init__(self, index: int = 0, kernels: Path = KERNELS, suites: Path | None = None):
        self.kernels, self.suites = kernels, suites
        try:
            import cupy
            import torch
        except ImportError as error:
            raise DeviceUnavailable(f"device 'cuda' needs CuPy and torch: {error}") from None
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise DeviceUnavailable(f"device 'cuda' was asked for, and CUDA sees no GPU: {error}") from None
        if index >= count:
            raise DeviceUnavailable(f"GPU {index} was asked for; CUDA sees {count}")
        if not torch.cuda.is_available():
            raise DeviceUnavailable(f"torch {torch.__version__} is a CPU build; the torch oracle must see the GPU")
        cupy.cuda.Device(index).use()
        torch.cuda.set_device(index)
        self.index = index
        self.properties = cupy.cuda.runtime.getDeviceProperties(index)
        self.multiprocessors = self.properties["multiProcessorCount"]
        self.targets = (native_target(self.properties["major"], self.properties["minor"]),)

    def identity(self) -> dict[str, str]:
        """GPU, power limit, driver, CUDA, compiler and L2: what two measurements must share to be compared."""
        import cupy

        return {
            "device": "cuda",
            "gpu": self.properties["name"].decode(),
            "multiprocessors": str(self.multiprocessors),
            "l2_bytes": str(self.properties["l2CacheSize"]),
            "power_limit_w": power_limit_w(cupy.cuda.Device(self.index).pci_bus_id),
            "driver": str(cupy.cuda.runtime.driverGetVersion()),
            "runtime": str(cupy.cuda.runtime.runtimeGetVersion()),
            "nvrtc": nvrtc_version(),
            "cupy": cupy.__version__,
        }

    def admit(self, case: Case) -> None:
        """A tensor must fit the memory several times over: pristine copies and the oracle's temporaries."""
        total = self.properties["totalGlobalMem"]
        if needed(case) > total:
            raise NotCapable(f"capability: needs about {needed(case) >> 30} GiB of GPU memory, there are {total >> 30}")

    @contextmanager
    def reserve(self, case: Case) -> Iterator[None]:
        """Run one large case at a time on this GPU, over all processes."""
        import cupy

        if needed(case) * LARGE < self.properties["totalGlobalMem"]:
            yield
            return
        with FileLock(Path(tempfile.gettempdir(), f"nvfp4-harness-gpu{self.index}.lock")):
            self.release()
            free, _ = cupy.cuda.runtime.memGetInfo()
            if needed(case) > free:
                raise NotCapable(
                    f"capability: needs about {needed(case) >> 30} GiB of GPU memory, {free >> 30} GiB are free"
                )
            try:
                yield
            finally:
                self.release()

    def release(self) -> None:
        """Return the memory that CuPy and torch hold in their pools."""
        import cupy
        import torch

        cupy.get_default_memory_pool().free_all_blocks()
        torch.cuda.empty_cache()

    def lost(self) -> str:
        """The error that CUDA answers every call with once a kernel broke the context, or an empty string."""
        import cupy

        try:
            cupy.cuda.runtime.deviceSynchronize()
            cupy.cuda.runtime.memGetInfo()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            if error.status in _GONE:
                raise DeviceUnavailable(f"GPU {self.index} is there no more: {error}") from None
            return str(error)
        return ""

    def prepare(
        self, case: Case, target: str, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]
    ) -> CudaProgram:
        """Compile the case's kernels to cubins, load them and upload the inputs."""
        return CudaProgram(self, case, target, Memory.upload(inputs, fields))

    def accepts(self, actual, expected: Demand) -> bool:
        """Whether an output on the GPU holds exactly the expected bytes, or nothing outside the interval."""
        if isinstance(expected, Interval):
            # bf16 as well, which CuPy has not: the order of numbers is that of integers.
            ends = (upload(end) for end in (expected.low, expected.high))
            return bool(inside(actual, *ends, expected.dtype.itemsize).all())
        return bool((actual == upload(expected)).all())

    def to_host(self, array, field: Field) -> np.ndarray:
        return array.get().view(field.dtype).reshape(field.shape)


def needed(case: Case) -> int:
    """Bytes of GPU memory that a case and its oracle take at most, about."""
    return BYTES_PER_ELEMENT * case.elements


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


class CudaProgram:
    """One case on the GPU, launched eagerly or replayed from a graph that was captured once."""

    def __init__(self, device: CudaDevice, case: Case, target: str, memory: Memory):
        import cupy

        self.case = case
        self.memory = memory

        def compiled(step: Step) -> Compiled:
            return compile_kernel(step.signature, step.case.flags, target)

        def fits(step: Step) -> bool:
            kernel = compiled(step)
            blocks = math.prod(kernel.launch.grid(step.case.problem, device.multiprocessors))
            return blocks <= device.multiprocessors * blocks_per_sm(kernel)

        self.steps = plan(case, device.kernels, fits, device.suites)
        own = [step for step in self.steps if not step.library]
        self.kernels = tuple(map(compiled, own))
        choices = [
            k.launch.grids(step.case.problem, device.multiprocessors) for step, k in zip(own, self.kernels, strict=True)
        ]
        self.grids = tuple(grids[0] for grids in choices)
        self.libraries = tuple(f"{s.signature.name} of {cublas.version()}" for s in self.steps if s.library)
        scratch, workspace = own_memory(self.steps)
        self.scratch = {name: cupy.zeros(size, cupy.uint8) for name, size in scratch.items()}
        self.workspace = {name: Guarded(Field((size,), "uint8")) for name, size in workspace.items()}
        self.calls = tuple(self._calls(self.grids))
        others = tuple(grids[-1] for grids in choices)
        self.other_calls = tuple(self._calls(others)) if others != self.grids else self.calls
        self.side_stream = cupy.cuda.Stream(non_blocking=True)
        self.graph = None
        # A non-blocking stream would not wait for the copies above.
        cupy.cuda.get_current_stream().synchronize()

    def launch(self, repeat: int = 0) -> None:
        """Queue every launch on the current stream, on odd repeats with the grids that another GPU might have.

        Allocates and waits for nothing.
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

    def poison(self, byte: int) -> None:
        """Fill every output and workspace and its guard bands on the current stream."""
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
        """Copies of the outputs and what was written beside them, once the stream is done. poison: as in `run`"""
        outputs = {name: output.payload.copy() for name, output in self.memory.outputs.items()}
        return Outcome(outputs, self._trespass(poison))

    def capture(self):
        """The launches as a CUDA graph."""
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
        arrays = {**self.memory.inputs, **{name: it.payload for name, it in guarded.items()}, **self.scratch}
        kernels = iter(zip(self.kernels, grids, strict=True))
        for step in self.steps:
            bound = list(bind(step, arrays))
            if step.library:
                given = (value if isinstance(value, int) else value.data.ptr for _, value in bound)
                yield partial(cublas.call_of(step.signature.name), *given)
                continue
            kernel, grid = next(kernels)
            arguments = tuple(
                np.uint64(0) if value is None else value if not isinstance(value, int | float) else _scalar(kind, value)
                for kind, value in bound
            )
            yield partial(load(kernel, step.together), grid, (kernel.launch.threads,), arguments)

    def _trespass(self, poison: int) -> str:
        sentence = self.memory.trespass(poison)
        if sentence:
            return sentence
        for name, guarded in self.workspace.items():
            sentence = guarded.trespass(poison)
            if sentence:
                return f"workspace {name!r}: {sentence}"
        for name, value in self.scratch.items():
            if bool(value.any()):
                return f"scratch {name!r} is not zero after the last launch, so a second run would differ"
        return ""


@lru_cache(maxsize=512)
def _module(cubin_path: str, together: bool):
    import cupy

    return cupy.RawModule(path=cubin_path, enable_cooperative_groups=together)


def load(kernel: Compiled, together: bool = False):
    """The kernel's function from its cubin. together: launched so that all blocks run at once, or refused"""
    return _module(kernel.cubin_path, together).get_function(kernel.symbol)


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
