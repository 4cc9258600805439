"""Tensors from files: `file:<path>#<tensor>`. Neither loader runs code: no pickles, no arrays of objects.

A product may name one for each operand, `file:<path>#<a>;file:<path>#<b>`, and a pipeline one for each stage that
quantizes a tensor of its own, in their order; a single one is every operand's.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as serialized

from harness.contract.dtypes import DTYPES
from harness.errors import InputError
from harness.files import ROOT, is_file, resolved_path, write_bytes

PREFIX = "file:"
BETWEEN = ";"
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

    def corner(whole: Any, shape: tuple[int, ...]) -> np.ndarray:
        if shape[0] < rows or shape[1] < cols:
            extents = "x".join(map(str, shape))
            raise InputError(f"{name}: the tensor is {extents}, smaller than the {rows}x{cols} that the case asks for")
        return np.array(whole[:rows, :cols])

    return _open(name, corner)


def _open(name: str, read: Callable[[Any, tuple[int, ...]], Any]) -> Any:
    """Call `read` with the tensor, which can be sliced, and its shape, and return the result."""
    path, tensor = path_of(name), name.partition("#")[2]
    if not is_file(path):
        raise InputError(f"{name}: there is no file {path}")
    if path.suffix == ".safetensors":
        return _from_safetensors(name, path, tensor, read)
    if path.suffix == ".npy":
        return _from_npy(name, path, tensor, read)
    raise InputError(f"{name}: a tensor file ends in .safetensors or .npy, not {path.suffix or 'nothing'!r}")


def of_operand(name: str, number: int) -> str:
    """The input for operand `number`, counted from 0, of an input that may name one tensor per operand."""
    parts = parts_of(name)
    return parts[min(number, len(parts) - 1)]


def parts_of(name: str) -> list[str]:
    """Split an input into the tensors that it names; an input that is not a file is one part."""
    return name.split(BETWEEN) if name.startswith(PREFIX) else [name]


def resolved(name: str, folder: Path) -> str:
    """Rewrite the paths that a user typed in a folder for a case id: absolute, or relative to the repository's root.

    Raises InputError for a part that does not begin with `file:`.
    """
    found = []
    for part in parts_of(name):
        if not part.startswith(PREFIX):
            raise InputError(f"{name}: '{part}' is no tensor of a file; each begins with {PREFIX}, as in file:x.npy")
        path, hash_sign, tensor = part.removeprefix(PREFIX).partition("#")
        there = resolved_path(folder / path)
        if is_file(there) or not is_file(ROOT / path):
            path = str(there.relative_to(ROOT) if there.is_relative_to(ROOT) else there)
        found.append(f"{PREFIX}{path}{hash_sign}{tensor}")
    return BETWEEN.join(found)


def shape_of(name: str) -> tuple[int, int]:
    """(rows, cols) of the tensor `file:<path>#<tensor>`. Raises InputError as `load` does."""
    shapes: list[tuple[int, ...]] = []
    _open(name, lambda whole, shape: shapes.append(shape))
    return shapes[0][0], shapes[0][1]


def path_of(name: str) -> Path:
    """The file that `file:<path>#<tensor>` names."""
    return ROOT / name.removeprefix(PREFIX).partition("#")[0]


def _from_safetensors(name: str, path: Path, tensor: str, read: Callable[[Any, tuple[int, ...]], Any]) -> Any:
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
            shape = tuple(whole.get_shape())
            _require_matrix(name, shape)
            return read(whole, shape)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{name}: {path.name} is not a readable .safetensors file: {shortened(error)}") from error


def _from_npy(name: str, path: Path, tensor: str, read: Callable[[Any, tuple[int, ...]], Any]) -> Any:
    if tensor:
        raise InputError(f"{name}: a .npy file holds one array without a name; leave out #{tensor}")
    whole = open_npy(path, f"{name}: {path.name} is")
    if whole.dtype not in _NUMPY_DTYPES:
        raise InputError(f"{name}: {path.name} is {whole.dtype}; it must be float16 or float32")
    _require_matrix(name, whole.shape)
    return read(whole, whole.shape)


def open_npy(path: Path, beginning: str) -> np.ndarray:
    """Memory-map the array of a .npy file. beginning: start of the error text if it cannot be read"""
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except Exception as error:
        # NumPy parses the header as Python, so it may raise any error of Python's tokenizer.
        raise InputError(f"{beginning} not a readable .npy file: {shortened(error)}") from None


def shortened(error: Exception) -> str:
    """The text of an error, cut short because some readers quote the whole file."""
    words = " ".join(str(error).split())
    return words if len(words) < _LONGEST else f"{words[:_LONGEST]}..."


def _require_matrix(name: str, shape: tuple[int, ...]) -> None:
    extents = "x".join(map(str, shape)) or "a scalar"
    if len(shape) != 2:
        raise InputError(f"{name}: the tensor is {extents}; it must have two dimensions, rows and cols")


def dtype_of(name: str) -> str:
    """`bf16`, `fp16` or `fp32`, the dtype of the tensor `file:<path>#<tensor>`. Raises InputError as `load` does."""
    dtype = _open(name, lambda whole, shape: np.asarray(whole[:0]).dtype)
    return next(spelled for spelled, known in DTYPES.items() if known == dtype)


def save(path: Path, arrays: Mapping[str, np.ndarray], about: Mapping[str, str]) -> None:
    """Write arrays by name as .safetensors, bf16 among them, whole or not at all. Raises StorageError."""
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_bytes(path, serialized(contiguous, dict(about)))
