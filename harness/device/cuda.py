"""A CUDA device through CuPy and torch: its identity, its memory, and programs on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from harness.contract.case import Case
from harness.contract.field import Field
from harness.contract.interval import Demand, Interval, inside
from harness.device.capability import CONTEXT, needed, require_cupy
from harness.device.cuda_code import native_target
from harness.device.cuda_program import CudaProgram, launches_of
from harness.device.gpu_account import GpuAccount, account_of
from harness.device.memory import KEPT, CaseMemory, equal_bytes, kept_or_uploaded
from harness.device.power import celsius, condition, energy_mj, power_limit_w
from harness.errors import DeviceUnavailable, NotCapable
from harness.files import KERNELS
from harness.jit.nvrtc import nvrtc_version

LARGE = 8  # where one process uses the GPU, a case that needs more than 1/LARGE of its memory is entered in the account
SHARES = 32  # where several do, they may use 1/SHARES of it together without asking

# Errors that no kernel causes: cudaErrorDevicesUnavailable, NoDevice, InvalidDevice, ECCUncorrectable, SystemNotReady.
_GONE = {46, 100, 101, 214, 802}


class CudaDevice:
    """The GPU with this index, running the `.cu` files of the folder `kernels`.

    suites: the folder of the suites that list their launches, if it is not this revision's

    Raises DeviceUnavailable if CuPy, torch with CUDA, or the GPU is missing.
    """

    name = "cuda"
    modes = frozenset({"eager", "graph"})
    subject_label = ""
    processes = 1  # of this run on this GPU
    contexts = 1  # CUDA contexts of this process and of a subject's

    def __init__(self, index: int = 0, kernels: Path = KERNELS, suites: Path | None = None):
        self.kernels, self.suites = kernels, suites
        try:
            require_cupy()
            import cupy
            import torch
        except ImportError as error:
            raise DeviceUnavailable(f"device 'cuda' needs CuPy and torch: {error}") from None
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise DeviceUnavailable(f"device 'cuda' was asked for, and CUDA sees no GPU: {error}") from None
        if index >= count:
            raise DeviceUnavailable(f"GPU {index} was asked for; CUDA sees {count}")
        if not torch.cuda.is_available():
            raise DeviceUnavailable(f"torch {torch.__version__} is a CPU build; the torch oracle must see the GPU")
        cupy.cuda.Device(index).use()
        torch.cuda.set_device(index)
        self.index = index
        self.properties = cupy.cuda.runtime.getDeviceProperties(index)
        self.memory = self.properties["totalGlobalMem"]
        self.multiprocessors = self.properties["multiProcessorCount"]
        self.targets = (native_target(self.properties["major"], self.properties["minor"]),)

    def identity(self) -> dict[str, str]:
        """GPU, power limit, driver, CUDA, compiler and L2: what two measurements must share to be compared."""
        import cupy

        return {
            "device": "cuda",
            "gpu": self.properties["name"].decode(),
            "multiprocessors": str(self.multiprocessors),
            "l2_bytes": str(self.properties["l2CacheSize"]),
            "power_limit_w": power_limit_w(cupy.cuda.Device(self.index).pci_bus_id),
            "driver": str(cupy.cuda.runtime.driverGetVersion()),
            "runtime": str(cupy.cuda.runtime.runtimeGetVersion()),
            "nvrtc": nvrtc_version(),
            "cupy": cupy.__version__,
        }

    def condition(self) -> dict[str, Any]:
        """Current power and throttle reasons."""
        import cupy

        return condition(cupy.cuda.Device(self.index).pci_bus_id)

    def energy_mj(self) -> int | None:
        """Millijoules since the driver was loaded, None if it does not count them."""
        import cupy

        return energy_mj(cupy.cuda.Device(self.index).pci_bus_id)

    def celsius(self) -> int | None:
        """Current temperature, None if the driver does not report it."""
        import cupy

        return celsius(cupy.cuda.Device(self.index).pci_bus_id)

    def admit(self, case: Case) -> None:
        if case.mode not in self.modes:
            raise NotCapable(f"capability: this device has no mode {case.mode!r}")
        if needed(case) + CONTEXT > self.memory:
            have = self.memory >> 30
            raise NotCapable(f"capability: needs about {needed(case) >> 30} GiB of GPU memory, there are {have}")

    @property
    def share(self) -> int:
        """Bytes that a case of this process may take without asking the other processes on the GPU."""
        return self.memory // (LARGE if self.processes <= 1 else SHARES * self.processes)

    @property
    def account(self) -> GpuAccount:
        return account_of(self.properties["uuid"], self.memory)

    @contextmanager
    def reserve(self, case: Case, needs: int = 0, alone: bool = False) -> Iterator[None]:
        """Wait for room on the GPU, over all processes, if the case is large or is to run alone."""
        wants = max(needs, needed(case))
        self.account.join(self.share, self.contexts)
        if wants <= self.share and not alone:
            try:
                yield
            finally:
                if self._kept() > self.share:
                    with suppress(RuntimeError):  # of a context that a kernel broke, whose process ends next
                        self.release()
            return
        with self.account.hold(case.id, wants, needed(case), self, alone):
            yield

    def free(self) -> int:
        """Bytes that are free on the GPU."""
        return import_module("cupy").cuda.runtime.memGetInfo()[0]

    def clear(self) -> None:
        """Free all that this process keeps between cases."""
        KEPT.clear()
        self.release()

    def _kept(self) -> int:
        """Bytes that CuPy and torch hold, in use or not."""
        return (
            import_module("cupy").get_default_memory_pool().total_bytes()
            + import_module("torch").cuda.memory_reserved()
        )

    def release(self) -> None:
        """Free what CuPy and torch keep for later arrays."""
        import cupy
        import torch

        cupy.get_default_memory_pool().free_all_blocks()
        torch.cuda.empty_cache()

    def lost(self) -> str:
        """The error that CUDA answers every call with once a kernel broke the context, or an empty string."""
        import cupy

        try:
            cupy.cuda.runtime.deviceSynchronize()
            cupy.cuda.runtime.memGetInfo()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            if error.status in _GONE:
                raise DeviceUnavailable(f"GPU {self.index} is there no more: {error}") from None
            return str(error)
        return ""

    def prepare(
        self, case: Case, target: str, inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]
    ) -> CudaProgram:
        if self.account.holds:
            # The oracle's temporaries, which torch keeps, and CuPy cannot use.
            import_module("torch").cuda.empty_cache()
        return CudaProgram(launches_of(self, case, target), case, CaseMemory.upload(inputs, fields))

    def accepts(self, actual, expected: Demand) -> bool:
        if isinstance(expected, Interval):
            # Works for bf16, too, which CuPy lacks, because numbers are compared as integers.
            ends = (kept_or_uploaded(end) for end in (expected.low, expected.high))
            return bool(inside(actual, *ends, expected.dtype.itemsize).all())
        return equal_bytes(actual, kept_or_uploaded(expected))

    def to_host(self, array, field: Field) -> np.ndarray:
        return array.get().view(field.dtype).reshape(field.shape)
