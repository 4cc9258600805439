"""What a device can run, decided by the device and the case alone; and whether CuPy is there, as only with a GPU."""

from __future__ import annotations

from importlib.machinery import NamespaceLoader
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


def require_cupy() -> None:
    """Import CuPy. Raises ImportError if it is absent, also where only a folder on `sys.path` has its name.

    Python imports such a folder, as the one that a clone of CuPy's repository makes, as an empty package.
    """
    import cupy

    if isinstance(getattr(getattr(cupy, "__spec__", None), "loader", None), NamespaceLoader):
        raise ImportError(
            f"No module named 'cupy'; the folder {next(iter(cupy.__path__))} is not CuPy, but has its name"
        )


def has_cupy() -> bool:
    try:
        require_cupy()
    except ImportError:
        return False
    return True


def gpu_count() -> int:
    """How many GPUs CUDA sees; 0 without CuPy."""
    if not has_cupy():
        return 0
    import cupy

    try:
        return cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0
