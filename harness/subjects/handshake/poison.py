"""Find out whether a kernel reads unpromised bytes: overwrite them, and see whether its outputs change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.errors import AccessError
from harness.verify.judge import POISONS

RANDOM = -1  # stands for a different byte everywhere, against kernels that compare poisoned bytes with each other
# As e4m3 the bytes are two numbers, one of them large, and both NaNs; as bf16 and float32 a small number, two huge ones
# and NaN. The first two are complementary.
FILLS = (0xA5, 0x5A, 0x7F, 0xFF, RANDOM)
Inputs = dict[str, np.ndarray]
# Prepares a program on these inputs; the second argument has masks of the bytes that must not be read.
Prepare = Callable[[Inputs, Mapping[str, np.ndarray]], Any]


@dataclass(frozen=True)
class Leak:
    """A dependence on unpromised bytes.

    array: the input they are in; byte: one of them that suffices, together with those before it
    output, at: the first byte that changed; count: how many changed; before, after: the values of the first
    fill: the value put into unpromised bytes; read: `file.cu:line` and what is read there, if it could be found
    """

    array: str
    byte: int
    fill: int
    output: str = ""
    at: int = 0
    count: int = 0
    before: int = 0
    after: int = 0
    read: str = ""


@dataclass(frozen=True)
class Poisoning:
    """inputs: as the kernel is given them, with zeros where nothing is promised; unpromised: masks of these bytes, flat

    outputs: its outputs for these inputs; prepare: makes a program on other inputs; marks: whether reads can be made
    faults
    """

    inputs: Inputs
    unpromised: Mapping[str, np.ndarray]
    outputs: Mapping[str, Any]
    prepare: Prepare
    marks: bool

    def leak(self) -> Leak | None:
        """The first dependence on unpromised bytes, or None."""
        if not any(mask.any() for mask in self.unpromised.values()):
            return None
        for repeat, fill in enumerate(FILLS):
            if self._changed(self._filled(fill, self.unpromised), repeat):
                return self._narrowed(fill, repeat)
        return None

    def forbidden(self, name: str) -> str:
        """Where an unpromised byte of an array is read; empty if none is, or if the device cannot tell."""
        return self._read_at({name: self.unpromised[name]}) if self.marks and self.unpromised[name].any() else ""

    def _narrowed(self, fill: int, repeat: int) -> Leak:
        """Narrow down to one array, and by bisection to one byte; the bytes before it alone change nothing."""
        alone = [name for name, mask in self.unpromised.items() if mask.any() and self._with(name, None, fill, repeat)]
        name = alone[0] if alone else next(name for name, mask in self.unpromised.items() if mask.any())
        places = np.flatnonzero(self.unpromised[name])
        low, high = 0, len(places)  # nothing changes with the first `low` poisoned, something does with `high`
        while high - low > 1 and alone:
            middle = (low + high) // 2
            if self._with(name, places[:middle], fill, repeat):
                high = middle
            else:
                low = middle
        byte = int(places[high - 1])
        inputs = self._filled(fill, {name: self.unpromised[name]} if alone else self.unpromised)
        return self._leak_at(name, byte, fill, inputs, repeat)

    def _leak_at(self, name: str, byte: int, fill: int, inputs: Inputs, repeat: int) -> Leak:
        read = self._read_at({name: self._mask(name, np.array([byte]))}) if self.marks else ""
        try:
            outputs = self._run(inputs, repeat)
        except AccessError as error:
            return Leak(name, byte, fill, read=read or str(error))
        for output, before in self.outputs.items():
            differing = (outputs[output] != before).nonzero()[0]
            if differing.size:
                at = int(differing[0])
                return Leak(name, byte, fill, output, at, int(differing.size), int(before[at]),
                            int(outputs[output][at]), read)  # fmt: skip
        return Leak(name, byte, fill, read=read)

    def _with(self, name: str, places: np.ndarray | None, fill: int, repeat: int) -> bool:
        mask = self.unpromised[name] if places is None else self._mask(name, places)
        return self._changed(self._filled(fill, {name: mask}), repeat)

    def _mask(self, name: str, places: np.ndarray) -> np.ndarray:
        mask = np.zeros(len(self.unpromised[name]), bool)
        mask[places] = True
        return mask

    def _filled(self, fill: int, masks: Mapping[str, np.ndarray]) -> Inputs:
        return self.inputs | {name: overwritten(self.inputs[name], mask, fill) for name, mask in masks.items()}

    def _changed(self, inputs: Inputs, repeat: int) -> bool:
        try:
            outputs = self._run(inputs, repeat)
        except AccessError:  # a poisoned byte was used as an address
            return True
        return any(bool((outputs[name] != before).any()) for name, before in self.outputs.items())

    def _run(self, inputs: Inputs, repeat: int) -> Mapping[str, Any]:
        turn = repeat % len(POISONS)
        return self.prepare(inputs, {}).run(POISONS[turn], turn).outputs

    def _read_at(self, masks: Mapping[str, np.ndarray]) -> str:
        try:
            self.prepare(self.inputs, masks).run(POISONS[0], 0)
        except AccessError as error:
            if error.kind == "unwritten_read":
                return str(error)
        return ""


def overwritten(array: np.ndarray, mask: np.ndarray, byte: int) -> np.ndarray:
    """A copy with `byte` where the mask, flat, is set. byte: RANDOM draws bytes, always the same ones"""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy()
    other = (
        np.random.default_rng(len(flat)).integers(256, size=len(flat)) if byte == RANDOM else np.full(len(flat), byte)
    )
    flat[mask] = other[mask]
    return flat.view(array.dtype).reshape(array.shape)
