"""What a device can run, decided by the device and the case alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from harness.contract.case import Case
from harness.errors import NotCapable

BYTES_PER_ELEMENT = 16  # of a case, with the oracle's temporaries
CONTEXT = 1 << 30  # bytes that CUDA's context and its libraries keep


class Admitting(Protocol):
    """A device, or as much of one as is asked what it can run."""

    def admit(self, case: Case) -> None: ...


def incapable(case: Case, device: Admitting) -> str:
    """Why the device cannot run the case, or an empty string. The one place that NotCapable is caught."""
    try:
        device.admit(case)
    except NotCapable as reason:
        return str(reason)
    return ""


def needed(case: Case) -> int:
    """Bytes of GPU memory: the tensor several times over, for pristine copies and the oracle's temporaries."""
    return BYTES_PER_ELEMENT * case.elements


@dataclass(frozen=True)
class Gpu:
    """A CUDA device as far as it decides what can run there: by its memory in bytes, and by the ways to launch."""

    memory: int
    modes: Iterable[str] = frozenset({"eager", "graph"})

    def admit(self, case: Case) -> None:
        if case.mode not in self.modes:
            raise NotCapable(f"capability: this device has no mode {case.mode!r}")
        if needed(case) + CONTEXT > self.memory:
            have = self.memory >> 30
            raise NotCapable(f"capability: needs about {needed(case) >> 30} GiB of GPU memory, there are {have}")
