"""The power limit, from a management library that is made up."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

from harness.device.power import UNKNOWN, power_limit_w


def management(**statuses):
    """A library whose calls return these statuses, 0 if not named."""

    def limit(device, milliwatts):
        milliwatts._obj.value = 650_000
        return statuses.get("limit", 0)

    return SimpleNamespace(
        nvmlInit_v2=lambda: statuses.get("init", 0),
        nvmlDeviceGetHandleByPciBusId_v2=lambda bus, device: statuses.get("handle", 0 if bus == b"0:1" else 2),
        nvmlDeviceGetPowerManagementLimit=limit,
    )


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
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    assert power_limit_w("0:1") == limit


def test_without_the_library_it_is_unknown(monkeypatch):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert power_limit_w("0:1") == UNKNOWN
