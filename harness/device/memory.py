"""Memory of a case, CuPy's or NumPy's: inputs that must stay unchanged, outputs between guard bands."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from harness.contract.field import Field
from harness.ground.seconds import SECONDS, UPLOAD


class KeptCopies:
    """The copy of each array for as long as the array itself lives. limit: bytes of all copies; 0 keeps none

    Where a subject runs none are kept, because it could find the expected bytes in GPU memory.
    """

    def __init__(self) -> None:
        self.limit = 0
        self._copies: dict[int, tuple[weakref.ref[np.ndarray], Any]] = {}

    @property
    def nbytes(self) -> int:
        return sum(copy.nbytes for _, copy in self._copies.values())

    def of(self, array: np.ndarray, upload: Callable[[np.ndarray], Any]) -> Any:
        """The copy that is kept, or a new one, which is kept if there is room."""
        number = id(array)
        known, copy = self._copies.get(number, (lambda: None, None))
        if known() is array:
            return copy
        copy = upload(array)
        self.keep(array, copy)
        return copy

    def keep(self, array: np.ndarray, copy: Any) -> None:
        """Keep a copy that the GPU has already, flat and of bytes, if there is room."""
        if self.nbytes + copy.nbytes <= self.limit:
            number, forget = id(array), self._copies.pop
            self._copies[number] = weakref.ref(array, lambda _: forget(number, None)), copy

    def clear(self) -> None:
        """Drop all copies, after a kernel that may have written anywhere, or to make room."""
        self._copies.clear()


KEPT = KeptCopies()


_THREADS, _BLOCKS = 256, 1024
_SOURCE = r"""
typedef unsigned long long u64;

__device__ bool unlike(uint4 a, uint4 b) { return a.x != b.x || a.y != b.y || a.z != b.z || a.w != b.w; }

// Sets *found if `one` has a byte that is not the other's or, without another, is not `byte`.
extern "C" __global__ void differ(
    const unsigned char* one, const unsigned char* other, u64 size, unsigned byte, unsigned* found) {
  const u64 step = u64(gridDim.x) * blockDim.x, first = u64(blockIdx.x) * blockDim.x + threadIdx.x;
  const u64 wide = (u64(one) | u64(other)) % 16 ? 0 : size / 16;
  const unsigned four = byte * 0x01010101u;
  const uint4 same = make_uint4(four, four, four, four);
  bool wrong = false;
  for (u64 i = first; i < wide; i += step)
    wrong |= unlike(((const uint4*)one)[i], other ? ((const uint4*)other)[i] : same);
  for (u64 i = 16 * wide + first; i < size; i += step) wrong |= one[i] != (other ? other[i] : byte);
  if (wrong) atomicOr(found, 1);
}
"""


def equal_bytes(one: Any, other: Any) -> bool:
    """Whether two arrays have the same bytes, or every byte of an array of bytes is the integer `other`.

    Both on the host or both on the GPU, contiguous. On the GPU a kernel compares them: CuPy's `==` and `all` would
    compile for seconds and need memory for a result per byte.
    """
    if not isinstance(other, int) and one.nbytes != other.nbytes:
        return False
    if isinstance(one, np.ndarray):
        return bool((one == other).all()) if isinstance(other, int) else one.tobytes() == other.tobytes()
    if not one.size:
        return True
    found = import_module("cupy").zeros(1, np.uint32)
    second, byte = (0, other) if isinstance(other, int) else (other.data.ptr, 0)
    blocks = min(_BLOCKS, -(-one.nbytes // (16 * _THREADS)))
    arguments = np.uint64(one.data.ptr), np.uint64(second), np.uint64(one.nbytes), np.uint32(byte), found
    _kernel()((blocks,), (_THREADS,), arguments)
    return not int(found.get()[0])


@cache
def _kernel() -> Any:
    return import_module("cupy").RawKernel(_SOURCE, "differ")


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
        """The bytes of an output that the kernel writes."""
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


class CaseMemory:
    """The inputs and outputs of one case.

    inputs: what the kernels read; pristine: copies that the inputs must still equal afterwards; outputs: what they
    write
    """

    def __init__(self, pristine: Mapping[str, Any], fields: Mapping[str, Field], of: ModuleType | None = None):
        self.pristine, self._of = dict(pristine), of
        self.inputs = {name: copied(value) for name, value in self.pristine.items()}
        self.outputs = {name: Guarded(field, of) for name, field in fields.items()}

    @classmethod
    def upload(cls, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> CaseMemory:
        """Copy the inputs to the GPU."""
        return cls({name: kept_or_uploaded(value) for name, value in inputs.items()}, fields)

    def twin(self) -> CaseMemory:
        """Other memory with the same inputs, which share their pristine copies."""
        return CaseMemory(self.pristine, {name: output.field for name, output in self.outputs.items()}, self._of)

    @property
    def nbytes(self) -> int:
        """Bytes of inputs and outputs, without guards and pristine copies."""
        return sum(value.nbytes for value in self.inputs.values()) + sum(o.field.nbytes for o in self.outputs.values())

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
