"""Checks of what the functions of a user's oracle return; each mistake is one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.contract.field import Field
from harness.contract.interval import Interval

HELD_TO_OUTPUTS = ("numpy_oracle", "torch_oracle")


def wrong(function: str, answer: Any, fields: Mapping[str, Field]) -> str:
    """A sentence on what is wrong with a function's answer, or "".

    fields: what `outputs` returned for the same case; only the oracles' answers must match it
    """
    if function == "outputs":
        return _not_mapping(function, answer, Field, "Fields") or ("" if answer else "outputs returned no field")
    if function == "inputs":
        return _not_mapping(function, answer, np.ndarray, "arrays of NumPy")
    return _of_oracle(function, answer, fields) if function in HELD_TO_OUTPUTS else ""


def _not_mapping(function: str, answer: Any, kind: type | tuple[type, ...], says: str) -> str:
    if not isinstance(answer, Mapping):
        what = "nothing" if answer is None else f"a {type(answer).__name__}"
        return f"{function} returned {what} and no dict; it returns {says} by name{_forgotten(answer)}"
    for name, value in answer.items():
        if not isinstance(value, kind):
            return f"{function}: '{name}' is a {type(value).__name__}, and {function} returns {says}"
    return ""


def _forgotten(answer: Any) -> str:
    return ", so its `return` is missing" if answer is None else ""


def _of_oracle(function: str, answer: Any, fields: Mapping[str, Field]) -> str:
    if function == "numpy_oracle":
        kinds, says = (np.ndarray, Interval), "arrays of NumPy"
    else:
        import torch

        kinds, says = (torch.Tensor, Interval), "tensors of torch"
    found = _not_mapping(function, answer, kinds, says)
    if found:
        return found
    if set(answer) != set(fields):
        return f"{function} returned {_listed(answer)}, and `outputs` has {_listed(fields)}"
    for name, field in fields.items():
        has = f"{str(answer[name].dtype).removeprefix('torch.')} {tuple(answer[name].shape)}"
        if has != f"{field.dtype} {tuple(field.shape)}":
            return f"{function}: '{name}' is {has}, and {field.dtype} {tuple(field.shape)} by `outputs`"
    return ""


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(map(str, names)) or "nothing"
