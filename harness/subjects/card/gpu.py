"""One case of a card on a GPU: PTX or a cubin through the CUDA driver, launched eagerly or from a graph."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.device.cuda_program import CudaProgram
from harness.device.memory import Guarded, Memory
from harness.errors import CompileError, LaunchError, NoDevice, SuiteError, UsageError
from harness.subjects.card.arguments import bytes_of, extent_of, extents_of
from harness.subjects.card.card import Card, with_masked_m
from harness.subjects.card.schema import Launch
from harness.suite.sizes import size_of
from ptx_emulator.tensor_elements import TYPES
from ptx_emulator.tensor_map import SLICES, SWIZZLES, TensorMap

_L2_PROMOTION = 0
# What the driver says before a kernel begins, of extents, shared memory or clusters that no launch can have.
_OF_THE_CARD = ("CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_CLUSTER_SIZE", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")


class CardOnGpu(CudaProgram):
    """A card's program on a GPU. Memory is checked as for our own kernels: guard bands, poison, unchanged inputs."""

    def __init__(self, card: Card, case: Case, target: str, memory: Memory):
        import cupy

        self.card, self.case, self.code = card, case, card.code_for(target)
        self.numbers = card.numbers(case)
        self.steps, self.kernels, self.grids, self.other_grids = (), (), (), ()
        self.early = ()
        self.libraries = (card.label,)  # tells this card's times from another card's
        self.side_stream = cupy.cuda.Stream(non_blocking=True)
        self._place(memory)
        cupy.cuda.get_current_stream().synchronize()

    @classmethod
    def uploaded(
        cls, card: Card, case: Case, target: str, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]
    ) -> CardOnGpu:
        return cls(card, case, target, Memory.upload(inputs, fields))

    def load_libraries(self) -> None:
        """Do nothing: modules are loaded when the calls are made."""

    def resplit(self, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> None:
        super().resplit(with_masked_m(self.case, inputs), fields)

    def renew(self) -> bool:
        _function.cache_clear()
        self.graph = None
        self.calls = self.other_calls = tuple(self._card_calls())
        return True

    def _place(self, memory: Memory) -> None:
        import cupy

        file = self.card.file
        self.memory = memory
        self.scratch = {
            name: cupy.zeros(size_of(size, self.numbers), cupy.uint8) for name, size in file.scratch.items()
        }
        self.workspace = {
            name: Guarded(Field((size_of(size, self.numbers),), "uint8")) for name, size in file.workspace.items()
        }
        guarded = {**memory.outputs, **self.workspace}
        self.arrays = {**memory.inputs, **{name: it.allocation for name, it in guarded.items()}, **self.scratch}
        self.tables: list[Any] = []  # arrays of pointers, kept alive as long as the calls
        self.calls = self.other_calls = tuple(self._card_calls())
        self.graph = None

    def address(self, name: str) -> int:
        return int(self.arrays[name].data.ptr)

    def _starts(self) -> Mapping[str, Sequence[int]]:
        return self.card.tensor_starts(self.case)

    def table(self, addresses: bytes) -> int:
        import cupy

        self.tables.append(cupy.asarray(np.frombuffer(addresses, np.uint8)))
        return int(self.tables[-1].data.ptr)

    def tensor_map(self, tensor: TensorMap) -> bytes:
        """A tensor map as the driver encodes it."""
        from cuda.bindings import driver

        tensor.check()
        rank = len(tensor.extents)
        found = _checked(driver.cuTensorMapEncodeTiled(
            driver.CUtensorMapDataType(_driver_type(tensor.kind)), rank, tensor.address,
            [driver.cuuint64_t(extent) for extent in tensor.extents],
            [driver.cuuint64_t(stride) for stride in tensor.strides],
            [driver.cuuint32_t(extent) for extent in tensor.box],
            [driver.cuuint32_t(step) for step in tensor.steps],
            driver.CUtensorMapInterleave(tuple(SLICES).index(tensor.interleave)),
            driver.CUtensorMapSwizzle(tuple(SWIZZLES).index(tensor.swizzle)),
            driver.CUtensorMapL2promotion(_L2_PROMOTION), driver.CUtensorMapFloatOOBfill(int(tensor.fills_nan)),
        ))  # fmt: skip
        return ctypes.string_at(int(found.getPtr()), 128)

    def _card_calls(self) -> Iterator[Callable[[], None]]:
        for number, each in self.card.launches(self.case):
            if each.zero is not None:
                yield self._zero(each.zero)
            else:
                yield self._call(self.card.document.where("launches", number), each)

    def _zero(self, name: str) -> Callable[[], None]:
        import cupy

        array = self.arrays[name]
        return lambda: array.data.memset_async(0, array.nbytes, cupy.cuda.get_current_stream())

    def _call(self, where: str, each: Launch) -> Callable[[], None]:
        """A launch with its arguments in place; the closure keeps them."""
        import cupy
        from cuda.bindings import driver

        function = _function(self.code.cubin or self.code.ptx.encode(), self.code.symbol(str(each.kernel)))
        self._require_parameters(where, each, function)
        try:
            contents = [bytes_of(argument, self, self.numbers, self._starts) for argument in each.arguments]
        except (UsageError, LaunchError) as error:  # of a number that does not fit, or a tensor map
            raise SuiteError(where, str(error)) from None
        held = [ctypes.create_string_buffer(content, len(content)) for content in contents]
        pointers = (ctypes.c_void_p * max(1, len(held)))(*(ctypes.addressof(content) for content in held))
        shared = size_of(each.shared, self.numbers)
        if shared:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._refused(where, driver.cuFuncSetAttribute(function, attribute, shared))
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = self._extents(each.grid)
        config.blockDimX, config.blockDimY, config.blockDimZ = self._extents(each.block)
        config.sharedMemBytes = shared
        attributes = self._attributes(each)
        config.attrs, config.numAttrs = attributes, len(attributes)

        def call(keep: Sequence[Any] = (held, pointers)) -> None:
            config.hStream = cupy.cuda.get_current_stream().ptr
            self._refused(where, driver.cuLaunchKernelEx(config, function, ctypes.addressof(keep[1]), 0))

        return call

    def _attributes(self, each: Launch) -> list[Any]:
        from cuda.bindings import driver

        found = []
        if each.cluster:
            attribute, value = driver.CUlaunchAttribute(), driver.CUlaunchAttributeValue()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = self._extents(each.cluster)
            attribute.value = value
            found.append(attribute)
        if each.early:
            attribute, value = driver.CUlaunchAttribute(), driver.CUlaunchAttributeValue()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            value.programmaticStreamSerializationAllowed = 1
            attribute.value = value
            found.append(attribute)
        return found

    def _require_parameters(self, where: str, each: Launch, function: Any) -> None:
        """Check a cubin's parameters, which are known only here."""
        from cuda.bindings import driver

        if not self.code.cubin:
            return
        sizes = []
        while not int((found := driver.cuFuncGetParamInfo(function, len(sizes)))[0]):
            sizes.append(int(found[2]))
        given = [extent_of(argument)[0] for argument in each.arguments]
        if sizes != given:
            raise SuiteError(where, f"'{each.kernel}' takes parameters of {sizes} bytes, and the card gives {given}")

    def _extents(self, said: Sequence[int | str]) -> tuple[int, ...]:
        return extents_of(said, self.numbers)

    def _refused(self, where: str, result: tuple) -> None:
        status = result[0].name
        if status in _OF_THE_CARD:
            raise SuiteError(where, f"CUDA refuses the launch: {status}")
        if status == "CUDA_ERROR_OUT_OF_MEMORY":
            raise NoDevice(f"{where}: CUDA: {status}")
        try:
            _checked(result)
        except LaunchError as error:
            raise LaunchError(f"{where}: {error}") from None


def _driver_type(kind: str) -> int:
    """The number of CUtensorMapDataType; `uint4` is 16U4_ALIGN8B, packed without gaps."""
    return TYPES.index(kind)


@lru_cache(maxsize=64)
def _function(image: bytes, entry: str) -> Any:
    """Load an entry of PTX, which the driver compiles, or of a cubin. Raises CompileError if the driver refuses it."""
    from cuda.bindings import driver

    try:
        module = _checked(driver.cuModuleLoadData(image if image[:4] == b"\x7fELF" else image + b"\0"))
        return _checked(driver.cuModuleGetFunction(module, entry.encode()))
    except LaunchError as error:
        raise CompileError(f"the driver refused the code of entry '{entry}': {error}") from None


def _checked(result: tuple) -> Any:
    """The results of a driver call without its status. Raises LaunchError for any status but success."""
    status, *values = result
    if int(status) != 0:
        raise LaunchError(f"CUDA: {status.name}")
    return values[0] if values else None
