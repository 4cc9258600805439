"""Choose the device that a command line asks for.

A device is imported when it is chosen, because every command reads the names here and must refuse a wrong word at once.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from harness.device.capability import gpu_count
from harness.errors import DeviceUnavailable, UsageError
from harness.files import KERNELS

if TYPE_CHECKING:
    from harness.device.device import Device

NAMES = ("auto", "emulator", "cuda")


def select(name: str = "auto", index: int = 0, kernels: Path = KERNELS) -> Device:
    """The device of that name; `auto` is a CUDA device if there is one, else the emulator.

    index: which GPU; kernels: the folder of the `.cu` files. Raises DeviceUnavailable if `cuda` is asked for and
    absent, UsageError for an unknown name.
    """
    if name not in NAMES:
        raise UsageError(f"there is no device {name!r}; choose {', '.join(NAMES)}")
    if name != "emulator":
        from harness.device.cuda import CudaDevice

        try:
            return CudaDevice(index, kernels)
        except DeviceUnavailable:
            if name == "cuda":
                raise
    from harness.device.emulator import EmulatorDevice

    return EmulatorDevice(kernels)


def require_clock(name: str) -> None:
    """Raise DeviceUnavailable, within a second, unless the device of that name has a clock, as GPUs have."""
    if name == "cuda" and not gpu_count():
        select(name)
    if name == "emulator" or not gpu_count():
        why = "the emulator has no clock" if name == "emulator" else "CUDA sees none here"
        raise DeviceUnavailable(f"a bench needs a GPU, and {why}; `harness verify` compares the bytes on any machine")


@lru_cache(maxsize=1)
def gpu_is_there() -> bool:
    """Whether `auto` selects a GPU."""
    return select().name == "cuda"
