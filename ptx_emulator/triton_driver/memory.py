"""The storages of CPU tensors as memory of the emulator, without a copy, and what of them nobody has written yet.

Torch reports each operator in this thread: which ones allocate without writing, and which arguments an operator writes.
Memory that leaves torch, for example as a NumPy array, counts as written from then on.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ptx_emulator.errors import UsageError
from ptx_emulator.memory import WRITTEN, Buffer

ALIGNMENT = 16  # bytes; a storage must be aligned to it, because Triton reads a pointer's alignment off the address


@dataclass
class Known:
    """A storage. owner: tells whether it still exists; window: of its addresses, once a kernel has used it

    written: (bytes,) uint8, the bytes that were written; None if all may be read
    """

    owner: Any
    nbytes: int
    window: int | None = None
    written: np.ndarray | None = None


class Storages:
    """Storages, each at one address while it lives. lent: tensors that kernels may reach by pointers in memory"""

    def __init__(self) -> None:
        self.lent: list[Any] = []
        self._known: dict[int, Known] = {}

    def buffer(self, name: str, tensor: Any) -> Buffer:
        """The buffer for a tensor's storage. Raises UsageError if the emulator cannot reach it."""
        if tensor.device.type != "cpu":
            raise UsageError(f"'{name}' is on {tensor.device}; triton_on runs kernels on tensors of the CPU")
        storage = storage_of(tensor)
        if storage.data_ptr() % ALIGNMENT:
            raise UsageError(f"the memory of '{name}' does not begin at a multiple of {ALIGNMENT} bytes; clone it")
        known = self._known_as(storage)
        buffer = Buffer(name, _bytes(storage), window=known.window)
        known.window, buffer.written = buffer.window, known.written
        return buffer

    def lend(self, tensor: Any) -> int:
        """Register a tensor as reachable, and return its address for a pointer in memory."""
        self.lent.append(tensor)
        return self.buffer("memory behind a pointer", tensor).address + offset_of(tensor)

    def allocated(self, tensor: Any) -> None:
        """Record that nobody has written this tensor's storage."""
        if _on_cpu(tensor):
            storage = storage_of(tensor)
            self._known_as(storage).written = np.zeros(storage.nbytes(), np.uint8)

    def wrote(self, tensor: Any) -> None:
        """Record that these bytes of the storage were written."""
        flags = self._flags(tensor)
        if flags is not None:
            flags[...] = WRITTEN

    def left(self, tensor: Any) -> None:
        """Record that others may write the storage unseen, so all of it counts as written."""
        known = self._find(tensor)
        if known is not None:
            known.written = None

    def unwritten(self, tensor: Any) -> int:
        """How many bytes of a tensor nobody has written."""
        flags = self._flags(tensor)
        return 0 if flags is None else int(np.count_nonzero(flags != WRITTEN))

    def _flags(self, tensor: Any) -> np.ndarray | None:
        """The written flags of a tensor's bytes, (*shape, bytes of an element) uint8; None if all are written."""
        known = self._find(tensor)
        if known is None or known.written is None:
            return None
        size = tensor.element_size()
        shape, strides = (*tensor.shape, size), (*(stride * size for stride in tensor.stride()), 1)
        return np.lib.stride_tricks.as_strided(known.written[offset_of(tensor) :], shape, strides)

    def _find(self, tensor: Any) -> Known | None:
        """The record for a tensor's storage, or None."""
        if not _on_cpu(tensor):
            return None
        storage = storage_of(tensor)
        known = self._known.get(storage.data_ptr())
        return known if known and _is_of(known, storage) else None

    def _known_as(self, storage: Any) -> Known:
        from torch.multiprocessing.reductions import StorageWeakRef

        found = self._known.get(storage.data_ptr())
        if found is None or not _is_of(found, storage):
            self._known = {at: each for at, each in self._known.items() if not each.owner.expired()}
            found = self._known[storage.data_ptr()] = Known(StorageWeakRef(storage), storage.nbytes())
        return found


def storage_of(tensor: Any) -> Any:
    """The storage of a tensor, taken without notice to `unwritten`, which would count it as leaving torch."""
    import torch

    with torch._C.DisableTorchFunction():
        return tensor.untyped_storage()


def offset_of(tensor: Any) -> int:
    """Bytes from the start of a tensor's storage to its first element."""
    return tensor.storage_offset() * tensor.element_size()


def _is_of(known: Known, storage: Any) -> bool:
    """Whether the record is for this very storage, and not for an earlier one at its address or before a resize."""
    return not known.owner.expired() and known.nbytes == storage.nbytes()


def _bytes(storage: Any) -> np.ndarray:
    """The bytes of a storage as an array, valid while the storage lives."""
    if not storage.nbytes():
        return np.zeros(0, np.uint8)
    return np.ctypeslib.as_array(ctypes.cast(storage.data_ptr(), ctypes.POINTER(ctypes.c_uint8)), (storage.nbytes(),))


def _on_cpu(tensor: Any) -> bool:
    import torch

    return isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu" and tensor.layout is torch.strided


_ALLOCATES = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
_LEAVES = ("numpy", "__array__", "__dlpack__", "untyped_storage", "storage", "share_memory_")


@contextmanager
def followed(memory: Storages) -> Iterator[None]:
    """While the context lasts, tell `memory` what this thread's operators allocate and write."""
    follows_operators, follows_functions = _modes()
    with ExitStack() as stack:
        stack.enter_context(follows_functions(memory))
        stack.enter_context(follows_operators(memory))
        yield


@cache
def _modes() -> tuple[type, type]:
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    allocates = {getattr(torch.ops.aten, name) for name in _ALLOCATES}
    leaves = {getattr(torch.Tensor, name) for name in _LEAVES}

    class FollowsOperators(TorchDispatchMode):
        def __init__(self, memory: Storages):
            super().__init__()
            self.memory = memory

        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            result = operator(*args, **kwargs)
            if operator.overloadpacket in allocates and "out" not in kwargs:
                self.memory.allocated(result)
            for tensor in _written(operator, args, kwargs):
                self.memory.wrote(tensor)
            return result

    class FollowsFunctions(TorchFunctionMode):
        def __init__(self, memory: Storages):
            super().__init__()
            self.memory = memory

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function in leaves:
                self.memory.left(args[0])
            return function(*args, **(kwargs or {}))

    return FollowsOperators, FollowsFunctions


def _written(operator: Any, args: Iterable[Any], kwargs: dict[str, Any]) -> Iterator[Any]:
    """The tensors among the arguments that an operator writes."""
    args = tuple(args)
    for number, argument in enumerate(operator._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[number] if number < len(args) else kwargs.get(argument.name)
        yield from value if isinstance(value, list | tuple) else (() if value is None else (value,))
