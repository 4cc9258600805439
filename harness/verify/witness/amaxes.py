"""Check the amaxes that an encode stage is given, by computing them again."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.contract.case import OWN, Case, FlagValue
from harness.verify.witness import magnitudes

SIDES = ("rowwise", "columnwise")
_AT_ONCE = 1 << 22  # elements that are rotated at a time
_OFF = 2.0**-7  # tolerated relative error of a gradient times a derivative


def objection(case: Case, inputs: Mapping[str, np.ndarray]) -> str:
    """Name a given amax that is not the input's, or return an empty text. The case is dense or a group."""
    given = {side: inputs[f"{side}_amax"] for side in SIDES if f"{side}_amax" in inputs}
    if not given or "input" not in inputs or _overflows(case, inputs):
        return ""
    for number, x in enumerate(_tensors(case, inputs)):
        for side in list(given):
            expected = amaxes(case, x, side)
            own, given[side] = given[side].reshape(-1)[: expected.size], given[side].reshape(-1)[expected.size :]
            wrong = np.flatnonzero(~_close(own, expected, case.flags.get("activation", "none") != "none"))
            if wrong.size:
                of = f" of tensor {number}" if case.is_group else ""
                return (
                    f"the given {side}_amax{of} is {own[wrong[0]]:g} at [{wrong[0]}]; the largest magnitude there is "
                    f"{expected[wrong[0]]:g}"
                )
    slack = case.problem.capacity is not None
    left = [side for side, amax in given.items() if amax.size and not (slack and not np.isfinite(amax).any())]
    return f"{left[0]}_amax has {given[left[0]].size} entries more than there are amaxes" if left else ""


def amaxes(case: Case, x: np.ndarray, side: str) -> np.ndarray:
    """The amaxes of a (rows, cols) tensor: one, or one for each line."""
    flags = case.flags
    recipe = flags.get("recipe", case.recipe)
    count = x.shape[0] if side == "rowwise" else x.shape[1]
    by_line = recipe in ("row_scaled", "per_token") or bool(flags.get("row_scaled", False))
    if not x.size:
        return np.zeros(count if by_line else 1, np.float32)
    if side == "columnwise" and flags.get("rht", False):
        found = lines_amax(x, _mask(flags.get("sign_mask", OWN), recipe), recipe == "per_tensor")
    elif by_line and not flags.get("weight_2d", False):
        found = magnitudes.amax(x, 1 if side == "rowwise" else 0)
    else:
        found = magnitudes.amax(x)
    if not by_line:
        return np.max(found).reshape(1)
    return np.broadcast_to(found, (count,))


def lines_amax(x: np.ndarray, sign_mask: int, rounded: bool) -> np.ndarray:
    """The amax of every column of the tensor, rotated."""
    step = max(1, _AT_ONCE // len(x))
    slabs = (magnitudes.rotated(x[:, first : first + step], sign_mask) for first in range(0, x.shape[1], step))
    return np.concatenate([magnitudes.amax(magnitudes.to_bf16(r) if rounded else r, 1) for r in slabs])


def _mask(given: FlagValue, recipe: str) -> int:
    """The sign mask of the rotation; a group may use its recipe's own."""
    own = 0xACE1 if recipe == "per_token" else 0xD7E8
    return own if given == OWN else int(given)


def _close(given: np.ndarray, expected: np.ndarray, derived: bool) -> np.ndarray:
    if given.size != expected.size:
        return np.zeros(max(given.size, expected.size), bool)
    off = _OFF if derived else 0
    with np.errstate(invalid="ignore"):
        return (given == expected) | (np.abs(given - expected) <= off * expected)


def _tensors(case: Case, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The tensors that are quantized: the input, or a group's, times the activation's derivative if there is one."""
    x = inputs["input"]
    if not case.is_group:
        return [x]
    activation = str(case.flags.get("activation", "none"))
    if activation != "none":
        with np.errstate(all="ignore"):
            slope = _SLOPES[activation](inputs["act_input"].astype(np.float64))
            x = (x.astype(np.float64) * slope).astype(np.float32).astype(x.dtype)
    ends = np.cumsum([rows * cols for rows, cols in case.problem.tensors])
    return [part.reshape(shape) for part, shape in zip(np.split(x, ends)[:-1], case.problem.tensors, strict=True)]


def _overflows(case: Case, inputs: Mapping[str, np.ndarray]) -> bool:
    """Whether a square in a derivative overflows float32, so that the result depends on the contract's exact steps."""
    if case.flags.get("activation", "none") not in _SMOOTH:
        return False
    size = np.abs(inputs["act_input"].astype(np.float64))
    return bool((np.isfinite(size) & (size > 1e18)).any())


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return (1 + np.tanh(z / 2)) / 2


def _silu_slope(z: np.ndarray) -> np.ndarray:
    return _sigmoid(z) * (1 + z * _sigmoid(-z))


def _gelu_slope(z: np.ndarray) -> np.ndarray:
    inner = (2 / np.pi) ** 0.5 * (z + 0.044715 * z**3)
    tail = (2 / np.pi) ** 0.5 * (1 + 3 * 0.044715 * z**2)
    return (1 + np.tanh(inner)) / 2 + z / 2 * tail / np.cosh(inner) ** 2


_SMOOTH = ("dgelu", "dsilu", "dqgelu")
_SLOPES = {
    "drelu": lambda z: np.where(z > 0, 1.0, 0.0),
    "dsrelu": lambda z: np.where(z > 0, 2 * z, 0.0),
    "dsilu": _silu_slope,
    "dqgelu": lambda z: _silu_slope(1.702 * z),
    "dgelu": _gelu_slope,
}
