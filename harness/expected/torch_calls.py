"""Torch oracles called with NumPy's arrays."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from harness.contract.case import Case
from harness.contract.interval import Demand, Interval
from harness.device.memory import KEPT, kept_or_uploaded
from harness.errors import DeviceUnavailable

if TYPE_CHECKING:
    import torch

_may_use_gpus = True


def ask_torch(
    oracle: Any, case: Case, inputs: Mapping[str, np.ndarray], device: str = "cpu", alone: bool = False
) -> dict[str, Demand]:
    """The answer of the torch oracle of the module `oracle`, in NumPy's arrays. Raises DeviceUnavailable without torch.

    alone: whether no other oracle is asked; intervals then come without the sums, which are several times as large
    """
    try:
        import torch  # noqa: F401
    except ImportError:
        raise DeviceUnavailable(
            "torch is not installed, so there is no second oracle and nothing can be compared; `pip install torch`"
        ) from None
    tensors = {name: _on(device, value) for name, value in inputs.items()}
    answers = oracle.torch_oracle(case, tensors)
    if alone:
        answers = {name: value.bounds if isinstance(value, Interval) else value for name, value in answers.items()}
    return {name: from_torch(value) for name, value in answers.items()}


def _on(device: str, array: np.ndarray) -> torch.Tensor:
    """The array as a torch tensor on a device.

    On a GPU it shares the copy in `KEPT`, so that it is uploaded only once.
    """
    if device != "cuda" or not array.size:
        return to_torch(array).to(device)
    import torch

    content = torch.from_dlpack(kept_or_uploaded(array))
    return content.view(to_torch(np.empty(0, array.dtype)).dtype).view(array.shape)


def leave_gpus_alone() -> None:
    """Make torch use one CPU core in this process, which may have been forked from one that uses the GPU."""
    global _may_use_gpus
    _may_use_gpus = False
    with suppress(ImportError):
        import torch

        torch.set_num_threads(1)


def fastest_device() -> str:
    """`cuda` if torch sees a GPU, else `cpu`."""
    if not _may_use_gpus:
        return "cpu"
    try:
        import torch
    except ImportError:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def to_torch(array: np.ndarray):
    import torch

    # Torch cannot read arrays of ml_dtypes.
    array = np.ascontiguousarray(array)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def from_torch(tensor) -> Demand:
    """A tensor on any device, or an interval of tensors, in NumPy's arrays. The GPU's copy stays in `KEPT`."""
    import torch

    if isinstance(tensor, Interval):
        return tensor.map(from_torch)
    host = _downloaded(tensor)
    array = host.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if host.dtype == torch.bfloat16 else host.numpy()
    if tensor.is_cuda and tensor.numel():
        import cupy

        KEPT.keep(array, cupy.from_dlpack(tensor.reshape(-1).view(torch.uint8)))
    return array


def _downloaded(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_cuda or not KEPT.limit:
        return tensor.cpu()
    import torch

    # Through pinned memory, which is several times as fast; torch reuses it for the next copy.
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor)
