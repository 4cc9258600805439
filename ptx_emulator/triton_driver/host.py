"""Answers for CPU tensors to the `torch.cuda` calls of host code around Triton's kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

from ptx_emulator.launches import LARGEST_SHARED

MULTIPROCESSORS = 4  # for sizing persistent grids, as for our own recipes


@contextmanager
def answered(arch: int) -> Iterator[None]:
    """Make `torch.cuda` describe the emulated GPU, and ignore calls that choose a device or wait for one.

    `torch.cuda.is_available()` stays False, because the device has no memory.
    """
    import torch

    before = {name: getattr(torch.cuda, name) for name in ("device", "device_of")}
    replaced: dict[str, Any] = {
        **{name: _none_of_cpu(original) for name, original in before.items()},
        "current_device": lambda: 0,
        "synchronize": lambda device=None: None,
        "get_device_capability": lambda device=None: divmod(arch, 10),
        "get_device_properties": lambda device=None: properties(arch),
    }
    before |= {name: getattr(torch.cuda, name) for name in replaced}
    for name, function in replaced.items():
        setattr(torch.cuda, name, function)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(torch.cuda, name, function)


def properties(arch: int) -> SimpleNamespace:
    """The emulated GPU's properties, by torch's names."""
    return SimpleNamespace(
        name=f"emulated sm_{arch}", major=arch // 10, minor=arch % 10, multi_processor_count=MULTIPROCESSORS,
        warp_size=32, shared_memory_per_block_optin=LARGEST_SHARED, max_threads_per_multi_processor=2048,
    )  # fmt: skip


def _none_of_cpu(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`torch.cuda.device(x.device)` that does nothing for the CPU and is unchanged for a GPU."""
    import torch

    def choose(of: Any) -> Any:
        device = of.device if isinstance(of, torch.Tensor) else of
        return nullcontext() if device is None or torch.device(device).type == "cpu" else original(of)

    return choose
