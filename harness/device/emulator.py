"""The CPU device: the kernels' own PTX, for two architectures, on the NumPy emulator."""

from __future__ import annotations

import math
import platform
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.interval import Demand, Interval, inside
from harness.device.device import Outcome
from harness.errors import AccessError, CompileError, LaunchError, NotCapable, NotEmulated
from harness.files import KERNELS
from harness.ground.strictness import strict
from harness.jit.cache import cache_folder
from harness.jit.compile import Compiled, compile_kernel, ptx_of
from harness.jit.nvrtc import nvrtc_version
from harness.suite.launch_plan import Step, bind, own_memory, plan
from ptx_emulator.counters import Counters
from ptx_emulator.errors import Fault, NotOnTarget
from ptx_emulator.errors import LaunchError as LaunchRefused
from ptx_emulator.errors import NotEmulated as LacksInstruction
from ptx_emulator.launches import Module, launch
from ptx_emulator.machine.watch import Watch
from ptx_emulator.memory import Buffer
from ptx_emulator.schedule import Schedule, order_of_run
from ptx_emulator.stream import Stream
from ptx_emulator.unset import Unset

LARGEST = 1 << 20  # elements; beyond, a case takes minutes
MOST_TERMS = 1 << 24  # products of a GEMM


class EmulatorDevice:
    """Executes sm_90a and sm_100a code.

    kernels: the folder of the `.cu` files; multiprocessors: what a persistent grid is sized for
    also: names of what it reports though GPUs bear it (`races.borne`), whatever `--strict` says
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
        for step in plan(case, self.kernels):
            if step.library:
                raise NotCapable(f"capability: {step.signature.name} is machine code of a library, which needs a GPU")
        if case.elements > LARGEST:
            raise NotCapable(f"capability: more than {LARGEST} elements need a GPU")
        if case.terms > MOST_TERMS:
            raise NotCapable(f"capability: a product of more than {MOST_TERMS} terms needs a GPU")

    def reserve(self, case: Case, needs: int = 0, alone: bool = False) -> AbstractContextManager[None]:
        return nullcontext()

    def lost(self) -> str:
        """Return an empty string: a fault of an emulated kernel leaves nothing behind."""
        return ""

    def prepare(
        self, case: Case, target: str, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]
    ) -> EmulatedProgram:
        return EmulatedProgram(self, case, target, inputs, fields)

    def accepts(self, actual: np.ndarray, expected: Demand) -> bool:
        if isinstance(expected, Interval):
            low, high = (np.ascontiguousarray(end).reshape(-1).view(np.uint8) for end in (expected.low, expected.high))
            return bool(inside(actual, low, high, expected.dtype.itemsize).all())
        return actual.tobytes() == expected.tobytes()

    def to_host(self, array: np.ndarray, field: Field) -> np.ndarray:
        return array.view(field.dtype).reshape(field.shape)


class EmulatedProgram:
    """One case on one target. Bounds need no guard bands here: the emulator checks every access."""

    def __init__(
        self,
        device: EmulatorDevice,
        case: Case,
        target: str,
        inputs: Mapping[str, np.ndarray],
        fields: Mapping[str, Field],
    ):
        self.device, self.case, self.inputs, self.fields = device, case, inputs, fields
        self.seed = case.seed + device.targets.index(target)  # seed of a drawn order, different for each target
        self.unwritten: Mapping[str, np.ndarray] = {}  # by input: mask of the bytes that must not be read
        self.watch: tuple[int, int] | None = None  # block and thread to follow
        self.watched: list[tuple[Step, Compiled, Watch]] = []
        self.lane_instructions = 0  # in all runs, for measuring the emulator

        def compiled(step: Step) -> Compiled:
            return compile_kernel(step.signature, step.flags, ptx_of(target))

        def fits(step: Step) -> bool:
            launch = compiled(step).launch
            blocks = math.prod(launch.grid(step.case.problem, device.multiprocessors))
            return blocks <= launch.blocks_per_sm * device.multiprocessors

        self.steps = plan(case, device.kernels, fits)
        self.kernels = tuple(map(compiled, self.steps))

    def resplit(self, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> None:
        self.inputs, self.fields = inputs, fields

    @property
    def unset(self) -> list[Unset]:
        """The variables that the kernels read and nothing sets."""
        return list(dict.fromkeys(each for one in self.kernels for each in _module(one).unset(one.symbol)))

    def renew(self) -> bool:
        modules = [_module(compiled) for compiled in self.kernels]
        _module.cache_clear()
        return any(module.keeps for module in modules)

    def order(self, repeat: int, nearest: bool = False) -> Schedule:
        return order_of_run(repeat, self.seed, nearest)

    def run(self, poison: int, repeat: int, nearest: bool = False) -> Outcome:
        """Every launch in order on poisoned outputs; AccessError for what a sanitizer would report.

        Grids that differ between devices of different sizes alternate. Blocks and warps run in ascending order, in
        descending order, and in one drawn from the case's seed.
        """
        arrays = {
            name: Buffer(name, np.ascontiguousarray(value).view(np.uint8).reshape(-1).copy(), writable=False)
            for name, value in self.inputs.items()
        }
        for name, mask in self.unwritten.items():
            arrays[name].written = (~mask).astype(np.uint8)
        allocations = {name: np.full(field.allocated, poison, np.uint8) for name, field in self.fields.items()}
        outputs = {name: allocations[name][: field.nbytes] for name, field in self.fields.items()}
        scratch_sizes, workspace_sizes = own_memory(self.steps)
        scratch = {name: np.zeros(size, np.uint8) for name, size in scratch_sizes.items()}
        workspace = {name: np.full(size, poison, np.uint8) for name, size in workspace_sizes.items()}
        arrays |= {name: Buffer(name, memory, initialised=False) for name, memory in (allocations | workspace).items()}
        arrays |= {name: Buffer(name, memory) for name, memory in scratch.items()}
        approximated: dict[str, None] = {}
        stream = Stream() if any(step.early for step in self.steps) else None
        for step, compiled in zip(self.steps, self.kernels, strict=True):
            approximated |= dict.fromkeys(
                self._launch(step, compiled, arrays, repeat, stream, nearest=nearest).approximated
            )
        if stream:
            try:
                stream.end()
            except Fault as error:
                raise self._access_error(error) from None
        for name, memory in scratch.items():
            if memory.any():
                return Outcome(
                    outputs, f"scratch {name!r} is not zero after the last launch, so a second run would differ"
                )
        for name, field in self.fields.items():
            touched = np.count_nonzero(allocations[name][field.nbytes :] != poison)
            if touched:
                return Outcome(outputs, f"output {name!r}: {touched} bytes of its slack were written")
        return Outcome(outputs, approximated=tuple(approximated))

    def _launch(
        self, step: Step, compiled: Compiled, arrays: Mapping[str, Buffer], repeat: int, stream: Stream | None = None,
        only: tuple[int, ...] = (), nearest: bool = False,
    ) -> Counters:  # fmt: skip
        """Run one launch. stream: given if some launches are early; only: numbers of the blocks to run, all if empty"""
        arguments = [0 if value is None else value for _, value in bind(step, arrays)]
        grids = compiled.launch.grids(step.case.problem, self.device.multiprocessors)
        watch = Watch(*self.watch) if self.watch else None
        if watch:
            self.watched.append((step, compiled, watch))
        try:
            counters = (partial(stream.launch, early=step.early) if stream else launch)(
                _module(compiled), compiled.symbol, grid=grids[repeat % len(grids)],
                block=(compiled.launch.threads, 1, 1), args=arguments, schedule=self.order(repeat, nearest),
                count_traffic=False,
                watch=watch,
                only=only,
                strict=strict() or self.device.also,
                sanitize=not only,  # a shadow of terabytes is too large, and the case itself shows races
            )  # fmt: skip
        except Fault as error:
            raise self._access_error(error) from None
        except NotOnTarget as error:
            raise CompileError(str(error)) from None
        except LaunchRefused as error:
            raise LaunchError(str(error)) from None
        except LacksInstruction as error:
            raise NotEmulated(str(error)) from None
        self.lane_instructions += counters.lane_instructions
        return counters

    def _access_error(self, error: Fault) -> AccessError:
        """Turn a fault into an AccessError that names the kernel as its source does, and not by its mangled name."""
        sentence = error.sentence
        for compiled in self.kernels:
            sentence = sentence.replace(compiled.symbol, f"{compiled.arch} {compiled.expression}")
        return AccessError(error.kind, error.where, sentence)


@lru_cache(maxsize=256)
def _module(compiled: Compiled) -> Module:
    return Module(compiled.ptx, cache_folder() / "emulator")
