"""Amaxes and decoded values by integer arithmetic on bits, the rotation lane by lane, and a check of given amaxes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.contract.case import OWN, Case, FlagValue

F32 = np.float32
_SIGN = {2: 0x7FFF, 4: 0x7FFFFFFF}
_INFINITY = {"bfloat16": 0x7F80, "float16": 0x7C00, "float32": 0x7F800000}
_AT_ONCE = 1 << 24  # elements


def amax(x: np.ndarray, axis: int | None = None) -> np.ndarray:
    """max |x|, float32; a NaN counts as 0. Magnitudes are in the order of their bits."""
    if axis is None and x.size > _AT_ONCE:
        rows = max(1, _AT_ONCE // x.shape[1])
        return np.max([amax(x[first : first + rows]) for first in range(0, len(x), rows)])
    bits = np.ascontiguousarray(x).view(f"u{x.itemsize}") & _SIGN[x.itemsize]
    bits[bits > _INFINITY[x.dtype.name]] = 0
    largest = bits.max(axis=axis, initial=0)
    return np.asarray(largest, bits.dtype).view(x.dtype).astype(F32)


def to_bf16(x: np.ndarray) -> np.ndarray:
    """float32 values rounded to bf16, ties to even; a NaN stays a NaN."""
    bits = np.ascontiguousarray(x, F32).view(np.uint32)
    kept = (bits + (0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(F32)
    return np.where(np.isnan(x), F32(np.nan), kept)


def rotated(x: np.ndarray, sign_mask: int) -> np.ndarray:
    """The columns of (rows, cols) as lines, (cols, rows) float32, each 16 elements rotated and divided by 4."""
    lane = np.arange(16)
    r = np.ascontiguousarray(x.T, F32).reshape(x.shape[1], -1, 16)
    with np.errstate(all="ignore"):
        r = np.where(sign_mask >> lane & 1, -r, r)
        for distance in (1, 2, 4, 8):
            # Pair the lanes with and without this bit in their number.
            pairs = r.reshape(*r.shape[:2], -1, 2, distance)
            low, high = pairs[..., 0, :], pairs[..., 1, :]
            r = np.stack([low + high, low - high], axis=-2).reshape(r.shape)
        return (r * F32(0.25)).reshape(x.shape[1], -1)


def e2m1(data: np.ndarray) -> np.ndarray:
    """(lines, length / 2) bytes → (lines, length) values; bit 3 is the sign, bits 2 and 1 the exponent, of bias 1."""
    byte = np.arange(256)
    codes = np.stack([byte & 15, byte >> 4], axis=-1)
    exponent, half = codes >> 1 & 3, codes & 1
    magnitude = np.where(exponent == 0, half * 0.5, (2 + half) * 2.0 ** (exponent - 2))
    return np.where(codes & 8, -magnitude, magnitude)[data].reshape(len(data), 2 * data.shape[1])


def e4m3(byte: np.ndarray) -> np.ndarray:
    """Bytes → values, float64; bit 7 is the sign, then four bits of exponent, of bias 7, and three of mantissa."""
    number = np.arange(256)
    exponent, mantissa = number >> 3 & 15, number & 7
    magnitude = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10))
    magnitude = np.where(number & 127 == 127, np.nan, magnitude)
    return np.where(number & 128, -magnitude, magnitude)[byte]


def ue5m3(byte: np.ndarray) -> np.ndarray:
    """Bytes → values, float64; five bits of exponent, of bias 15, and three of mantissa, no sign, and 255 is NaN."""
    number = np.arange(256)
    exponent, mantissa = number >> 3, number & 7
    magnitude = np.where(exponent == 0, mantissa * 2.0**-17, (8 + mantissa) * 2.0 ** (exponent - 18))
    return np.where(number == 255, np.nan, magnitude)[byte]


def step(size: int, most: int) -> int:
    """The stride for looking at about `most` of `size` entries; it is odd, so that it does not align with a layout."""
    return 1 if size <= most else -(-size // most) | 1


def places(shape: tuple[int, int], valid: tuple[int, int], swizzled: bool, most: int | None = None) -> np.ndarray:
    """The offsets of the bytes of the valid corner in a (R, C) allocation. See NUMERICS 1.7.

    most: about how many of them, in some of the rows; all if it is None
    """
    apart = 1 if most is None else step(valid[0] * valid[1], most)
    r, c = np.arange(0, valid[0], apart)[:, None], np.arange(valid[1])
    if not swizzled:
        return r * shape[1] + c
    return (r // 128 * (shape[1] // 4) + c // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4


SIDES = ("rowwise", "columnwise")
_ROTATED_AT_ONCE = 1 << 22  # elements that are rotated at a time
_OFF = 2.0**-7  # tolerated relative error of a gradient times a derivative


def wrong_amax(case: Case, inputs: Mapping[str, np.ndarray]) -> str:
    """Name a given amax that is not the input's, or return an empty text. The case is dense or a group."""
    given = {side: inputs[f"{side}_amax"] for side in SIDES if f"{side}_amax" in inputs}
    if not given or "input" not in inputs or _overflows(case, inputs):
        return ""
    tensors = _tensors(case, inputs)
    for side in given:
        amaxes, of = [amaxes_of(case, x, side) for x in tensors], " of tensor {}" if case.is_group else ""
        if case.flags.get("amax") == "shared":
            amaxes, of = [np.max(amaxes, axis=0)], " of all tensors"
        for number, expected in enumerate(amaxes):
            own, given[side] = given[side].reshape(-1)[: expected.size], given[side].reshape(-1)[expected.size :]
            wrong = np.flatnonzero(~_close(own, expected, case.flags.get("activation", "none") != "none"))
            if wrong.size:
                return (
                    f"the given {side}_amax{of.format(number)} is {own[wrong[0]]:g} at [{wrong[0]}]; the largest "
                    f"magnitude there is {expected[wrong[0]]:g}"
                )
    slack = case.problem.capacity is not None
    left = [side for side, amax in given.items() if amax.size and not (slack and not np.isfinite(amax).any())]
    return f"{left[0]}_amax has {given[left[0]].size} entries more than there are amaxes" if left else ""


def amaxes_of(case: Case, x: np.ndarray, side: str) -> np.ndarray:
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
        found = amax(x, 1 if side == "rowwise" else 0)
    else:
        found = amax(x)
    if not by_line:
        return np.max(found).reshape(1)
    return np.broadcast_to(found, (count,))


def lines_amax(x: np.ndarray, sign_mask: int, rounded: bool) -> np.ndarray:
    """The amax of every column of the tensor, rotated."""
    step = max(1, _ROTATED_AT_ONCE // len(x))
    slabs = (rotated(x[:, first : first + step], sign_mask) for first in range(0, x.shape[1], step))
    return np.concatenate([amax(to_bf16(r) if rounded else r, 1) for r in slabs])


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


GATED = ("swiglu", "dswiglu")  # activations of gates and ups, the halves of a row


def read_of_halves(case: Case, drawn: Mapping[str, np.ndarray]) -> np.ndarray:
    """The `input` that kernels read: gates and ups side by side; for dswiglu, gradients in half as many columns."""
    shapes = case.problem.tensors if case.is_group else [(case.rows, case.cols)]
    ends = np.cumsum([rows * cols for rows, cols in shapes])[:-1]
    found = []
    for shape, *parts in zip(
        shapes, *(np.split(drawn[name].reshape(-1), ends) for name in ("act_input", "x")), strict=True
    ):
        gates, x = (part.reshape(shape) for part in parts)
        found.append(np.hstack([gates, x]) if case.flags.activation == "swiglu" else x[:, : shape[1] // 2])
    return np.concatenate([part.reshape(-1) for part in found])


def _gated(halves: np.ndarray, grad: np.ndarray | None = None) -> np.ndarray:
    """SwiGLU of rows of gates and ups, or its gradients, in float64 and rounded once to the dtype."""
    gate, up = np.split(halves.astype(np.float64), 2, axis=1)
    value = gate * _sigmoid(gate) * up
    if grad is not None:
        g = grad.astype(np.float64)
        value = np.hstack([g * _silu_slope(gate) * up, g * gate * _sigmoid(gate)])
    return value.astype(np.float32).astype(halves.dtype)


def _tensors(case: Case, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The tensors that are quantized: the input, or a group's, after the activation if there is one."""
    x, activation = inputs["input"], str(case.flags.get("activation", "none"))
    if activation == "swiglu":
        with np.errstate(all="ignore"):
            if not case.is_group:
                return [_gated(x)]
            ends = np.cumsum([2 * rows * cols for rows, cols in case.problem.tensors])
            parts = zip(np.split(x, ends)[:-1], case.problem.tensors, strict=True)
            return [_gated(part.reshape(rows, 2 * cols)) for part, (rows, cols) in parts]
    if not case.is_group:
        return [x]
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
    size = np.abs(inputs["input" if case.flags.activation == "swiglu" else "act_input"].astype(np.float64))
    return bool((np.isfinite(size) & (size > 1e18)).any())


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return (1 + np.tanh(z / 2)) / 2


def _silu_slope(z: np.ndarray) -> np.ndarray:
    return _sigmoid(z) * (1 + z * _sigmoid(-z))


def _gelu_slope(z: np.ndarray) -> np.ndarray:
    inner = (2 / np.pi) ** 0.5 * (z + 0.044715 * z**3)
    tail = (2 / np.pi) ** 0.5 * (1 + 3 * 0.044715 * z**2)
    return (1 + np.tanh(inner)) / 2 + z / 2 * tail / np.cosh(inner) ** 2


_SMOOTH = ("dgelu", "dsilu", "dqgelu", "swiglu")
_SLOPES = {
    "drelu": lambda z: np.where(z > 0, 1.0, 0.0),
    "dsrelu": lambda z: np.where(z > 0, 2 * z, 0.0),
    "dsilu": _silu_slope,
    "dqgelu": lambda z: _silu_slope(1.702 * z),
    "dgelu": _gelu_slope,
}
