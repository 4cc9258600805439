"""Launch kernels on a GPU through cuda-bindings, with tensor maps that the driver encodes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from harness.errors import DeviceUnavailable
from ptx_emulator.tensor_map import SIZE, SLICES, SWIZZLES, TYPES, TensorMap

_ALIGNMENT = 64  # bytes, of the driver's tensor maps


def _driver() -> Any:
    from cuda.bindings import driver

    return driver


def checked(result: tuple) -> Any:
    """The results of a driver call without its status. Raises RuntimeError for any status but success."""
    status, *rest = result
    if int(status) != 0:
        raise RuntimeError(f"the CUDA driver says {status}")
    return rest[0] if len(rest) == 1 else tuple(rest)


def device() -> str | None:
    """The target of the first GPU, such as `sm_90a`, with its context made current; None without a Hopper or newer."""
    driver = _driver()
    try:
        if int(driver.cuInit(0)[0]) != 0 or int(driver.cuDeviceGetCount()[1]) == 0:
            return None
    except RuntimeError:  # no driver
        return None
    found = checked(driver.cuDeviceGet(0))
    names = driver.CUdevice_attribute
    major = checked(driver.cuDeviceGetAttribute(names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, found))
    minor = checked(driver.cuDeviceGetAttribute(names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, found))
    if major < 9:
        return None
    checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(found))))
    return f"sm_{major}{minor}a"


def gpu_name() -> str:
    """The name of the first GPU. Raises DeviceUnavailable."""
    if device() is None:
        raise DeviceUnavailable("there is no GPU from Hopper on, which compute-sanitizer needs for these kernels")
    driver = _driver()
    return checked(driver.cuDeviceGetName(128, checked(driver.cuDeviceGet(0)))).split(b"\0")[0].decode()


def encoded(found: TensorMap) -> bytes:
    """The driver's 128 bytes for a tensor at its address on the GPU. Raises RuntimeError if the driver refuses.

    The driver writes to an address that is a multiple of 64, which memory of cuda-bindings need not be.
    """
    room = ctypes.create_string_buffer(SIZE + _ALIGNMENT)
    place = -(-ctypes.addressof(room) // _ALIGNMENT) * _ALIGNMENT

    def wide(values: Sequence[int]) -> Any:
        return (ctypes.c_uint64 * max(1, len(values)))(*values)

    def narrow(values: Sequence[int]) -> Any:
        return (ctypes.c_uint32 * len(values))(*values)

    status = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled(
        ctypes.c_void_p(place), TYPES.index(found.kind), ctypes.c_uint32(len(found.extents)),
        ctypes.c_void_p(found.address), wide(found.extents), wide(found.strides), narrow(found.box),
        narrow(found.steps), tuple(SLICES).index(found.interleave), tuple(SWIZZLES).index(found.swizzle), 0,
        int(found.fills_nan),
    )  # fmt: skip
    if status != 0:
        raise RuntimeError(f"the CUDA driver says {_driver().CUresult(status)} of {found}")
    return ctypes.string_at(place, SIZE)


class OnGpu:
    """Machine code and arrays on the GPU, while a `with` lasts.

    arrays: uint8, by name; addresses: on the GPU, by name
    """

    def __init__(self, cubin: bytes, arrays: Mapping[str, np.ndarray]):
        self._driver, self._arrays = _driver(), arrays
        self._module = checked(self._driver.cuModuleLoadData(cubin))
        self.addresses: dict[str, int] = {}

    def __enter__(self) -> OnGpu:
        for name, array in self._arrays.items():
            self.addresses[name] = int(checked(self._driver.cuMemAlloc(array.nbytes)))
            checked(self._driver.cuMemcpyHtoD(self.addresses[name], array.ctypes.data, array.nbytes))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for address in self.addresses.values():
            self._driver.cuMemFree(address)
        self._driver.cuModuleUnload(self._module)

    def launch(
        self, kernel: str, grid: int, block: int, arguments: Sequence[str | bytes | int], shared: int = 0,
        early: bool = False,
    ) -> None:  # fmt: skip
        """Queue a launch. arguments: names of arrays, bytes of a struct, or integers; early: before the last ended"""
        driver = self._driver
        function = checked(driver.cuModuleGetFunction(self._module, kernel.encode()))
        if shared > 48 << 10:
            most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            checked(driver.cuFuncSetAttribute(function, most, shared))
        kept = [self._argument(each) for each in arguments]
        pointers = (ctypes.c_void_p * len(kept))(*(ctypes.addressof(value) for value in kept))
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = block, 1, 1
        config.sharedMemBytes = shared
        if early:
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            config.attrs, config.numAttrs = [attribute], 1
        checked(driver.cuLaunchKernelEx(config, function, ctypes.addressof(pointers), 0))

    def _argument(self, given: str | bytes | int) -> Any:
        if isinstance(given, bytes):
            return ctypes.create_string_buffer(given, len(given))
        return ctypes.c_uint64(self.addresses[given]) if isinstance(given, str) else ctypes.c_int32(given)

    def result(self) -> dict[str, np.ndarray]:
        """The arrays, once all launches have ended. Raises RuntimeError for a launch that failed."""
        checked(self._driver.cuCtxSynchronize())
        out = {name: np.empty_like(array) for name, array in self._arrays.items()}
        for name, array in out.items():
            checked(self._driver.cuMemcpyDtoH(array.ctypes.data, self.addresses[name], array.nbytes))
        return out
