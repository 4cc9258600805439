"""A GPU's power, energy and temperature, its power limit, and why its clocks are held back.

All are read through NVML, which comes with the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

UNKNOWN = "unknown"


def power_limit_w(pci_bus_id: str) -> str:
    """Watts as text, `700`; UNKNOWN where the library is missing or does not know."""
    import pynvml

    milliwatts = _asked(pci_bus_id, pynvml.nvmlDeviceGetPowerManagementLimit)
    return UNKNOWN if milliwatts is None else f"{milliwatts / 1000:.0f}"


def condition(pci_bus_id: str) -> dict[str, Any]:
    """Watts that the GPU takes now, and why its clocks are held back; empty where the library does not know.

    power_w: over the last second on a Hopper; throttle: `power cap, thermal slowdown`, or an empty text
    """
    import pynvml

    # Reasons for an idle GPU and for clocks that a user set are left out.
    names = {
        pynvml.nvmlClocksThrottleReasonSwPowerCap: "power cap",
        pynvml.nvmlClocksThrottleReasonHwSlowdown: "hardware slowdown",
        pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: "thermal slowdown",
        pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "hardware thermal slowdown",
        pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "power brake",
    }
    milliwatts = _asked(pci_bus_id, pynvml.nvmlDeviceGetPowerUsage)
    reasons = _asked(pci_bus_id, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
    found: dict[str, Any] = {} if milliwatts is None else {"power_w": round(milliwatts / 1000, 1)}
    if reasons is not None:
        found["throttle"] = ", ".join(name for bit, name in names.items() if reasons & bit)
    return found


def energy_mj(pci_bus_id: str) -> int | None:
    """Millijoules that the GPU has taken since its driver was loaded; None where the library does not count them."""
    import pynvml

    return _asked(pci_bus_id, pynvml.nvmlDeviceGetTotalEnergyConsumption)


def celsius(pci_bus_id: str) -> int | None:
    """Temperature of the GPU, None where the library does not know."""
    import pynvml

    return _asked(pci_bus_id, lambda handle: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))


def _asked(pci_bus_id: str, function: Callable[[Any], int]) -> int | None:
    """Call a function of NVML on a GPU; None if it fails."""
    import pynvml

    try:
        return function(_handle(pci_bus_id))
    except pynvml.NVMLError:  # no driver, no such GPU, or a driver without the function
        return None


@lru_cache(maxsize=16)
def _handle(pci_bus_id: str) -> Any:
    """NVML's handle of a GPU. Raises NVMLError."""
    import pynvml

    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
