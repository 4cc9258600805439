"""The caller's arrays: from NumPy, torch or CuPy, or from any other library through DLPack.

A result is in the library and on the device of the input; for an array that only speaks DLPack it is NumPy's or CuPy's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from harness.contract.dtypes import DTYPES
from harness.contract.field import Field
from harness.device.capability import has_cupy
from harness.errors import UsageError
from harness.expected.torch_calls import from_torch, to_torch

ALIGNMENT = 16  # bytes; every kernel assumes this alignment for every array

_OF_BYTES = ("float8_e4m3fn", "float4_e2m1fn_x2")  # of ml_dtypes and torch; float4_e2m1fn has a byte for each code
_NAMES = {dtype.name: name for name, dtype in DTYPES.items()}
_CPU, _CUDA = (1, 3), (2, 13)  # DLPack's device types: host memory, plain or pinned; GPU memory, plain or managed


class Library(Protocol):
    """The library of an array. gpu: the index of the GPU that the array is on, None on the CPU."""

    gpu: int | None

    def host(self, array: Any) -> np.ndarray:
        """Return the array as a NumPy array; from a GPU it is copied."""

    def like(self, array: np.ndarray) -> Any:
        """Convert a NumPy array to this library, on this device."""

    def empty(self, field: Field) -> Any:
        """Allocate an uninitialised array for a field on the GPU."""

    def flat(self, array: Any) -> Any:
        """The bytes of a contiguous array on the GPU, as a CuPy array that shares them."""

    def place(self, array: Any) -> tuple[int, str]:
        """Return a GPU array's address, and the method call, as text, that copies the array to another address."""

    def on_stream(self) -> Any:
        """A context in which CuPy queues on the stream that is current for the caller."""


class OfNumpy:
    gpu = None

    def host(self, array: np.ndarray) -> np.ndarray:
        return array

    def like(self, array: np.ndarray) -> np.ndarray:
        return array


class OfTorch:
    def __init__(self, device: Any):
        self.device = device
        self.gpu = device.index if device.type == "cuda" else None

    def host(self, array: Any) -> np.ndarray:
        try:
            return from_torch(array)
        except TypeError:  # NumPy has no such dtype
            raise UsageError(f"there is a {array.dtype} tensor; pass its bytes, .view(torch.uint8)") from None

    def like(self, array: np.ndarray) -> Any:
        return to_torch(array).to(self.device)

    def empty(self, field: Field) -> Any:
        import torch

        return torch.empty(field.shape, dtype=getattr(torch, field.dtype), device=self.device)

    def flat(self, array: Any) -> Any:
        import cupy

        size = array.numel() * array.element_size()
        memory = cupy.cuda.UnownedMemory(array.data_ptr(), size, array, self.gpu)
        return cupy.ndarray((size,), cupy.uint8, cupy.cuda.MemoryPointer(memory, 0))

    def place(self, array: Any) -> tuple[int, str]:
        return array.data_ptr(), "clone()"

    @contextmanager
    def on_stream(self) -> Iterator[None]:
        import cupy
        import torch

        address = torch.cuda.current_stream(self.device).cuda_stream
        stream = cupy.cuda.Stream.from_external(_Queue(address)) if address else cupy.cuda.Stream.null
        with cupy.cuda.Device(self.gpu), stream:
            yield


class _Queue:
    """A stream of CUDA's by its address, as other libraries ask for one. Its owner keeps it alive."""

    def __init__(self, address: int):
        self.address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.address


class OfCupy:
    def __init__(self, gpu: int):
        self.gpu = gpu

    def host(self, array: Any) -> np.ndarray:
        return array.get()

    def like(self, array: np.ndarray) -> Any:
        import cupy

        with cupy.cuda.Device(self.gpu):
            return cupy.asarray(array)

    def empty(self, field: Field) -> Any:
        import cupy

        dtype = DTYPES["bf16"] if field.dtype == "bfloat16" else np.dtype(field.dtype)
        try:
            return cupy.empty(field.shape, dtype)
        except (TypeError, ValueError):  # a CuPy without bf16 gets its bits
            return cupy.empty(field.shape, np.uint16)

    def flat(self, array: Any) -> Any:
        import cupy

        return array.reshape(-1).view(cupy.uint8)

    def place(self, array: Any) -> tuple[int, str]:
        return array.data.ptr, "copy()"

    @contextmanager
    def on_stream(self) -> Iterator[None]:
        import cupy

        with cupy.cuda.Device(self.gpu):
            yield


def taken(name: str, array: Any) -> tuple[Any, Library]:
    """Return the array as one of NumPy, torch or CuPy, and its library. name: for messages

    Raises UsageError, in one sentence, if it is not an array or not contiguous.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise UsageError(f"{name} is a masked array, whose mask no recipe knows; pass {name}.filled(0), or its .data")
    if isinstance(array, np.ndarray):
        plain = np.asarray(array)  # a subclass becomes a plain array
        return _contiguous(name, plain, plain.flags.c_contiguous, f"np.ascontiguousarray({name})"), OfNumpy()
    kind = type(array).__module__.partition(".")[0]
    if kind == "torch" and hasattr(array, "is_contiguous"):
        if str(array.layout) != "torch.strided" or array.is_nested or array.is_quantized:
            raise UsageError(f"{name} is a sparse, nested or quantized tensor of torch; it must be a dense one")
        array = array.detach().resolve_neg()  # torch may keep a view's negation as a flag, not in memory
        whole = _contiguous(name, array, array.is_contiguous(), f"{name}.contiguous()")
        if whole.device.type not in ("cpu", "cuda"):
            raise UsageError(f"{name} is on the device '{whole.device}'; it must be on the CPU or on a CUDA GPU")
        return whole, OfTorch(whole.device)
    if kind == "cupy" and hasattr(array, "flags"):
        whole = _contiguous(name, array, array.flags.c_contiguous, f"cupy.ascontiguousarray({name})")
        return whole, OfCupy(whole.device.id)
    if hasattr(array, "__dlpack_device__"):
        return taken(name, _exchanged(name, array))
    raise UsageError(
        f"{name} is a {type(array).__name__}; give an array of NumPy, torch or CuPy, or one that speaks DLPack"
    )


def require_aligned(name: str, array: Any, library: Library) -> None:
    """Raise UsageError for an array on the GPU that kernels cannot read. name: for messages

    They move 16 bytes at a time, and one such move from another address ends the CUDA context of the caller's process.
    """
    address, copied = library.place(array)
    off = address % ALIGNMENT
    if off and 0 not in array.shape:
        raise UsageError(
            f"{name} begins {off} bytes behind an address that is a multiple of {ALIGNMENT}, as kernels need it; pass "
            f"{name}.{copied}, whose memory is its own"
        )


def require_plain(name: str, array: Any) -> np.ndarray:
    """The array in NumPy. Raises UsageError, see `taken`."""
    whole, library = taken(name, array)
    return library.host(whole)


def bytes_of(array: Any) -> Any:
    """The bytes of an array of packed e2m1 or e4m3 that its library has a type for; any other array as it is."""
    if str(getattr(array, "dtype", "")).rpartition(".")[2] not in _OF_BYTES:
        return array
    if isinstance(array, np.ndarray):
        return array.view(np.uint8)
    import torch

    return array.view(torch.uint8)


def dtype_of(name: str, array: Any, said: str | None) -> str:
    """Return `bf16`, `fp16` or `fp32`. said: the caller's `dtype`; with "bf16", 16-bit integers are bits of bf16

    Raises UsageError for any other dtype, and for one that contradicts `said`.
    """
    spelled = str(array.dtype).rpartition(".")[2]
    if spelled in ("uint16", "int16") and said == "bf16":
        return "bf16"
    if spelled not in _NAMES:
        more = "; 16-bit integers are bits of bf16 if you say dtype='bf16'" if spelled in ("uint16", "int16") else ""
        raise UsageError(f"{name} is {spelled}; it must be bfloat16, float16 or float32{more}")
    if said not in (None, _NAMES[spelled]):
        raise UsageError(f"{name} is {spelled}, and dtype says {said}; leave dtype out, or convert the array")
    return _NAMES[spelled]


def as_dtype(array: np.ndarray, dtype: str) -> np.ndarray:
    """View a NumPy array of 16-bit integers as bf16; any other array is returned as it is."""
    return array.view(DTYPES[dtype]) if array.dtype.kind in "ui" and dtype == "bf16" else array


def _contiguous(name: str, array: Any, contiguous: bool, copied: str) -> Any:
    if not contiguous:
        raise UsageError(f"{name} of shape {tuple(array.shape)} is not contiguous in memory; pass {copied}")
    return array


def _exchanged(name: str, array: Any) -> Any:
    kind = int(array.__dlpack_device__()[0])
    try:
        if kind in _CPU:
            return _from_host(array)
        if kind in _CUDA and has_cupy():
            import cupy

            return cupy.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(f"{name}: DLPack does not hand this {type(array).__name__} over: {error}") from None
    raise UsageError(f"{name} is on a device that nothing here can read (DLPack's number {kind}); copy it to the CPU")


def _from_host(array: Any) -> np.ndarray:
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError):
        return np.asarray(array)  # NumPy's DLPack lacks bf16, but `__array__` may support it
