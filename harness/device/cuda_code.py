"""Kernels loaded on a GPU: ours from cubins, by CuPy; somebody else's PTX or cubin, by the driver."""

from __future__ import annotations

import ctypes
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from harness.device.launches import BoundLaunch, Constant
from harness.errors import CompileError, LaunchError, SuiteError
from harness.jit.compile import Compiled
from ptx_emulator.tensor_map import SLICES, SWIZZLES, TYPES, TensorMap

_L2_PROMOTION = 0


@contextmanager
def cuda_errors(where: str) -> Iterator[None]:
    """Raise LaunchError, which says `where`, for an error that CUDA reports."""
    import cupy

    try:
        yield
    except (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError) as error:
        raise LaunchError(f"{where}: {error}") from None


def native_target(major: int, minor: int) -> str:
    """The most specific target of a compute capability: `sm_90a` for 9.0, `sm_80` for 8.0."""
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


@lru_cache(maxsize=512)
def _module(cubin_path: str, together: bool):
    import cupy

    return cupy.RawModule(path=cubin_path, enable_cooperative_groups=together)


def load(kernel: Compiled, together: bool = False, renewal: int = 0):
    """The kernel's function from its cubin.

    together: launch so that all CTAs run at once, or fail
    renewal: number of a module with variables of its own; 0 for the one that all programs share
    """
    path = _copied(kernel.cubin_path, renewal) if renewal else kernel.cubin_path
    return _module(path, together).get_function(kernel.symbol)


@lru_cache(maxsize=512)
def _copied(cubin_path: str, renewal: int) -> str:
    """The path of a copy, which lasts as long as the process, because CuPy loads a path once."""
    return shutil.copy(cubin_path, tempfile.mkdtemp(prefix=f"{renewal}-", dir=_copies().name))


@lru_cache(maxsize=1)
def _copies() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="nvfp4-modules-")


def blocks_per_sm(kernel: Compiled) -> int:
    """How many CTAs of a kernel the driver says a multiprocessor holds at once."""
    import cupy

    return cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(load(kernel).kernel.ptr, kernel.launch.threads, 0)


def load_foreign(launch: BoundLaunch, contents: Sequence[bytes], renewal: int = 0) -> int:
    """The CUfunction of somebody else's launch.

    contents: its arguments, whose sizes are compared with the parameters of a cubin, known only here; renewal: as for
    `load`. Raises CompileError if the driver refuses the code, SuiteError for arguments of other sizes.
    """
    from cuda.bindings import driver

    function = _function(launch.code.image, launch.entry, renewal)
    sizes: list[int] = []
    while not launch.code.ptx and not int((found := driver.cuFuncGetParamInfo(function, len(sizes)))[0]):
        sizes.append(int(found[2]))
    given = [len(content) for content in contents]
    if not launch.code.ptx and sizes != given:
        sentence = f"'{launch.name}' takes parameters of {sizes} bytes, and the card gives {given}"
        raise SuiteError(launch.where, sentence)
    return int(function)


@lru_cache(maxsize=64)
def _function(image: bytes, entry: str, renewal: int) -> Any:
    """Load an entry of PTX, which the driver compiles, or of a cubin."""
    from cuda.bindings import driver

    try:
        return _checked(driver.cuModuleGetFunction(_loaded(image, renewal), entry.encode()))
    except LaunchError as error:
        raise CompileError(f"the driver refused the code of entry '{entry}': {error}") from None


@lru_cache(maxsize=64)
def _loaded(image: bytes, renewal: int) -> Any:
    """One module for all entries, so that they share its variables."""
    from cuda.bindings import driver

    return _checked(driver.cuModuleLoadData(image if image[:4] == b"\x7fELF" else image + b"\0"))


def set_variable(image: bytes, constant: Constant, content: bytes, renewal: int) -> int:
    """Set a variable of somebody else's code, and return its address. Raises SuiteError if there is none of its size.

    renewal: as for `load`, of a module that no other program uses
    """
    from cuda.bindings import driver

    status, address, size = driver.cuModuleGetGlobal(_loaded(image, renewal), constant.name.encode())
    if int(status) != 0:
        raise SuiteError(constant.where, f"the code has no variable '{constant.name}': {status.name}")
    if int(size) != len(content):
        sentence = f"'{constant.name}' has {int(size)} bytes, and the card gives {len(content)}"
        raise SuiteError(constant.where, sentence)
    _checked(driver.cuMemcpyHtoD(address, np.frombuffer(content, np.uint8).ctypes.data, len(content)))
    _checked(driver.cuCtxSynchronize())  # the copy may still be on its way
    return int(address)


def bytes_at(address: int, size: int) -> bytes:
    """The bytes of a GPU's memory there."""
    from cuda.bindings import driver

    held = np.empty(size, np.uint8)
    _checked(driver.cuMemcpyDtoH(held.ctypes.data, driver.CUdeviceptr(address), size))
    return held.tobytes()


def encoded(tensor: TensorMap) -> bytes:
    """A tensor map as the driver encodes it. Raises MalformedMap, LaunchError."""
    from cuda.bindings import driver

    tensor.check()
    kind = TYPES.index(tensor.kind)  # the number of CUtensorMapDataType; `uint4` is 16U4_ALIGN8B, without gaps
    found = _checked(driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType(kind), len(tensor.extents), tensor.address,
        [driver.cuuint64_t(extent) for extent in tensor.extents],
        [driver.cuuint64_t(stride) for stride in tensor.strides],
        [driver.cuuint32_t(extent) for extent in tensor.box],
        [driver.cuuint32_t(step) for step in tensor.steps],
        driver.CUtensorMapInterleave(tuple(SLICES).index(tensor.interleave)),
        driver.CUtensorMapSwizzle(tuple(SWIZZLES).index(tensor.swizzle)),
        driver.CUtensorMapL2promotion(_L2_PROMOTION), driver.CUtensorMapFloatOOBfill(int(tensor.fills_nan)),
    ))  # fmt: skip
    return ctypes.string_at(int(found.getPtr()), 128)


def _checked(result: tuple) -> Any:
    """The results of a driver call without its status. Raises LaunchError for any status but success."""
    status, *values = result
    if int(status) != 0:
        raise LaunchError(f"CUDA: {status.name}")
    return values[0] if values else None
