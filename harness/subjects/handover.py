"""Convert a case's arrays to torch tensors, and an implementation's results back into the case's outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from harness.contract.case import Case
from harness.subjects.subject import Arrays

TILE_ROWS, TILE_COLS, TILE_ROW_GROUP = 128, 4, 32  # tiles of scale bytes as a GEMM reads them

# `call(case, given)`: the inputs as torch tensors; what it returns is read by `deliver`.
Call = Callable[[Case, Mapping[str, Any]], Mapping[str, Any]]


def tensor(array: Any) -> Any:
    """An array as a torch tensor that shares its memory; uint16, which CuPy arrays use for bf16, is viewed as bf16."""
    import torch

    if array.dtype.name in ("uint16", "bfloat16"):
        return _shared(array.view(np.int16)).view(torch.bfloat16)
    return _shared(array)


def _shared(array: Any) -> Any:
    import torch

    # Not by DLPack, which would make the streams of both libraries wait for each other.
    return torch.from_numpy(array) if isinstance(array, np.ndarray) else torch.as_tensor(array, device="cuda")


def sides(case: Case) -> list[str]:
    return ["rowwise", "columnwise"] if case.flags.outputs == "both" else [str(case.flags.outputs)]


def run(call: Call, case: Case, inputs: Arrays, outputs: Arrays) -> None:
    deliver(case, call(case, {name: tensor(array) for name, array in inputs.items()}), outputs)


def deliver(case: Case, found: Mapping[str, Any], outputs: Arrays) -> None:
    """Copy results into the outputs of the same names, in the case's shapes, padding and layout.

    data: (lines, length/2) bytes or more lines and bytes, of which the first count; scale_inv: in one dimension, in
    128x4 tiles with padding; in two, compact, padded or not; amax: as many float32 as the output has
    """
    swizzled = case.flags.get("scale_layout") == "swizzled"
    for name, output in outputs.items():
        target = tensor(output)
        if name.endswith("_data"):
            target.copy_(found[name][: target.shape[0], : target.shape[1]])
        elif name.endswith("_scale_inv"):
            target.copy_(_arranged(found[name], tuple(target.shape), swizzled))
        else:
            target.copy_(found[name].reshape(target.shape))


def _arranged(scales: Any, shape: tuple[int, ...], swizzled: bool) -> Any:
    import torch

    scales = scales.view(torch.uint8)
    if scales.ndim == 2 and tuple(scales.shape) != shape:
        whole = torch.zeros(shape, dtype=torch.uint8, device=scales.device)
        whole[: scales.shape[0], : scales.shape[1]] = scales
        scales = whole
    if (scales.ndim == 1) != swizzled:
        scales = _turned(scales.reshape(shape), swizzled)
    return scales.reshape(shape)


def _turned(scales: Any, to_tiles: bool) -> Any:
    """Compact scales in the order of 128x4 tiles, or back."""
    rows, cols = scales.shape
    down, across, groups = rows // TILE_ROWS, cols // TILE_COLS, TILE_ROWS // TILE_ROW_GROUP
    shape = (down, groups, TILE_ROW_GROUP, across) if to_tiles else (down, across, TILE_ROW_GROUP, groups)
    return scales.reshape(*shape, TILE_COLS).permute(0, 3, 2, 1, 4)
