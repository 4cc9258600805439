"""The promise of a tensor from a file: it is the top-left corner of that tensor, each value rounded to nearest."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from harness.inputs.promises.claims import PRECISION, SMALLEST_NORMAL, Claims

_SHIFTED = {"BF16": ("<u2", 16), "F16": ("<f2", 0), "F32": ("<f4", 0)}


def corner(path: Path, tensor: str, x: np.ndarray, dtype: str) -> Claims:
    """Claim that `x` is the corner of a tensor.

    path: .safetensors or .npy; tensor: its name in the file, empty if the file has only one
    """
    stored = _npy(path) if path.suffix == ".npy" else _safetensors(path, tensor)
    expected = _float64(stored[: x.shape[0], : x.shape[1]])
    with np.errstate(invalid="ignore"):
        off = np.abs(x - expected)
        # Half an ulp; for a subnormal, half of the smallest number.
        most = np.maximum(np.abs(expected), SMALLEST_NORMAL[dtype]) * PRECISION[dtype]
        same = (off <= most) | (x == expected) | (np.isnan(x) & np.isnan(expected))
    with np.errstate(over="ignore"):
        overflow = np.isinf(x) & (np.abs(expected) > 60_000)
    yield bool((same | overflow).all()), f"the values are those of {path.name}, rounded to the nearest {dtype}"


def _npy(path: Path) -> np.ndarray:
    """Read a .npy file: a magic number, a header, and the array."""
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read(file)
        return np.memmap(path, dtype, "r", file.tell(), shape, "F" if by_columns else "C")


def _safetensors(path: Path, tensor: str) -> np.ndarray:
    """Read a .safetensors file: eight bytes with the length of a JSON header, the header, and the tensors."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    entry = header[tensor or next(name for name in header if name != "__metadata__")]
    kind, shift = _SHIFTED[entry["dtype"]]
    start, _ = entry["data_offsets"]
    stored = np.memmap(path, kind, "r", 8 + length + start, tuple(entry["shape"]))
    return (stored.astype(np.uint32) << shift).view(np.float32) if shift else stored


def _float64(stored: np.ndarray) -> np.ndarray:
    return np.asarray(stored, np.float64)
