"""Run an exercise on a GPU through cuda-bindings, with tensor maps that the driver encodes."""

from __future__ import annotations

import ctypes

import numpy as np
from cuda.bindings import driver, nvrtc
from cuda_source import OPTIONS
from exercises import Exercise, Tensor

from harness.emulator.tensor_map import SWIZZLES, TYPES, TensorMap


def _checked(result: tuple) -> object:
    status, *rest = result
    if int(status) != 0:
        raise RuntimeError(f"{type(status).__name__} {status}")
    return rest[0] if len(rest) == 1 else tuple(rest)


def device() -> str | None:
    """`sm_90a` of the first GPU, whose context becomes the current one; None if there is no GPU from Hopper on."""
    try:
        if int(driver.cuInit(0)[0]) != 0 or int(driver.cuDeviceGetCount()[1]) == 0:
            return None
    except RuntimeError:  # no driver
        return None
    found = _checked(driver.cuDeviceGet(0))
    names = driver.CUdevice_attribute
    major, minor = (
        _checked(driver.cuDeviceGetAttribute(name, found))
        for name in (names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                     names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
    )  # fmt: skip
    if major < 9:
        return None
    _checked(driver.cuCtxSetCurrent(_checked(driver.cuDevicePrimaryCtxRetain(found))))
    return f"sm_{major}{minor}a"


def cubin(source: str, arch: str) -> bytes:
    """Machine code; ValueError with NVRTC's log."""
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    options = [option.encode() for option in (*OPTIONS, f"-arch={arch}")]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(status) != 0:
        log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
        nvrtc.nvrtcGetProgramLog(program, log)
        raise ValueError(log.decode())
    code = bytearray(_checked(nvrtc.nvrtcGetCUBINSize(program)))
    _checked(nvrtc.nvrtcGetCUBIN(program, code))
    return bytes(code)


def encoded(found: TensorMap, address: int) -> bytes:
    """The driver's 128 bytes."""
    wide, narrow = driver.cuuint64_t, driver.cuuint32_t
    result = driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType(TYPES.index(found.kind)), len(found.extents), address,
        [wide(each) for each in found.extents], [wide(each) for each in found.strides] or [wide(0)],
        [narrow(each) for each in found.box], [narrow(each) for each in found.steps], driver.CUtensorMapInterleave(0),
        driver.CUtensorMapSwizzle(tuple(SWIZZLES).index(found.swizzle)), driver.CUtensorMapL2promotion(0),
        driver.CUtensorMapFloatOOBfill(int(found.fills_nan)),
    )  # fmt: skip
    return ctypes.string_at(int(_checked(result).getPtr()), 128)


def run(each: Exercise, arch: str) -> dict[str, np.ndarray]:
    """The arrays after a launch."""
    module = _checked(driver.cuModuleLoadData(cubin(each.source, arch)))
    function = _checked(driver.cuModuleGetFunction(module, b"k"))
    memory = {name: _checked(driver.cuMemAlloc(array.nbytes)) for name, array in each.arrays.items()}
    try:
        for name, array in each.arrays.items():
            _checked(driver.cuMemcpyHtoD(memory[name], array.ctypes.data, array.nbytes))
        if each.shared > 48 << 10:
            most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _checked(driver.cuFuncSetAttribute(function, most, each.shared))
        kept = [_argument(given, memory) for given in each.arguments]
        pointers = (ctypes.c_void_p * len(kept))(*(ctypes.addressof(value) for value in kept))
        _checked(driver.cuLaunchKernel(function, each.grid, 1, 1, each.block, 1, 1, each.shared, 0,
                                       ctypes.addressof(pointers), 0))  # fmt: skip
        _checked(driver.cuCtxSynchronize())
        out = {name: np.empty_like(array) for name, array in each.arrays.items()}
        for name, array in out.items():
            _checked(driver.cuMemcpyDtoH(array.ctypes.data, memory[name], array.nbytes))
        return out
    finally:
        for pointer in memory.values():
            driver.cuMemFree(pointer)
        driver.cuModuleUnload(module)


def _argument(given: str | Tensor | int, memory: dict[str, object]) -> ctypes.Array | ctypes._SimpleCData:
    if isinstance(given, Tensor):
        return ctypes.create_string_buffer(encoded(given.map, int(memory[given.array])), 128)
    if isinstance(given, str):
        return ctypes.c_uint64(int(memory[given]))
    return ctypes.c_int32(given)
