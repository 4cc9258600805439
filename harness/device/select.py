"""Choose the device that a command line asks for."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from harness.device.cuda import CudaDevice
from harness.device.device import Device
from harness.device.emulator import EmulatorDevice
from harness.errors import DeviceUnavailable, UsageError
from harness.files import KERNELS

NAMES = ("auto", "emulator", "cuda")


def select(name: str = "auto", index: int = 0, kernels: Path = KERNELS) -> Device:
    """The device of that name; `auto` is a CUDA device if there is one, else the emulator.

    index: which GPU; kernels: the folder of the `.cu` files. Raises DeviceUnavailable if `cuda` is asked for and
    absent, UsageError for an unknown name.
    """
    if name not in NAMES:
        raise UsageError(f"there is no device {name!r}; choose {', '.join(NAMES)}")
    if name != "emulator":
        try:
            return CudaDevice(index, kernels)
        except DeviceUnavailable:
            if name == "cuda":
                raise
    return EmulatorDevice(kernels)


@lru_cache(maxsize=1)
def gpu_is_there() -> bool:
    """Whether `auto` selects a GPU."""
    return select().name == "cuda"
