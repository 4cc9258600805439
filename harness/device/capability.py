"""What a device can run, decided by the device and the case alone."""

from __future__ import annotations

from typing import Protocol

from harness.contract.case import Case
from harness.errors import NotCapable

# How reasons begin: those of a device, and those of cases outside of the flags that a function declares.
OF_THE_DEVICE = "capability:"
DECLARED = "the function is for "
BYTES_PER_ELEMENT = 16  # bytes of GPU memory for each element of a case, with the oracle's temporaries
CONTEXT = 1 << 30  # bytes of a GPU that CUDA and its libraries keep


class Admitting(Protocol):
    """The part of a device that says what it can run."""

    def admit(self, case: Case) -> None: ...


def incapable(case: Case, device: Admitting) -> str:
    """The reason why the device cannot run the case, or an empty string. Only this function catches NotCapable."""
    try:
        device.admit(case)
    except NotCapable as reason:
        return str(reason)
    return ""


def needed(case: Case) -> int:
    """Bytes of GPU memory for a case: several times its tensor, for pristine copies and the oracle's temporaries."""
    return BYTES_PER_ELEMENT * case.elements
