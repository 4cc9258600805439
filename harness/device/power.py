"""What a GPU's power and clocks are held to, read through NVML, which comes with the driver."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

UNKNOWN = "unknown"

# Bits of nvmlDeviceGetCurrentClocksThrottleReasons, by nvml.h, without those of an idle GPU and of clocks that are set.
_REASONS = {
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x020: "thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "power brake",
}


def power_limit_w(pci_bus_id: str) -> str:
    """Watts as text, `700`; UNKNOWN where the library is missing or does not know."""
    milliwatts = _asked(pci_bus_id, "nvmlDeviceGetPowerManagementLimit", ctypes.c_uint())
    return UNKNOWN if milliwatts is None else f"{milliwatts / 1000:.0f}"


def condition(pci_bus_id: str) -> dict[str, Any]:
    """Watts that the GPU takes now, and why its clocks are held back; empty where the library does not know.

    power_w: over the last second on a Hopper; throttle: `power cap, thermal slowdown`, or an empty text
    """
    milliwatts = _asked(pci_bus_id, "nvmlDeviceGetPowerUsage", ctypes.c_uint())
    reasons = _asked(pci_bus_id, "nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong())
    found: dict[str, Any] = {} if milliwatts is None else {"power_w": round(milliwatts / 1000, 1)}
    if reasons is not None:
        found["throttle"] = ", ".join(name for bit, name in _REASONS.items() if reasons & bit)
    return found


def _asked(pci_bus_id: str, function: str, number: Any) -> int | None:
    """What a function of NVML says of a GPU, or None."""
    opened = _opened(pci_bus_id)
    if opened is None:
        return None
    library, device = opened
    try:
        failed = getattr(library, function)(device, ctypes.byref(number))
    except AttributeError:  # a library without the function
        return None
    return None if failed else number.value


@lru_cache(maxsize=16)
def _opened(pci_bus_id: str) -> tuple[Any, ctypes.c_void_p] | None:
    """The library and its handle of a GPU."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        device = ctypes.c_void_p()
        failed = library.nvmlInit_v2() or library.nvmlDeviceGetHandleByPciBusId_v2(
            pci_bus_id.encode(), ctypes.byref(device)
        )
    except (OSError, AttributeError):
        return None
    return None if failed else (library, device)
