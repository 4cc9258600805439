"""Launch a kernel that may begin before the previous one has ended, by `cuLaunchKernelEx`, which CuPy lacks.

Under capture it becomes a programmatic edge of the graph, with CUDA 12.3 or later.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from harness.errors import LaunchError
from harness.jit.geometry import Grid

SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_SUCCESS = 0


class Value(ctypes.Union):
    """CUlaunchAttributeValue, with only the member that is used here."""

    _fields_ = (("serialization", ctypes.c_int), ("pad", ctypes.c_char * 64))


class Attribute(ctypes.Structure):
    """CUlaunchAttribute"""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * (8 - ctypes.sizeof(ctypes.c_int))), ("value", Value))


class Config(ctypes.Structure):
    """CUlaunchConfig"""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


class EarlyLaunch:
    """Queues a kernel on CuPy's current stream, early, each time it is called.

    function: a CUfunction of the driver; name: for messages; arguments: NumPy scalars and CuPy arrays
    Raises LaunchError where the driver has no such launch.
    """

    def __init__(self, function: int, name: str, grid: Grid, threads: int, arguments: Sequence[Any]):
        self._driver, self._function, self._name = driver(), ctypes.c_void_p(function), name
        self._arguments = arguments  # keeps the arrays alive while their addresses are used
        self._values = [_bytes_of(argument) for argument in arguments]
        addresses = [ctypes.addressof(value) for value in self._values]
        self._pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        self._attribute = Attribute(id=SERIALIZATION, value=Value(serialization=1))
        self._config = Config(*grid, threads, 1, 1, 0, None, ctypes.pointer(self._attribute), 1)

    def __call__(self) -> None:
        """Queue the kernel. Raises LaunchError for any driver error."""
        import cupy

        self._config.stream = cupy.cuda.get_current_stream().ptr
        status = self._driver.cuLaunchKernelEx(ctypes.byref(self._config), self._function, self._pointers, None)
        if status != _SUCCESS:
            raise LaunchError(f"cuLaunchKernelEx of {self._name}, early: {_error(self._driver, status)}")


def _bytes_of(argument: Any) -> Any:
    """Copy a parameter's bytes into new memory."""
    scalar = argument if isinstance(argument, np.generic) else np.uint64(argument.data.ptr)
    return (ctypes.c_char * scalar.nbytes).from_buffer_copy(scalar.tobytes())


def _error(library: Any, status: int) -> str:
    text = ctypes.c_char_p()
    known = library.cuGetErrorString(status, ctypes.byref(text)) == _SUCCESS and text.value
    return f"{text.value.decode()} (CUresult {status})" if known else f"CUresult {status}"


@cache
def driver() -> Any:
    """Load the CUDA driver. Raises LaunchError if it is missing or lacks early launches."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise LaunchError(f"the CUDA driver cannot be loaded, for a launch that is early: {error}") from None
    if not hasattr(library, "cuLaunchKernelEx"):
        raise LaunchError("the CUDA driver has no cuLaunchKernelEx; a launch that is early needs CUDA 12 or later")
    library.cuLaunchKernelEx.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    library.cuGetErrorString.argtypes = (ctypes.c_int, ctypes.c_void_p)
    return library
