"""Whether a drawn tensor is what its name promises."""

from __future__ import annotations

import json
from collections.abc import Callable
from inspect import isfunction
from pathlib import Path

import numpy as np

from harness.inputs import tensor_file
from harness.inputs.promises import edges, ordinary, specials
from harness.inputs.promises.claims import PRECISION, SMALLEST_NORMAL, Claims

Promise = Callable[[np.ndarray, str], Claims]

PROMISES: dict[str, Promise] = {
    name: promise
    for module in (ordinary, edges, specials)
    for name, promise in vars(module).items()
    if isfunction(promise) and promise.__module__ == module.__name__ and not name.startswith("_")
}

SAME_FOR_EVERY_SEED = ("zeros", "exhaustive", "midpoints")
WHOLE = 1 << 22  # elements; only some rows of a larger normal tensor are checked
_SLICES = 16
_STORED = {"BF16": ("<u2", 16), "F16": ("<f2", 0), "F32": ("<f4", 0)}  # a view of the bytes, and a shift to float32


@np.errstate(all="ignore")
def broken(name: str, x: np.ndarray, dtype: str) -> str:
    """The first promise of the input `name` that the (rows, cols) tensor breaks, or an empty text."""
    if name.startswith(tensor_file.PREFIX):
        claims = _corner(tensor_file.path_of(name), name.partition("#")[2], _wide(x), dtype)
    elif name in PROMISES:
        claims = PROMISES[name](_wide(_some(x) if name == "normal" else x), dtype)
    else:
        return f"the input {name} promises nothing; write what it is like, as harness/inputs/promises does for others"
    missed = next((sentence for holds, sentence in claims if not holds), "")
    return missed and f"the input {name} as {dtype}, {x.shape[0]}x{x.shape[1]}, is not what it promises: {missed}"


def _wide(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x, np.float32) if x.dtype == np.float32 else x.astype(np.float32)


def _some(x: np.ndarray) -> np.ndarray:
    """Rows from all over a large tensor, with whole slabs as they were drawn; parts of rows if rows are long."""
    if x.size <= WHOLE:
        return x
    width = min(x.shape[1], WHOLE // _SLICES)
    count = max(1, WHOLE // _SLICES // width)
    firsts = np.linspace((0, 0), (len(x) - count, x.shape[1] - width), _SLICES).astype(int)
    return np.concatenate([x[row : row + count, col : col + width] for row, col in firsts])


def _corner(path: Path, tensor: str, x: np.ndarray, dtype: str) -> Claims:
    """Claim that `x` is the top-left corner of a tensor of a file, each value rounded to nearest.

    path: .safetensors or .npy; tensor: its name in the file, empty if the file has only one
    """
    stored = _npy(path) if path.suffix == ".npy" else _safetensors(path, tensor)
    expected = np.asarray(stored[: x.shape[0], : x.shape[1]], np.float64)
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
    kind, shift = _STORED[entry["dtype"]]
    start, _ = entry["data_offsets"]
    stored = np.memmap(path, kind, "r", 8 + length + start, tuple(entry["shape"]))
    return (stored.astype(np.uint32) << shift).view(np.float32) if shift else stored
