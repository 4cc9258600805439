"""The power limit of a GPU, which decides its clocks, read through NVML, which comes with the driver."""

from __future__ import annotations

import ctypes

UNKNOWN = "unknown"


def power_limit_w(pci_bus_id: str) -> str:
    """Watts as text, `700`; UNKNOWN where the library is missing or does not know."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return UNKNOWN
    device, milliwatts = ctypes.c_void_p(), ctypes.c_uint()
    calls = (
        lambda: library.nvmlInit_v2(),
        lambda: library.nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id.encode(), ctypes.byref(device)),
        lambda: library.nvmlDeviceGetPowerManagementLimit(device, ctypes.byref(milliwatts)),
    )
    try:
        failed = any(call() for call in calls)
    except AttributeError:  # a library without one of these functions
        return UNKNOWN
    return UNKNOWN if failed else f"{milliwatts.value / 1000:.0f}"
