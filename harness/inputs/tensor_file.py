"""Tensors from files: `file:<path>#<tensor>`. Neither loader runs code: no pickles, no arrays of objects."""

from __future__ import annotations

import difflib
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from harness.errors import InputError
from harness.files import ROOT, is_file

PREFIX = "file:"
_LONGEST = 200
_SAFETENSORS_DTYPES = {"BF16", "F16", "F32"}
_NUMPY_DTYPES = {np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)}


def load(name: str, rows: int, cols: int) -> np.ndarray:
    """Load the top-left (rows, cols) corner of the tensor `file:<path>#<tensor>`, in its own dtype.

    path: .safetensors or .npy, absolute or relative to the root of the repository
    tensor: its name in a .safetensors file, optional if that holds only one; a .npy file has no names

    Raises InputError for a missing or unreadable file or tensor, for anything but a bf16, fp16 or fp32 matrix, and for
    one smaller than (rows, cols): a tensor is cropped, never tiled or padded, so that its statistics stay real.
    """
    path, tensor = path_of(name), name.partition("#")[2]
    if not is_file(path):
        raise InputError(f"{name}: there is no file {path}")
    if path.suffix == ".safetensors":
        return _from_safetensors(name, path, tensor, rows, cols)
    if path.suffix == ".npy":
        return _from_npy(name, path, tensor, rows, cols)
    raise InputError(f"{name}: a tensor file ends in .safetensors or .npy, not {path.suffix or 'nothing'!r}")


def path_of(name: str) -> Path:
    """The file that `file:<path>#<tensor>` names."""
    return ROOT / name.removeprefix(PREFIX).partition("#")[0]


def _from_safetensors(name: str, path: Path, tensor: str, rows: int, cols: int) -> np.ndarray:
    try:
        with safe_open(path, framework="np") as file:
            there = sorted(file.keys())
            tensor = tensor or (there[0] if len(there) == 1 else "")
            if tensor not in there:
                near = difflib.get_close_matches(tensor, there, n=5, cutoff=0)
                raise InputError(f"{name}: {path.name} has no tensor {tensor!r}; it has {', '.join(near) or 'none'}")
            whole = file.get_slice(tensor)
            if whole.get_dtype() not in _SAFETENSORS_DTYPES:
                raise InputError(f"{name}: {tensor} is {whole.get_dtype()}; it must be BF16, F16 or F32")
            _require(name, tuple(whole.get_shape()), rows, cols)
            return whole[:rows, :cols]
    except (SafetensorError, OSError) as error:
        raise InputError(f"{name}: {path.name} is not a readable .safetensors file: {shortened(error)}") from error


def _from_npy(name: str, path: Path, tensor: str, rows: int, cols: int) -> np.ndarray:
    if tensor:
        raise InputError(f"{name}: a .npy file holds one array without a name; leave out #{tensor}")
    whole = open_npy(path, f"{name}: {path.name} is")
    if whole.dtype not in _NUMPY_DTYPES:
        raise InputError(f"{name}: {path.name} is {whole.dtype}; it must be float16 or float32")
    _require(name, whole.shape, rows, cols)
    return np.array(whole[:rows, :cols])


def open_npy(path: Path, beginning: str) -> np.ndarray:
    """Memory-map the array of a .npy file. beginning: start of the error text if it cannot be read"""
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except Exception as error:
        # NumPy parses the header as Python, so any error of Python's tokenizer can come through.
        raise InputError(f"{beginning} not a readable .npy file: {shortened(error)}") from None


def shortened(error: Exception) -> str:
    """The text of an error, cut short because some readers quote the whole file."""
    words = " ".join(str(error).split())
    return words if len(words) < _LONGEST else f"{words[:_LONGEST]}..."


def _require(name: str, shape: tuple[int, ...], rows: int, cols: int) -> None:
    """Raise InputError unless a (rows, cols) corner can be cut from `shape`."""
    extents = "x".join(map(str, shape)) or "a scalar"
    if len(shape) != 2:
        raise InputError(f"{name}: the tensor is {extents}; it must have two dimensions, rows and cols")
    if shape[0] < rows or shape[1] < cols:
        raise InputError(f"{name}: the tensor is {extents}, smaller than the {rows}x{cols} that the case asks for")
