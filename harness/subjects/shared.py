"""Memory of a case that a subject's process may write to: one block, which this process owns, poisons and compares.

On the CPU the block is anonymous memory, passed on as a file descriptor; on a GPU it is an allocation of its own, and
passed on as a CUDA IPC handle. Nothing else of this process is in it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.contract.field import Field, round_up
from harness.device.memory import ALIGNMENT, GUARD, CaseMemory, Guarded
from harness.errors import NoDevice

WHOLE = 2 << 20  # bytes of the driver's allocation unit; a smaller allocation would share one with other memory


@dataclass(frozen=True)
class Place:
    """The place of an array in a block. offset: in bytes; dtype: NumPy name"""

    offset: int
    dtype: str
    shape: tuple[int, ...]

    def of(self, block: Any) -> Any:
        nbytes = int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize
        return block[self.offset : self.offset + nbytes].view(np.dtype(self.dtype)).reshape(self.shape)


class HostBlock:
    """bytes: the memory; passed: file descriptors for another process; handle: none"""

    uint8 = np.uint8
    handle = b""

    def __init__(self, nbytes: int):
        self.nbytes, self._used = max(nbytes, 1), 0
        self.bytes, self.passed = self._allocated()

    def _allocated(self) -> tuple[Any, tuple[int, ...]]:
        number = os.memfd_create("subject", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(number, self.nbytes)
        # Sealed against shrinking, because reading truncated memory would kill this process.
        fcntl.fcntl(number, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return attached(self.nbytes, number), (number,)

    def close_passed(self) -> None:
        """Close the descriptor once it has been passed on; the memory stays."""
        for number in self.passed:
            os.close(number)
        self.passed = ()

    def empty(self, nbytes: int, dtype: Any = np.uint8) -> Any:
        """Allocate the next bytes of the block; replaces a module's `empty`."""
        start, self._used = self._used, self._used + round_up(nbytes, ALIGNMENT)
        return self.bytes[start : start + nbytes]

    def place(self, array: Any, dtype: str, shape: tuple[int, ...]) -> Place:
        return Place(address(array) - address(self.bytes), dtype, shape)


class CudaBlock(HostBlock):
    """A block of GPU memory. Raises NoDevice if CUDA cannot share memory between processes."""

    def _allocated(self) -> tuple[Any, tuple[int, ...]]:
        self.nbytes = round_up(self.nbytes, WHOLE)
        found, self.handle = exported(self.nbytes)
        return found, ()


class SharedMemory(CaseMemory):
    """A case's memory within a block."""

    def __init__(self, pristine: Mapping[str, Any], fields: Mapping[str, Field], block: HostBlock):
        self.pristine, self._of = dict(pristine), block
        self.inputs = {name: block.empty(value.nbytes) for name, value in self.pristine.items()}
        self.outputs = {name: Guarded(field, block) for name, field in fields.items()}
        self.put(self.pristine)


def needed(sizes: Sequence[int], fields: Mapping[str, Field]) -> int:
    """The bytes of a block for one copy. sizes: the inputs'"""
    outputs = [2 * GUARD + field.allocated for field in fields.values()]
    return sum(round_up(nbytes, ALIGNMENT) for nbytes in (*sizes, *outputs))


def attached(nbytes: int, number: int) -> np.ndarray:
    """The memory behind a file descriptor."""
    return np.frombuffer(mmap.mmap(number, nbytes), np.uint8)


def exported(nbytes: int) -> tuple[Any, bytes]:
    """Allocate GPU memory outside of any pool; returns it with its handle for another process."""
    import cupy

    try:
        owner = cupy.cuda.Memory(nbytes)
        handle = cupy.cuda.runtime.ipcGetMemHandle(owner.ptr)
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise NoDevice(f"a subject's process cannot be given {nbytes >> 20} MiB of the GPU: {error}") from None
    return cupy.ndarray((nbytes,), cupy.uint8, memptr=cupy.cuda.MemoryPointer(owner, 0)), bytes(handle)


def imported(nbytes: int, handle: bytes) -> Any:
    """Map another process's GPU memory."""
    import cupy

    owner = cupy.cuda.UnownedMemory(cupy.cuda.runtime.ipcOpenMemHandle(handle), nbytes, None)
    return cupy.ndarray((nbytes,), cupy.uint8, memptr=cupy.cuda.MemoryPointer(owner, 0))


def returned(block: Any) -> None:
    """Unmap memory from `imported`."""
    import cupy

    cupy.cuda.runtime.ipcCloseMemHandle(block.data.ptr)


def address(array: Any) -> int:
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr
