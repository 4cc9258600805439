"""The CPU for subjects that are functions of NumPy arrays; nothing is emulated or timed here."""

from __future__ import annotations

import platform

from harness.contract.case import Case
from harness.device.emulator import EmulatorDevice
from harness.errors import NotCapable

LARGEST = 1 << 26  # elements; beyond it, a case's oracles take minutes


class HostDevice(EmulatorDevice):
    """Compares arrays as the emulator does."""

    name = "host"
    targets = ("host",)

    def identity(self) -> dict[str, str]:
        return {"device": "host", "processor": platform.machine()}

    def admit(self, case: Case) -> None:
        if case.mode not in self.modes:
            raise NotCapable(f"capability: there are no CUDA graphs on a CPU; mode {case.mode!r} needs a GPU")
        if case.elements > LARGEST:
            raise NotCapable(f"capability: more than {LARGEST} elements need a GPU")
