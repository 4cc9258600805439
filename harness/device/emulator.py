"""The CPU device: the kernels' own PTX, for two architectures, on the NumPy emulator."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.interval import Demand, Interval, inside
from harness.device.device import Outcome
from harness.device.launches import BoundLaunch, Code, Constant, Launches, LibraryCall, Zeroed, recipe_launches
from harness.device.memory import flat
from harness.device.played import PLAYED, Touched, play
from harness.errors import AccessError, CompileError, LaunchError, NotCapable, NotEmulated, SuiteError
from harness.files import KERNELS
from harness.ground.strictness import strict
from harness.jit.cache import cache_folder
from harness.jit.compile import ptx_of
from harness.jit.nvrtc import nvrtc_version
from harness.suite.launch_plan import plan
from ptx_emulator.counters import Counters
from ptx_emulator.errors import Fault, NotOnTarget, RefusedLaunch
from ptx_emulator.errors import LaunchError as Trapped
from ptx_emulator.errors import NotEmulated as LacksInstruction
from ptx_emulator.launches import Module, launch
from ptx_emulator.machine.watch import Watch
from ptx_emulator.memory import Buffer
from ptx_emulator.schedule import Schedule, order_of_run
from ptx_emulator.stream import Stream
from ptx_emulator.tensor_map import TensorMap
from ptx_emulator.unset import Unset

LARGEST = 1 << 20  # elements; beyond, a case takes minutes
MOST_TERMS = 1 << 24  # products of a GEMM
MOST_PLAYED = 1 << 26  # of one that a library makes, which NumPy plays
LARGEST_BUFFER = 1 << 30  # bytes of an array


class EmulatorDevice:
    """Executes sm_90a and sm_100a code.

    kernels: the folder of the `.cu` files; multiprocessors: what a persistent grid is sized for
    also: names of what it reports though GPUs bear it (`ptx_emulator.races.borne`), whatever `--strict` says
    """

    name = "emulator"
    targets = ("sm_90a", "sm_100a")
    modes = frozenset({"eager"})
    subject_label = ""

    def __init__(self, kernels: Path = KERNELS, multiprocessors: int = 4, also: Collection[str] = ()):
        self.kernels, self.also = kernels, also
        self.multiprocessors = multiprocessors

    def identity(self) -> dict[str, str]:
        return {"device": "emulator", "processor": platform.machine(), "nvrtc": nvrtc_version()}

    def admit(self, case: Case) -> None:
        if case.mode not in self.modes:
            raise NotCapable(f"capability: the emulator has no CUDA graphs; mode {case.mode!r} needs a GPU")
        steps = plan(case, self.kernels)
        for step in steps:
            if step.library and step.signature.name not in PLAYED:
                raise NotCapable(f"capability: {step.signature.name} is machine code of a library, which needs a GPU")
        if case.elements > LARGEST:
            raise NotCapable(f"capability: more than {LARGEST} elements need a GPU")
        most = MOST_PLAYED if any(step.library for step in steps) else MOST_TERMS
        if case.terms > most:
            raise NotCapable(f"capability: a product of more than {most} terms needs a GPU")

    def reserve(self, case: Case, needs: int = 0, alone: bool = False) -> AbstractContextManager[None]:
        return nullcontext()

    def lost(self) -> str:
        """Return an empty string: a fault of an emulated kernel leaves nothing behind."""
        return ""

    def prepare(
        self, case: Case, target: str, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]
    ) -> EmulatedProgram:
        launches = self.launches(case, target)
        seed = case.seed + self.targets.index(target)  # each target has a drawn order of its own
        return EmulatedProgram(launches, case, inputs, fields, seed, self.also)

    def launches(self, case: Case, target: str) -> Launches:
        """The launches of our kernels. Raises CompileError."""
        count = self.multiprocessors
        return recipe_launches(case, ptx_of(target), self.kernels, count, lambda kernel: kernel.launch.blocks_per_sm)

    def accepts(self, actual: np.ndarray, expected: Demand) -> bool:
        if isinstance(expected, Interval):
            return bool(inside(actual, flat(expected.low), flat(expected.high), expected.dtype.itemsize).all())
        return actual.tobytes() == expected.tobytes()

    def to_host(self, array: np.ndarray, field: Field) -> np.ndarray:
        return array.view(field.dtype).reshape(field.shape)


class EmulatedProgram:
    """The launches of one case. Bounds need no guard bands here: the emulator checks every access.

    seed: of the order that is drawn, the case's by default; also: what is reported whatever `--strict` says
    """

    def __init__(
        self, launches: Launches, case: Case, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field],
        seed: int | None = None, also: Collection[str] = (),
    ):  # fmt: skip
        self.launches, self.case, self.inputs, self.fields, self.also = launches, case, inputs, fields, also
        self.kernels = launches.kernels
        self.seed = case.seed if seed is None else seed
        self.unwritten: Mapping[str, np.ndarray] = {}  # by input: mask of the bytes that its producer does not define
        self.watch: Mapping[BoundLaunch, tuple[int, int]] = {}  # the numbers of block and thread to follow
        self.watched: list[tuple[BoundLaunch, Watch]] = []
        self.variables: list[tuple[Constant, Buffer, bytes]] = []  # that were set, with what
        self.lane_instructions = 0  # in all runs, for measuring the emulator

    def resplit(self, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> None:
        self.inputs, self.fields = {**self.inputs, **inputs}, fields

    @property
    def played(self) -> tuple[str, ...]:
        """The calls of libraries that are played, each once."""
        calls = (each.step.signature.name for each in self.launches.bound if isinstance(each, LibraryCall))
        return tuple(dict.fromkeys(calls))

    @property
    def unset(self) -> list[Unset]:
        """The variables that the kernels read and nothing sets."""
        found = (unset for each in self.launches.of_kernels for unset in module_of(each.code).unset(each.entry))
        named = {constant.name for constant in self.launches.constants}
        return [each for each in dict.fromkeys(found) if each.declared.split()[-1] not in named]

    def renew(self) -> bool:
        modules = [module_of(each.code) for each in self.launches.of_kernels]
        module_of.cache_clear()
        return any(module.keeps for module in modules)

    def order(self, repeat: int, nearest: bool = False) -> Schedule:
        return order_of_run(repeat, self.seed, nearest)

    def run(self, poison: int, repeat: int, nearest: bool = False) -> Outcome:
        """Every launch in order on poisoned outputs; AccessError for what a sanitizer would report.

        Grids that differ between devices of different sizes alternate. Blocks and warps run in ascending order, in
        descending order, and in one drawn from the case's seed.
        """
        memory = EmulatedMemory()
        for name, value in self.inputs.items():
            memory.put(name, flat(value).copy(), writable=False)
        for name, mask in self.unwritten.items():
            memory.arrays[name].written = (~mask).astype(np.uint8)
            memory.arrays[name].missing = "which the producer does not define"
        filled = {name: field.allocated for name, field in self.fields.items()} | dict(self.launches.workspace)
        for name, size in filled.items():
            memory.put(name, _filled(name, size, poison), initialised=False)
        for name, size in self.launches.scratch.items():
            memory.put(name, _filled(name, size, 0))
        stream = Stream() if any(each.early for each in self.launches.of_kernels) else None
        approximated = self._launch_all(memory, repeat, stream, nearest)
        written = {name: memory.arrays[name].data for name in self.fields}
        outputs = {name: written[name][: field.nbytes] for name, field in self.fields.items()}
        for name in self.launches.scratch:
            if memory.arrays[name].data.any():
                return Outcome(outputs, self.launches.not_zero(name))
        for constant, variable, content in self.variables:
            if variable.data.tobytes() != content:
                return Outcome(outputs, constant.changed)
        for name, field in self.fields.items():
            touched = np.count_nonzero(written[name][field.nbytes :] != poison)
            if touched:
                return Outcome(outputs, f"output {name!r}: {touched} bytes of its slack were written")
        return Outcome(outputs, approximated=approximated)

    def _launch_all(
        self, memory: EmulatedMemory, repeat: int, stream: Stream | None, nearest: bool = False
    ) -> tuple[str, ...]:
        """Returns the approximate instructions."""
        approximated: dict[str, None] = {}
        self._set_constants(memory)
        for each in self.launches.bound:
            if isinstance(each, Zeroed):
                memory.clear(each.array)
                continue
            if isinstance(each, LibraryCall):
                touched = self._play(each, memory)
                if stream:
                    stream.outside(each.step.signature.name, touched.read, touched.written)
                continue
            approximated |= dict.fromkeys(self._launch(each, memory, repeat, stream, nearest).approximated)
        if stream:
            with self._in_words(self.launches.of_kernels[-1]):
                stream.end()
        return tuple(approximated)

    def _set_constants(self, memory: EmulatedMemory) -> None:
        self.variables = []
        for code in dict.fromkeys(each.code for each in self.launches.of_kernels):
            for constant in self.launches.constants:
                variable, content = module_of(code).variables[constant.name], constant.content(memory)
                variable.data[:] = np.frombuffer(content, np.uint8)
                self.variables.append((constant, variable, content))

    def _play(self, call: LibraryCall, memory: EmulatedMemory) -> Touched:
        return play(call, memory)

    def _launch(
        self, each: BoundLaunch, memory: EmulatedMemory, repeat: int, stream: Stream | None, nearest: bool
    ) -> Counters:
        """Run one launch. stream: given if some launches are early"""
        watch = Watch(*self.watch[each]) if each in self.watch else None
        if watch:
            self.watched.append((each, watch))
        arguments = [0 if value is None else value for _, value in each.arguments(memory)]
        with self._in_words(each):
            only = self._only(each, repeat)
            counters = (partial(stream.launch, early=each.early) if stream else launch)(
                module_of(each.code), each.entry, grid=each.grids[repeat % len(each.grids)], block=each.block,
                args=arguments,
                dynamic_shared=each.shared,
                cluster=each.cluster,
                cooperative=each.together,
                memory=list(memory.arrays.values()) if each.by_address else (),
                schedule=self.order(repeat, nearest),
                count_traffic=False,
                watch=watch,
                only=only,
                strict=strict() or self.also,
                sanitize=not only,  # a shadow of terabytes is too large, and the case itself shows races
                title=each.title,
            )  # fmt: skip
        self.lane_instructions += counters.lane_instructions
        return counters

    def _only(self, each: BoundLaunch, repeat: int) -> tuple[int, ...]:
        """The numbers of the clusters that a launch runs; none for all."""
        return ()

    @contextmanager
    def _in_words(self, each: BoundLaunch) -> Iterator[None]:
        """Raise the harness's errors for the emulator's. each: the launch that is run"""
        try:
            yield
        except Fault as error:
            raise AccessError(error.kind, error.where, error.sentence) from None
        except RefusedLaunch as error:
            if each.where:  # the extents and arguments are its author's
                raise SuiteError(each.where, str(error)) from None
            raise LaunchError(str(error)) from None
        except NotOnTarget as error:
            raise CompileError(_located(each, error)) from None
        except Trapped as error:
            raise LaunchError(_located(each, error)) from None
        except LacksInstruction as error:
            raise NotEmulated(_located(each, error)) from None


class EmulatedMemory:
    """The arrays of one run, and arrays of pointers that its arguments need."""

    def __init__(self) -> None:
        self.arrays: dict[str, Buffer] = {}

    def put(self, name: str, content: np.ndarray, writable: bool = True, initialised: bool = True) -> None:
        self.arrays[name] = Buffer(name, content, writable=writable, initialised=initialised)

    def clear(self, name: str) -> None:
        self.arrays[name].data.fill(0)
        if self.arrays[name].written is not None:
            self.arrays[name].written.fill(1)

    def address(self, name: str) -> int:
        return self.arrays[name].address

    def table(self, addresses: bytes) -> int:
        name = f"pointers {sum(each.startswith('pointers ') for each in self.arrays)}"
        self.put(name, np.frombuffer(addresses, np.uint8).copy(), writable=False)
        return self.address(name)

    def tensor_map(self, tensor: TensorMap) -> bytes:
        return tensor.encode()


def _filled(name: str, size: int, byte: int) -> np.ndarray:
    if size > LARGEST_BUFFER:
        raise NotEmulated(f"'{name}' has {size} bytes; the emulator allows {LARGEST_BUFFER}")
    return np.full(size, byte, np.uint8)


def _located(each: BoundLaunch, error: Exception) -> str:
    """The error's text behind the place of the launch, if that has one."""
    return f"{each.where}: {error}" if each.where else str(error)


@lru_cache(maxsize=256)
def module_of(code: Code) -> Module:
    return Module(code.ptx, cache_folder() / "emulator", code.file)
