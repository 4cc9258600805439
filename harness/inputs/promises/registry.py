"""Whether a drawn tensor is what its name promises."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction

import numpy as np

from harness.inputs import tensor_file
from harness.inputs.promises import edges, files, ordinary, specials, structure
from harness.inputs.promises.claims import Claims

Promise = Callable[[np.ndarray, str], Claims]

PROMISES: dict[str, Promise] = {
    name: promise
    for module in (ordinary, edges, specials, structure)
    for name, promise in vars(module).items()
    if isfunction(promise) and promise.__module__ == module.__name__ and not name.startswith("_")
}

SAME_FOR_EVERY_SEED = ("zeros", "exhaustive", "midpoints")
WHOLE = 1 << 22  # elements; only some rows of a larger normal tensor are checked
_SLICES = 16


@np.errstate(all="ignore")
def broken(name: str, x: np.ndarray, dtype: str) -> str:
    """The first promise of the input `name` that the (rows, cols) tensor breaks, or an empty text."""
    if name.startswith(tensor_file.PREFIX):
        claims = files.corner(tensor_file.path_of(name), name.partition("#")[2], _wide(x), dtype)
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
