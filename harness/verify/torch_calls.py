"""A torch oracle asked with NumPy's arrays, on the device where it answers soonest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from harness.contract.case import Case
from harness.contract.interval import Demand, Interval
from harness.errors import NotCapable


def ask_torch(
    oracle: Any, case: Case, inputs: Mapping[str, np.ndarray], device: str = "cpu", alone: bool = False
) -> dict[str, Demand]:
    """What the torch oracle of the module `oracle` demands, as NumPy has it. Raises NotCapable without torch.

    alone: no other witness is asked, so that intervals come without the sums behind them
    """
    try:
        import torch  # noqa: F401
    except ImportError:
        raise NotCapable(
            "capability: torch is not installed, so there is no second oracle; `pip install torch`"
        ) from None
    tensors = {name: to_torch(value).to(device) for name, value in inputs.items()}
    answers = oracle.torch_oracle(case, tensors)
    if alone:  # nobody will ask for the sums, which are several times as large
        answers = {name: value.bounds if isinstance(value, Interval) else value for name, value in answers.items()}
    return {name: from_torch(value) for name, value in answers.items()}


def fastest_device() -> str:
    """Where torch answers soonest: `cuda` if it sees a GPU, else `cpu`."""
    try:
        import torch
    except ImportError:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def to_torch(array: np.ndarray):
    """The array as a tensor; torch reads no ml_dtypes array, so bf16 goes by its bits."""
    import torch

    array = np.ascontiguousarray(array)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def from_torch(tensor) -> Demand:
    """The tensor, from whatever device, or the interval of tensors, as NumPy has it."""
    import torch

    if isinstance(tensor, Interval):
        return tensor.map(from_torch)
    tensor = tensor.cpu()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()
