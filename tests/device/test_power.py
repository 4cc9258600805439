"""The power limit, from a management library that is made up."""

from __future__ import annotations

from types import SimpleNamespace

import pynvml
import pytest

from harness.device.power import UNKNOWN, _handle, celsius, condition, energy_mj, power_limit_w


def management(**statuses):
    """A library whose calls return these statuses, 0 if not named."""

    def limit(device, milliwatts):
        milliwatts._obj.value = 650_000
        return statuses.get("limit", 0)

    def usage(device, milliwatts):
        milliwatts._obj.value = 321_456
        return statuses.get("usage", 0)

    def reasons(device, bits):
        bits._obj.value = 0x1 | 0x4 | 0x20
        return statuses.get("reasons", 0)

    def energy(device, millijoules):
        millijoules._obj.value = 5_000_000_123
        return statuses.get("energy", 0)

    def temperature(device, sensor, degrees):
        degrees._obj.value = 41
        return statuses.get("temperature", 0)

    return SimpleNamespace(
        nvmlDeviceGetTotalEnergyConsumption=energy,
        nvmlDeviceGetTemperature=temperature,
        nvmlInitWithFlags=lambda flags: statuses.get("init", 0),
        nvmlDeviceGetHandleByPciBusId_v2=lambda bus, device: statuses.get("handle", 0 if bus.value == b"0:1" else 2),
        nvmlDeviceGetPowerManagementLimit=limit,
        nvmlDeviceGetPowerUsage=usage,
        nvmlDeviceGetCurrentClocksThrottleReasons=reasons,
    )


@pytest.fixture(autouse=True)
def nothing_open(monkeypatch):
    _handle.cache_clear()
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    yield
    _handle.cache_clear()


@pytest.mark.parametrize(
    "library, limit",
    [
        (management(), "650"),
        (management(init=9), UNKNOWN),
        (management(handle=6), UNKNOWN),
        (management(limit=3), UNKNOWN),
        (SimpleNamespace(), UNKNOWN),
    ],
)
def test_what_the_library_tells(monkeypatch, library, limit):
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    assert power_limit_w("0:1") == limit


def test_without_the_library_it_is_unknown(monkeypatch):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", missing)
    assert power_limit_w("0:1") == UNKNOWN


@pytest.mark.parametrize(
    "library, found",
    [
        (management(), {"power_w": 321.5, "throttle": "power cap, thermal slowdown"}),
        (management(usage=3), {"throttle": "power cap, thermal slowdown"}),
        (management(reasons=3), {"power_w": 321.5}),
        (management(init=9), {}),
    ],
)
def test_the_condition_of_a_gpu(monkeypatch, library, found):
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    assert condition("0:1") == found


@pytest.mark.parametrize(
    ("library", "found"),
    [
        (management(), (5_000_000_123, 41)),
        (management(energy=3, temperature=3), (None, None)),
        (management(init=9), (None, None)),
    ],
)
def test_the_counter_of_energy_and_the_temperature(monkeypatch, library, found):
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    assert (energy_mj("0:1"), celsius("0:1")) == found
