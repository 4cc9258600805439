"""Memory of a case, CuPy's or NumPy's: inputs that must stay unchanged, outputs between guard bands."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from harness.contract.field import Field
from harness.device.equal_bytes import equal_bytes
from harness.device.kept_copies import KEPT
from harness.ground.seconds import SECONDS, UPLOAD

GUARD = 4096  # bytes before and after every output
ALIGNMENT = 256


class Guarded:
    """One output or workspace between two guard bands. Nothing may touch the bands or the output's slack.

    of: the array's module; CuPy by default
    """

    def __init__(self, field: Field, of: ModuleType | None = None):
        self.field = field
        of = of or import_module("cupy")
        # The payload starts at the same alignment as an allocation of its own.
        self.memory = of.empty(2 * GUARD + -(-field.allocated // ALIGNMENT) * ALIGNMENT, of.uint8)

    @property
    def allocation(self) -> Any:
        """The bytes that a kernel is given: the field and its slack."""
        return self.memory[GUARD : GUARD + self.field.allocated]

    @property
    def payload(self) -> Any:
        """What the kernel writes."""
        return self.memory[GUARD : GUARD + self.field.nbytes]

    def refit(self, field: Field) -> None:
        """Switch to the field of another split of the same allocation, at the same address."""
        if field.allocated != self.field.allocated:
            raise ValueError(f"a field of {field.allocated} bytes in an allocation of {self.field.allocated}")
        self.field = field

    def poison(self, byte: int) -> None:
        self.memory.fill(byte)

    def trespass(self, byte: int) -> str:
        """Name the guard band that was written to, and how far off; empty if none was."""
        first, last = GUARD + self.field.nbytes, GUARD + self.field.allocated
        bands = {
            "before it": self.memory[:GUARD],
            "of its slack": self.memory[first:last],
            "after it": self.memory[last:],
        }
        for where, band in bands.items():
            if equal_bytes(band, byte):
                continue
            touched = (band != byte).nonzero()[0]
            offset = GUARD - int(touched[-1]) if where == "before it" else int(touched[0]) + 1
            return f"{touched.size} bytes {where} were written, the nearest {offset} bytes off"
        return ""


class Lent:
    """An output in the caller's own memory, without guard bands. array: flat, of bytes"""

    def __init__(self, array: Any):
        self.allocation = self.payload = array


class Memory:
    """The inputs and outputs of one case.

    inputs: what the kernels read; pristine: copies that the inputs must still equal afterwards; outputs: what they
    write
    """

    def __init__(self, pristine: Mapping[str, Any], fields: Mapping[str, Field], of: ModuleType | None = None):
        self.pristine, self._of = dict(pristine), of
        self.inputs = {name: copied(value) for name, value in self.pristine.items()}
        self.outputs = {name: Guarded(field, of) for name, field in fields.items()}

    @classmethod
    def upload(cls, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> Memory:
        """Copy the inputs to the GPU."""
        return cls({name: kept_or_uploaded(value) for name, value in inputs.items()}, fields)

    def twin(self) -> Memory:
        """Other memory with the same inputs, which share their pristine copies."""
        return Memory(self.pristine, {name: output.field for name, output in self.outputs.items()}, self._of)

    @property
    def nbytes(self) -> int:
        """Bytes of inputs and outputs, without guards and pristine copies."""
        return sum(value.nbytes for value in self.inputs.values()) + sum(o.field.nbytes for o in self.outputs.values())

    def replace_input(self, name: str, value: np.ndarray) -> None:
        """Overwrite an input with other contents of the same size, at the same address."""
        self.put({**self.pristine, name: upload(value)})

    def refit(self, fields: Mapping[str, Field]) -> None:
        """Switch to the outputs of another split of the same allocation, at the same addresses."""
        for name, field in fields.items():
            self.outputs[name].refit(field)

    def put(self, pristine: Mapping[str, Any]) -> None:
        """Overwrite all inputs, at the same addresses, with arrays like them: flat bytes where the inputs are."""
        self.pristine = dict(pristine)
        for name, value in self.pristine.items():
            self.inputs[name][...] = value

    def trespass(self, byte: int) -> str:
        """A sentence on forbidden writes, given the byte that guards were filled with; empty if there are none."""
        for name, output in self.outputs.items():
            sentence = output.trespass(byte)
            if sentence:
                return f"output {name!r}: {sentence}"
        for name, value in self.inputs.items():
            if not equal_bytes(value, self.pristine[name]):
                return f"input {name!r} was changed by the kernel"
        return ""


def copied(array: Any) -> Any:
    """Copy an array; the sanitizer's plugin replaces this function."""
    return array.copy()


def upload(array: np.ndarray) -> Any:
    """Upload an array as bytes, because CuPy lacks bf16 and kernels only take pointers."""
    with SECONDS.of(UPLOAD):
        content = flat(array)
        # Not `asarray`: it copies through pinned memory that CuPy keeps, 8 GiB for an array of 4.3 GiB.
        uploaded = import_module("cupy").empty(content.size, np.uint8)
        if content.size:
            uploaded.set(content)
        return uploaded


def kept_or_uploaded(array: np.ndarray) -> Any:
    """The array's bytes on the GPU, read-only; the copy in `KEPT` if there is one."""
    return KEPT.of(array, upload)


def flat(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
