"""A device that runs a card's launches: the emulator or a GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.interval import Demand
from harness.device.device import Device, Outcome
from harness.device.emulator import LARGEST, MOST_TERMS
from harness.errors import (
    AccessError,
    CompileError,
    DeviceUnavailable,
    LaunchError,
    NotCapable,
    NotEmulated,
    SuiteError,
    UsageError,
)
from harness.ground.strictness import strict
from harness.jit.cache import cache_folder
from harness.subjects.card.arguments import bytes_of, extents_of
from harness.subjects.card.card import Card, with_masked_m
from harness.subjects.card.code import runs_on
from harness.subjects.card.gpu import CardOnGpu
from harness.subjects.card.schema import Launch
from harness.subjects.card.tensor_starts import Starts
from harness.suite.sizes import size_of
from ptx_emulator.counters import Counters
from ptx_emulator.errors import Fault, NotOnTarget, RefusedLaunch
from ptx_emulator.errors import LaunchError as Trapped
from ptx_emulator.errors import NotEmulated as LacksInstruction
from ptx_emulator.launches import Module, launch
from ptx_emulator.memory import Buffer
from ptx_emulator.schedule import Schedule, order_of_run
from ptx_emulator.stream import Stream
from ptx_emulator.tensor_map import TensorMap
from ptx_emulator.unset import Unset

LARGEST_BUFFER = 1 << 30  # bytes; the limit for a scratch or workspace array
_PTX_LINE = re.compile(r"\bptx:(\d+)")


def with_card(device: Device, card: Card) -> CardDevice:
    """A device with a card's kernels in place of ours.

    Raises UsageError for a cubin without a GPU, DeviceUnavailable for PTX that this GPU does not run.
    """
    if device.name != "cuda" and card.file.code.endswith(".cubin"):
        raise UsageError(f"{card.file.code} is machine code, which only a GPU runs; name PTX, or use --device cuda")
    if device.name == "cuda" and not is_for(card, device):
        target, gpu = card.code.program.target, device.targets[0]
        raise DeviceUnavailable(
            f"{card.file.code} is for {target}, which this GPU, an {gpu}, does not run; --device emulator does"
        )
    return CardDevice(device, card)


def is_for(card: Card, gpu: Device) -> bool:
    """Whether the GPU runs the card's PTX. A `.cu` is compiled for the GPU, and a cubin is checked by the driver."""
    return not card.file.code.endswith(".ptx") or runs_on(card.code.program.target, gpu.targets[0])


def _target(card: Card) -> str:
    """What the card's code is for, also if it does not compile."""
    try:
        return card.code.program.target
    except CompileError:
        return card.file.arch


class CardDevice:
    """inner: the device with our own kernels"""

    def __init__(self, inner: Any, card: Card):
        self.inner, self.card = inner, card
        self.name, self.modes = inner.name, inner.modes
        self.targets = inner.targets if inner.name == "cuda" else (_target(card),)
        self.subject_label = card.label

    def identity(self) -> dict[str, str]:
        return self.inner.identity() | {"subject": self.subject_label}

    def condition(self) -> dict[str, Any]:
        return self.inner.condition()

    def admit(self, case: Case) -> None:
        """Raise NotCapable for a case that the card or the device cannot run.

        Raises NotEmulated for PTX that the emulator lacks, CompileError for a `.cu` that does not compile.
        """
        reason = self.card.refuses(case)
        if reason:
            raise NotCapable(reason)
        if self.name == "cuda":
            self.inner.admit(case)
            return
        if case.mode not in self.modes:
            raise NotCapable(f"capability: the emulator has no CUDA graphs; mode {case.mode!r} needs a GPU")
        if case.elements > LARGEST or case.terms > MOST_TERMS:
            raise NotCapable(f"capability: more than {LARGEST} elements or {MOST_TERMS} terms of a product need a GPU")
        if self._not_emulated:
            raise NotEmulated(self._not_emulated)

    @cached_property
    def module(self) -> Module:
        return Module(self.card.code.ptx, cache_folder() / "emulator")

    @cached_property
    def _not_emulated(self) -> str:
        """A sentence on what the PTX needs and the emulator lacks, found without running it; empty if nothing."""
        try:
            for each in self.card.file.launches:
                if each.kernel:
                    self.module.code(self.card.code.symbol(each.kernel))
        except LacksInstruction as error:
            return f"{self.card.code.name}: {error}"
        return ""

    def reserve(self, case: Case, needs: int = 0, alone: bool = False) -> AbstractContextManager[None]:
        return self.inner.reserve(case, needs, alone)

    def lost(self) -> str:
        return self.inner.lost()

    def prepare(self, case: Case, target: str, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> Any:
        """Prepare a case. inputs, fields: in the card's form"""
        inputs = with_masked_m(case, inputs)
        if self.name == "cuda":
            return CardOnGpu.uploaded(self.card, case, target, inputs, fields)
        return EmulatedCard(self.card, self.module, case, inputs, fields)

    def accepts(self, actual: Any, expected: Demand) -> bool:
        return self.inner.accepts(actual, expected)

    def to_host(self, array: Any, field: Field) -> np.ndarray:
        return self.inner.to_host(array, field)


class EmulatedCard:
    """One case, its kernels' PTX on the emulator."""

    kernels = ()

    def __init__(
        self, card: Card, module: Module, case: Case, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]
    ):
        self.card, self.module, self.case, self.inputs, self.fields = card, module, case, inputs, fields
        self.unwritten: Mapping[str, np.ndarray] = {}  # by input: mask of the bytes that must not be read
        self.numbers = card.numbers(case)

    @property
    def unset(self) -> list[Unset]:
        """The variables that the kernels read and nothing sets."""
        kernels = [str(each.kernel) for each in self.card.file.launches if each.kernel]
        found = (each for kernel in kernels for each in self.module.unset(self.card.code.symbol(kernel)))
        return list(dict.fromkeys(Unset(self._by_line(each.where), each.declared) for each in found))

    def run(self, poison: int, repeat: int, nearest: bool = False) -> Outcome:
        """Every launch in order on poisoned outputs; AccessError for what a sanitizer would report.

        Blocks and warps run in ascending order, in descending order, and in one drawn from the case's seed.
        """
        file = self.card.file
        memory = EmulatedMemory(self.inputs, lambda: self.card.tensor_starts(self.case))
        for name, mask in self.unwritten.items():
            memory.buffers[name].written = (~mask).astype(np.uint8)
        outputs = {name: memory.put(name, field.allocated, poison, False) for name, field in self.fields.items()}
        for name, size in file.workspace.items():
            memory.put(name, size_of(size, self.numbers), poison, False)
        scratch = {name: memory.put(name, size_of(size, self.numbers), 0, True) for name, size in file.scratch.items()}
        schedule = self.order(repeat, nearest)
        stream = Stream() if any(each.early for each in file.launches) else None
        approximated: dict[str, None] = {}
        for number, each in self.card.launches(self.case):
            if each.zero is not None:
                memory.clear(each.zero)
            else:
                found = self._launch(number, each, memory, schedule, stream).approximated
                approximated |= dict.fromkeys(map(self._by_line, found))
        if stream:
            try:
                stream.end()
            except Fault as error:
                raise self._access_error(error) from None
        results = {name: outputs[name][: field.nbytes] for name, field in self.fields.items()}
        for name, content in scratch.items():
            if content.any():
                return Outcome(results, f"scratch {name!r} is not zero after the last launch; name it under workspace, "
                               "and `zero` it before its launch, if that is how the kernel is used")  # fmt: skip
        for name, field in self.fields.items():
            if touched := np.count_nonzero(outputs[name][field.nbytes :] != poison):
                return Outcome(results, f"output {name!r}: {touched} bytes of its slack were written")
        return Outcome(results, approximated=tuple(approximated))

    def resplit(self, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> None:
        self.inputs, self.fields = with_masked_m(self.case, inputs), fields

    def renew(self) -> bool:
        if self.module.keeps:
            self.module = Module(self.card.code.ptx, cache_folder() / "emulator")
        return self.module.keeps

    def order(self, repeat: int, nearest: bool = False) -> Schedule:
        return order_of_run(repeat, self.case.seed, nearest)

    def _launch(
        self, number: int, each: Launch, memory: EmulatedMemory, schedule: Schedule, stream: Stream | None
    ) -> Counters:
        where = self.card.document.where("launches", number)
        entry = self.card.code.symbol(str(each.kernel))

        def extents(said: list[int | str]) -> tuple[int, ...]:
            return extents_of(said, self.numbers)

        try:
            arguments = [bytes_of(argument, memory, self.numbers) for argument in each.arguments]
            options: dict[str, Any] = {
                "dynamic_shared": size_of(each.shared, self.numbers), "schedule": schedule, "count_traffic": False,
                "memory": list(memory.buffers.values()), "cluster": extents(each.cluster) if each.cluster else None,
                "strict": strict(),
            }  # fmt: skip
            if only := self._only(each, entry):
                options |= {"only": only, "sanitize": False}
            place = self.module, entry, extents(each.grid), extents(each.block), arguments
            if stream:
                return stream.launch(*place, early=each.early, **options)
            return launch(*place, **options)
        except Fault as error:
            raise self._access_error(error) from None
        except NotOnTarget as error:
            raise CompileError(f"{where}: {self._by_line(str(error))}") from None
        except (RefusedLaunch, UsageError) as error:  # the extents and arguments are the card's
            raise SuiteError(where, self._by_line(str(error))) from None
        except Trapped as error:
            raise LaunchError(f"{where}: {self._by_line(str(error))}") from None
        except LacksInstruction as error:
            raise NotEmulated(f"{where}: {self._by_line(str(error))}") from None

    def _only(self, each: Launch, entry: str) -> tuple[int, ...]:
        """The numbers of the clusters that a launch runs; none for all."""
        return ()

    def _access_error(self, error: Fault) -> AccessError:
        """Turn a fault into an AccessError with the card's kernel names in place of mangled ones."""
        sentence = self._by_line(error.sentence)
        for name in {str(each.kernel) for each in self.card.file.launches if each.zero is None}:
            sentence = sentence.replace(self.card.code.symbol(name), name)
        return AccessError(error.kind, self._by_line(error.where), sentence)

    def _by_line(self, text: str) -> str:
        """Name the PTX's file in places that only have a line of PTX because it has no source lines."""
        name = self.card.code.name if self.card.code.name.endswith(".ptx") else "ptx"
        return _PTX_LINE.sub(rf"{name.rpartition('/')[2]}:\1", text)


class EmulatedMemory:
    """The arrays of one run. buffers: by name, arrays of pointers among them; starts: of the tensors of a group"""

    def __init__(self, inputs: Mapping[str, np.ndarray], starts: Callable[[], Starts]):
        self._starts = starts
        self.buffers = {
            name: Buffer(name, np.ascontiguousarray(value).view(np.uint8).reshape(-1).copy(), writable=False)
            for name, value in inputs.items()
        }

    def put(self, name: str, size: int, byte: int, initialised: bool) -> np.ndarray:
        if size > LARGEST_BUFFER:
            raise NotEmulated(f"'{name}' has {size} bytes; the emulator allows {LARGEST_BUFFER}")
        content = np.full(size, byte, np.uint8)
        self.buffers[name] = Buffer(name, content, initialised=initialised)
        return content

    def clear(self, name: str) -> None:
        self.buffers[name].data.fill(0)
        if self.buffers[name].written is not None:
            self.buffers[name].written.fill(1)

    def address(self, name: str) -> int:
        return self.buffers[name].address

    def tensor_starts(self, name: str) -> Sequence[int]:
        return self._starts()[name]

    def table(self, addresses: bytes) -> int:
        name = f"pointers {sum(each.startswith('pointers ') for each in self.buffers)}"
        self.buffers[name] = Buffer(name, np.frombuffer(addresses, np.uint8).copy(), writable=False)
        return self.buffers[name].address

    def tensor_map(self, tensor: TensorMap) -> bytes:
        return tensor.encode()
