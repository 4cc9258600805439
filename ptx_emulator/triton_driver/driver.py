"""Triton's driver interface, and what host code asks of `torch.cuda`, answered by the emulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn

from ptx_emulator.errors import UsageError
from ptx_emulator.launches import LARGEST_SHARED, Module
from ptx_emulator.triton_driver.launcher import Launcher, Settings

MULTIPROCESSORS = 4  # for sizing persistent grids, as for our own recipes


@contextmanager
def answered(arch: int) -> Iterator[None]:
    """Make `torch.cuda` describe the emulated GPU, and ignore calls that choose a device or wait for one.

    `torch.cuda.is_available()` stays False, because the device has no memory.
    """
    import torch

    before = {name: getattr(torch.cuda, name) for name in ("device", "device_of")}
    replaced: dict[str, Any] = {
        **{name: _none_of_cpu(original) for name, original in before.items()},
        "current_device": lambda: 0,
        "synchronize": lambda device=None: None,
        "get_device_capability": lambda device=None: divmod(arch, 10),
        "get_device_properties": lambda device=None: properties(arch),
    }
    before |= {name: getattr(torch.cuda, name) for name in replaced}
    for name, function in replaced.items():
        setattr(torch.cuda, name, function)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(torch.cuda, name, function)


def properties(arch: int) -> SimpleNamespace:
    """The emulated GPU's properties, by torch's names."""
    return SimpleNamespace(
        name=f"emulated sm_{arch}", major=arch // 10, minor=arch % 10, multi_processor_count=MULTIPROCESSORS,
        warp_size=32, shared_memory_per_block_optin=LARGEST_SHARED, max_threads_per_multi_processor=2048,
    )  # fmt: skip


def _none_of_cpu(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`torch.cuda.device(x.device)` that does nothing for the CPU and is unchanged for a GPU."""
    import torch

    def choose(of: Any) -> Any:
        device = of.device if isinstance(of, torch.Tensor) else of
        return nullcontext() if device is None or torch.device(device).type == "cpu" else original(of)

    return choose


class Loaded(NamedTuple):
    """A kernel that can be launched."""

    module: Module
    name: str


class Utils:
    """Replaces the C functions of Triton's driver. cache: the folder for decoded kernels"""

    def __init__(self, cache: Path):
        self._cache = cache

    def get_device_properties(self, device: object) -> dict[str, int]:
        return {
            "max_shared_mem": LARGEST_SHARED, "max_num_regs": 65536, "multiprocessor_count": MULTIPROCESSORS,
            "warpSize": 32, "sm_clock_rate": 0, "mem_clock_rate": 0, "mem_bus_width": 0,
        }  # fmt: skip

    def load_binary(
        self, name: str, kernel: bytes, shared: int, device: object
    ) -> tuple[Module, Loaded, int, int, int]:
        """The module, its kernel, and counts of registers, spills and threads; for PTX these are 0, 0 and 1024."""
        module = Module(kernel.decode(), self._cache)
        return module, Loaded(module, name), 0, 0, 1024


def _current() -> Settings:
    """The settings of the open block, which may differ from the block that a kernel was compiled in."""
    from triton.runtime import driver

    if not isinstance(driver.active, EmulatedDriver):
        raise UsageError("this kernel was compiled in a block of triton_on that has ended; launch it in one")
    return driver.active.settings


class EmulatedDriver:
    """The driver for one target. arch: its number, 100 for sm_100a"""

    def __init__(self, arch: int, settings: Settings, cache: Path):
        self.arch, self.settings, self.utils = arch, settings, Utils(cache)

    def launcher_cls(self, source: Any, metadata: Any) -> Launcher:
        return Launcher(_current, source, metadata)

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.arch, 32)

    def get_current_device(self) -> str:
        """The key under which Triton keeps compiled kernels in this process; it must differ from any GPU's number."""
        return f"emulated sm_{self.arch}"

    def set_current_device(self, device: object) -> None:
        """Do nothing: there is only one device."""

    def get_current_stream(self, device: object) -> int:
        return 0

    def get_device_capability(self, device: object = None) -> tuple[int, int]:
        return divmod(self.arch, 10)

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_device_interface(self) -> NoReturn:
        """The module from which `triton.testing.do_bench` takes events."""
        with self.settings.errors.raised():
            raise UsageError("an emulator has no times, so triton_on has no do_bench; measure on a GPU")

    def get_empty_cache_for_benchmark(self) -> NoReturn:
        self.get_device_interface()

    def get_benchmarker(self) -> Callable[..., NoReturn]:
        return lambda *args, **options: self.get_device_interface()

    def map_python_to_cpp_type(self, kind: str) -> str:
        return kind

    def assemble_tensormap_to_arg(self, tensormaps_info: object, args: Any) -> Any:
        return args

    @staticmethod
    def is_active() -> bool:
        return True
