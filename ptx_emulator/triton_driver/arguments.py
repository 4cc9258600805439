"""Turn a kernel's arguments into the bytes of its PTX parameters.

The order is that of Triton's launcher: arguments without constants, tuples flattened, a descriptor as its tensor map,
extents and strides; then the two scratch pointers.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ptx_emulator.errors import LaunchError, UsageError
from ptx_emulator.memory import Buffer
from ptx_emulator.tensor_map import TYPES, MalformedMap, TensorMap
from ptx_emulator.triton_driver.memory import Storages, offset_of, storage_of

_FLOATS = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32, "f32": np.float32, "fp64": np.float64}
_INTEGER = re.compile(r"([iu])(\d+)$")
_SWIZZLES = ("none", "32B", "64B", "128B")  # in the order of CUtensorMapSwizzle
# Triton's compiler uses PTX's numbers for types; for three types the driver's tensor maps have other numbers.
_ON_HOST = {8: 10, 9: 8, 10: 9}
_TF32 = TYPES.index("tfloat32")


class Arguments:
    """The arguments of one launch. memory: buffers that the kernel may touch, in the order of the arguments"""

    def __init__(self, memory: Storages, maps: Sequence[Mapping[str, Any]]):
        self._memory, self._maps, self._buffers = memory, list(maps), {}

    @property
    def buffers(self) -> list[Buffer]:
        return list(self._buffers.values())

    def of(self, name: str, kind: Any, value: Any) -> Iterator[bytes]:
        """The parameters for one argument. kind: its type in Triton's signature

        Raises UsageError for a value that the emulator cannot take, LaunchError for one that CUDA would refuse.
        """
        if isinstance(kind, tuple):
            for number, (part, each) in enumerate(zip(kind, value, strict=True)):
                yield from self.of(f"{name}[{number}]", part, each)
        elif kind.startswith("*"):
            yield self.pointer(name, value)
        elif kind.startswith("tensordesc"):
            yield from self._descriptor(name, value)
        elif kind != "constexpr":
            yield _scalar(name, kind, value)

    def pointer(self, name: str, tensor: Any) -> bytes:
        tensor = getattr(tensor, "base", tensor) if not hasattr(tensor, "untyped_storage") else tensor
        if not hasattr(tensor, "untyped_storage"):
            raise UsageError(f"'{name}' is {type(tensor).__name__}, and the kernel takes a tensor of torch there")
        return _address(self._buffer(name, tensor), offset_of(tensor))

    def reach(self, tensors: Iterable[Any]) -> None:
        """Add tensors that the kernel may reach by pointers in memory."""
        for number, tensor in enumerate(tensors):
            self._buffer(f"address {number}", tensor)

    def _buffer(self, name: str, tensor: Any) -> Buffer:
        """The buffer for a tensor; there is one per storage, however many tensors share it."""
        place = storage_of(tensor).data_ptr()
        buffer = self._buffers.get(place)
        if buffer is None:
            buffer = self._buffers[place] = self._memory.buffer(name, tensor)
        elif name not in buffer.name.split(" and "):
            buffer.name += f" and {name}"
        return buffer

    def scratch(self, size: int, name: str) -> bytes:
        """New memory that nobody has written, or a null pointer for none."""
        if not size:
            return bytes(8)
        buffer = self._buffers[name] = Buffer(name, np.zeros(size, np.uint8), initialised=False)
        return _address(buffer, 0)

    def _descriptor(self, name: str, value: Any) -> Iterator[bytes]:
        start = self.pointer(name, value.base)
        if self._maps:
            yield _tensor_map(name, int.from_bytes(start, "little"), value, self._maps.pop(0))
        else:
            yield start
            yield from map(_long, (*value.shape, *value.strides))
            yield bytes([value.padding == "nan"])
            if hasattr(value, "round_f32_to_tf32"):  # since Triton 3.7
                yield bytes([value.round_f32_to_tf32])
        yield from (_scalar(name, "i32", extent) for extent in value.shape)
        yield from map(_long, value.strides)


def _address(buffer: Buffer, offset: int) -> bytes:
    return (buffer.address + offset).to_bytes(8, "little")


def _long(value: int) -> bytes:
    return struct.pack("<q", value)


def _scalar(name: str, kind: str, value: Any) -> bytes:
    """The bytes of a number. kind: Triton's name, `i32`, `fp32`, ...; an `i1` takes a byte"""
    if kind in _FLOATS:
        return np.array(value, _FLOATS[kind]).tobytes()
    match = _INTEGER.match(kind)
    if not match:
        raise UsageError(f"'{name}' is of type {kind}, which triton_on does not pass")
    size = max(8, int(match[2])) // 8
    try:
        return int(value).to_bytes(size, "little", signed=match[1] == "i" and match[2] != "1")
    except OverflowError:
        raise LaunchError(f"'{name}' is {value}, which is no {kind}") from None


def _tensor_map(name: str, address: int, value: Any, said: Mapping[str, Any]) -> bytes:
    """The tensor map for a descriptor.

    said: the compiler's demands: swizzle, block_size, elem_size in bytes, elem_type, fp4_padded
    """
    number = _TF32 if getattr(value, "round_f32_to_tf32", False) else _ON_HOST.get(said["elem_type"], said["elem_type"])
    if said["fp4_padded"] or number >= len(TYPES):
        raise UsageError(f"'{name}' is a descriptor of padded FP4, which the emulator's tensor maps lack")
    box = tuple(reversed(said["block_size"]))
    strides = tuple(stride * said["elem_size"] for stride in reversed(value.strides))[1:]
    made = TensorMap(
        TYPES[number], address, tuple(reversed(value.shape)), strides, box, (1,) * len(box),
        _SWIZZLES[said["swizzle"]], value.padding == "nan",
    )  # fmt: skip
    try:
        return made.encode()
    except MalformedMap as error:
        raise LaunchError(f"descriptor '{name}': {error}") from None
