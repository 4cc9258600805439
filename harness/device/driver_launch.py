"""Launch a kernel by `cuLaunchKernelEx`, which CuPy lacks: early and cooperative launches, clusters, and arguments of
any bytes.

A launch that may begin before the previous one has ended becomes a programmatic edge of a captured graph, with CUDA
12.3 or later.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from harness.device.launches import BoundLaunch
from harness.errors import LaunchError, NoDevice, SuiteError
from harness.jit.geometry import Grid

SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
COOPERATIVE = 2  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE
CLUSTER = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
MOST_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_SUCCESS = 0
# What the driver says before a kernel begins, of extents, shared memory or clusters that no launch can have.
_OF_THE_CARD = ("CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_CLUSTER_SIZE", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
                "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE")  # fmt: skip


class Value(ctypes.Union):
    """CUlaunchAttributeValue, with only the members that are used here."""

    _fields_ = (("flag", ctypes.c_int), ("cluster", ctypes.c_uint * 3), ("pad", ctypes.c_char * 64))


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


class DriverLaunch:
    """Queues a kernel on CuPy's current stream each time it is called.

    function: a CUfunction of the driver; launch: its extents, shared memory, clusters, and whether it is early or
    cooperative
    arguments: bytes, NumPy scalars and CuPy arrays. Raises LaunchError where the driver has no such launch.
    """

    def __init__(self, function: int, launch: BoundLaunch, grid: Grid, arguments: Sequence[Any]):
        self._driver, self._function, self._launch = driver(), ctypes.c_void_p(function), launch
        self._arguments = arguments  # keeps the arrays alive while their addresses are used
        self._values = [_bytes_of(argument) for argument in arguments]
        addresses = [ctypes.addressof(value) for value in self._values]
        self._pointers = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        attributes = list(_attributes(launch))
        self._attributes = (Attribute * len(attributes))(*attributes) if attributes else None
        self._config = Config(*grid, *launch.block, launch.shared, None, self._attributes, len(attributes))
        if launch.shared:
            self._require(self._driver.cuFuncSetAttribute(self._function, MOST_SHARED, launch.shared))

    def __call__(self) -> None:
        """Queue the kernel. Raises LaunchError for any driver error, SuiteError for one of a card's launch itself."""
        import cupy

        self._config.stream = cupy.cuda.get_current_stream().ptr
        config = ctypes.byref(self._config)
        self._require(self._driver.cuLaunchKernelEx(config, self._function, self._pointers, None))

    def _require(self, status: int) -> None:
        if status == _SUCCESS:
            return
        where = self._launch.where
        if not where:
            text = _text(self._driver.cuGetErrorString, status)
            said = f"{text} (CUresult {status})" if text else f"CUresult {status}"
            raise LaunchError(f"cuLaunchKernelEx of {self._launch.name}, early: {said}")
        name = _text(self._driver.cuGetErrorName, status) or f"CUresult {status}"
        if name in _OF_THE_CARD:
            raise SuiteError(where, f"CUDA refuses the launch: {name}")
        raise (NoDevice if name == "CUDA_ERROR_OUT_OF_MEMORY" else LaunchError)(f"{where}: CUDA: {name}")


def _attributes(launch: BoundLaunch) -> Iterator[Attribute]:
    if launch.cluster:
        yield Attribute(id=CLUSTER, value=Value(cluster=launch.cluster))
    if launch.early:
        yield Attribute(id=SERIALIZATION, value=Value(flag=1))
    if launch.together:
        yield Attribute(id=COOPERATIVE, value=Value(flag=1))


def _bytes_of(argument: Any) -> Any:
    """Copy a parameter's bytes into new memory."""
    if not isinstance(argument, bytes):
        argument = (argument if isinstance(argument, np.generic) else np.uint64(argument.data.ptr)).tobytes()
    return (ctypes.c_char * len(argument)).from_buffer_copy(argument)


def _text(of: Callable[[int, Any], int], status: int) -> str:
    """The driver's name of a status; empty if it does not know it."""
    text = ctypes.c_char_p()
    known = of(status, ctypes.byref(text)) == _SUCCESS and text.value
    return text.value.decode() if known else ""


@cache
def driver() -> Any:
    """Load the CUDA driver. Raises LaunchError if it is missing or older than `cuLaunchKernelEx`."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise LaunchError(f"the CUDA driver cannot be loaded: {error}") from None
    if not hasattr(library, "cuLaunchKernelEx"):
        raise LaunchError("the CUDA driver has no cuLaunchKernelEx, which CUDA has since 12.0")
    library.cuLaunchKernelEx.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    library.cuFuncSetAttribute.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
    library.cuGetErrorString.argtypes = library.cuGetErrorName.argtypes = (ctypes.c_int, ctypes.c_void_p)
    return library
