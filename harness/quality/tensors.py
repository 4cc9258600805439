"""The tensors to measure: named distributions, and the matrices in a user's file."""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from harness.contract.dtypes import rounded
from harness.errors import InputError
from harness.files import SUITES, files_beside, is_file
from harness.inputs import draw
from harness.inputs.tensor_file import open_npy, shortened
from harness.text import nearest

SAMPLE = SUITES / "data" / "minilm_sample.safetensors"
SUFFIXES = (".safetensors", ".npy")  # of files of tensors
DISTRIBUTIONS = ("normal", "heavy_tail", "outliers_cols", "outliers_rows", "row_scales", "spike_1e6")
_SPELLINGS = {"bf16": ("BF16", "bfloat16"), "fp16": ("F16", "float16"), "fp32": ("F32", "float32")}
_READABLE = {kind for kinds in _SPELLINGS.values() for kind in kinds}
_BLOCK, _WINDOW = 16, 64


@dataclass(frozen=True)
class Tensor:
    """One matrix, (rows, cols) in bf16, fp16 or fp32. note: how it differs from the tensor in the file"""

    name: str
    values: np.ndarray
    note: str = ""


def named(name: str, rows: int, cols: int, dtype: str) -> Tensor:
    """A tensor from a distribution of `harness.inputs.draw`; the same name, shape and dtype give the same bytes."""
    seed = int.from_bytes(hashlib.sha256(f"{name}/{rows}x{cols}".encode()).digest()[:8], "little")
    return Tensor(name, draw.make(name, rows, cols, dtype, seed))


def stored(path: Path, patterns: Sequence[str], dtype: str) -> tuple[list[Tensor], list[str]]:
    """The matrices of a .safetensors or .npy file, in order of name, and a sentence for each tensor left out.

    patterns: names, or patterns like `*.weight`; none for every tensor
    Raises InputError if the file cannot be read, or nothing matches a pattern.
    """
    if not is_file(path):
        beside = [str(other) for other in files_beside(path) if other.suffix in SUFFIXES]
        raise InputError(f"there is no file {path}{nearest(path, beside)}")
    if path.suffix == ".safetensors":
        found = _from_safetensors(path, patterns)
    elif path.suffix == ".npy":
        found = _from_npy(path, patterns)
    else:
        raise InputError(f"{path}: a tensor file ends in .safetensors or .npy, not {path.suffix or 'nothing'!r}")
    tensors, left_out = [], []
    for name, array, kind in found:
        matrix = _matrix(name, array, kind, dtype)
        (tensors if isinstance(matrix, Tensor) else left_out).append(matrix)
    if not tensors:
        raise InputError(f"{path}: nothing in it can be measured: {'; '.join(left_out) or 'it is empty'}")
    return tensors, left_out


def _from_safetensors(path: Path, patterns: Sequence[str]) -> Iterator[tuple[str, np.ndarray | None, str]]:
    """Name, values (None for an unsupported dtype) and dtype of every tensor that matches."""
    try:
        with safe_open(path, framework="np") as file:
            there = sorted(file.keys())
            for pattern in patterns:
                if not any(fnmatch.fnmatchcase(name, pattern) for name in there):
                    raise InputError(f"{path}: there is no tensor '{pattern}'{nearest(pattern, there)}")
            for name in there:
                if not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                    kind = file.get_slice(name).get_dtype()
                    yield name, file.get_tensor(name) if kind in _READABLE else None, kind
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: it is not a readable .safetensors file: {shortened(error)}") from None


def _from_npy(path: Path, patterns: Sequence[str]) -> Iterator[tuple[str, np.ndarray, str]]:
    if patterns:
        raise InputError(f"{path}: a .npy file holds one array without a name; leave out --tensor {patterns[0]}")
    array = open_npy(path, f"{path}: it is")
    yield path.stem, array, array.dtype.name


def _matrix(name: str, array: np.ndarray | None, kind: str, dtype: str) -> Tensor | str:
    """The tensor as a matrix of whole blocks, or a sentence that says why that is impossible.

    Leading axes become rows, like the tokens of a batch. The matrix is cut to whole 64x64 squares, so that every recipe
    gets the same elements, and a smaller one to whole 16x16 squares.
    """
    if array is None or kind not in _READABLE:
        return f"{name} is {kind}, not bf16, fp16 or fp32"
    if array.ndim < 2 or 0 in array.shape:
        return f"{name} is {_spelled(array.shape)}, not a matrix"
    flat = array.reshape(-1, array.shape[-1])
    multiple = _WINDOW if min(flat.shape) >= _WINDOW else _BLOCK
    rows, cols = (extent // multiple * multiple for extent in flat.shape)
    if not (rows and cols):
        return f"{name} is {_spelled(array.shape)}, smaller than one 16x16 block"
    notes = [f"{rows}x{cols} of {_spelled(array.shape)}"] if (rows, cols) != array.shape else []
    notes += [f"{kind.lower()} rounded to {dtype}"] if kind not in _SPELLINGS[dtype] else []
    return Tensor(name, rounded(flat[:rows, :cols], dtype), ", ".join(notes))


def _spelled(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a scalar"
