"""A device that runs a card's launches: the emulator or a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.device.cuda_program import CudaProgram
from harness.device.device import Device, InPlaceOfOurs
from harness.device.emulator import LARGEST, MOST_TERMS, EmulatedProgram, module_of
from harness.device.launches import BoundLaunch, Launches
from harness.device.memory import CaseMemory
from harness.errors import CompileError, DeviceUnavailable, NotCapable, NotEmulated, SuiteError, UsageError
from harness.subjects.card.card import Card, with_masked_m
from harness.subjects.card.code import runs_on
from harness.subjects.card.launches import card_launches
from ptx_emulator.errors import NotEmulated as LacksInstruction
from ptx_emulator.machine.residents import LARGEST as LARGEST_GPU
from ptx_emulator.machine.residents import Part, held

MOST_SHARED = 227 << 10  # bytes that a CTA of any GPU has
MOST_THREADS = 1024


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
    """The target of the card's code, also if it does not compile."""
    try:
        return card.code.program.target
    except CompileError:
        return card.file.arch


class CardDevice(InPlaceOfOurs):
    """inner: the device with our own kernels"""

    def __init__(self, inner: Any, card: Card):
        super().__init__(inner, card.label)
        self.card = card
        if inner.name != "cuda":
            self.targets = (_target(card),)

    def admit(self, case: Case) -> None:
        """Raise NotCapable for a case that the card or the device cannot run.

        Raises NotEmulated for PTX that the emulator lacks, CompileError for a `.cu` that does not compile.
        """
        reason = self.card.refuses(case)
        if reason:
            raise NotCapable(reason)
        if self.name == "cuda":
            self.inner.admit(case)
            if too_large := next(self._beyond_this_gpu(case), ""):
                raise NotCapable(f"capability: {too_large}")
            return
        if case.mode not in self.modes:
            raise NotCapable(f"capability: the emulator has no CUDA graphs; mode {case.mode!r} needs a GPU")
        if case.elements > LARGEST or case.terms > MOST_TERMS:
            raise NotCapable(f"capability: more than {LARGEST} elements or {MOST_TERMS} terms of a product need a GPU")
        if self._not_emulated:
            raise NotEmulated(self._not_emulated)

    def _beyond_this_gpu(self, case: Case) -> Iterator[str]:
        """A sentence for each launch that a larger GPU holds and this one does not.

        What no GPU holds is the card's mistake, which its launch tells, as it tells extents that none can have.
        Registers and static shared memory are known to the driver alone, so a launch may still be too large.
        """
        gpu = self.inner.properties
        own = Part(
            gpu["multiProcessorCount"], gpu["maxThreadsPerMultiProcessor"], gpu["maxBlocksPerMultiProcessor"],
            gpu["sharedMemPerMultiprocessor"] >> 10,
        )  # fmt: skip
        launches: list[BoundLaunch] = []
        with suppress(SuiteError):
            launches = card_launches(self.card, case, self.card.code_for(self.targets[0])).of_kernels
        for each in launches:
            most, threads, ctas = gpu["sharedMemPerBlockOptin"], prod(each.block), prod(each.grids[0])
            if most < each.shared <= MOST_SHARED:
                yield f"{each.name} takes {each.shared:,} bytes of shared memory, and a CTA has at most {most:,} here"
            elif each.cluster and gpu["major"] < 9:
                yield f"{each.name} is launched in clusters, which begin with sm_90, and this GPU is {self.targets[0]}"
            elif each.together and 1 <= threads <= MOST_THREADS:
                here, any_gpu = (held(part, "this GPU", threads, each.shared, 1) for part in (own, LARGEST_GPU))
                if here.ctas < ctas <= any_gpu.ctas:
                    yield f"{each.name} is {ctas:,} CTAs of {threads:,} threads that run together, and {here.words}"

    @cached_property
    def _not_emulated(self) -> str:
        """A sentence on what the PTX needs and the emulator lacks, found without running it; empty if nothing."""
        code = self.card.code
        try:
            for each in self.card.file.launches:
                if each.kernel:
                    module_of(code).code(code.symbol(each.kernel))
        except LacksInstruction as error:
            return f"{code.name}: {error}"
        return ""

    def prepare(self, case: Case, target: str, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> Any:
        """Prepare a case. inputs, fields: in the card's form"""
        inputs = with_masked_m(case, inputs)
        if self.name == "cuda":
            return CudaProgram(self.launches(case, target), case, CaseMemory.upload(inputs, fields))
        return EmulatedProgram(self.launches(case, self.card.file.arch), case, inputs, fields)

    def launches(self, case: Case, arch: str) -> Launches:
        """arch: what a `.cu` is compiled for"""
        return card_launches(self.card, case, self.card.code_for(arch))
