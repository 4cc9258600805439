"""The input of a case: a named distribution or a tensor of a file, in the requested dtype and shape."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from inspect import isfunction

import numpy as np

from harness.contract.dtypes import DTYPES, rounded
from harness.errors import InputError
from harness.inputs import tensor_file
from harness.inputs.distributions import edges, ordinary, specials

SLAB = 1 << 22  # elements drawn at once
MOST_THREADS = 16

DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, int, int, str], np.ndarray]] = {
    name: draw
    for module in (ordinary, edges, specials)
    for name, draw in vars(module).items()
    if isfunction(draw) and draw.__module__ == module.__name__ and not name.startswith("_")
}


def make(name: str, rows: int, cols: int, dtype: str, seed: int) -> np.ndarray:
    """Draw the (rows, cols) tensor `name` in `bf16`, `fp16` or `fp32`, C-contiguous; one seed gives the same bytes.

    A name `file:<path>#<tensor>` is the top-left corner of a tensor in a .safetensors or .npy file. Raises InputError
    for an unknown name or dtype, and for a file that cannot give this shape.
    """
    if dtype not in DTYPES:
        raise InputError(f"there is no input dtype {dtype!r}; it is one of {', '.join(DTYPES)}")
    if rows < 1 or cols < 1:
        raise InputError(f"an input has at least one row and one column, not {rows}x{cols}")
    if name.startswith(tensor_file.PREFIX):
        return rounded(tensor_file.load(name, rows, cols), dtype)
    if name not in DISTRIBUTIONS:
        near = difflib.get_close_matches(name, DISTRIBUTIONS, n=1, cutoff=0)[0]
        raise InputError(
            f"there is no input {name!r}; the nearest is {near!r}, and a tensor file is 'file:<path>#<tensor>'"
        )
    draw = DISTRIBUTIONS[name]
    if draw is ordinary.normal and rows * cols > SLAB:
        return _in_slabs(rows, cols, dtype, seed)
    return rounded(draw(np.random.default_rng(seed), rows, cols, dtype), dtype)


def _in_slabs(rows: int, cols: int, dtype: str, seed: int) -> np.ndarray:
    """Draw `normal` in slabs of rows, or of parts of long rows, one thread and one generator each.

    One generator would take seconds, and the float32 values of the whole would not fit in memory beside other cases'.
    """
    x = np.empty((rows, cols), DTYPES[dtype])
    lines = x.reshape(-1, math.gcd(cols, SLAB)) if cols > SLAB else x  # a row of many slabs is drawn in parts
    width = lines.shape[1]
    at_once = max(1, SLAB // width)

    def fill(first: int) -> None:
        rng = np.random.default_rng([seed, first])
        slab = ordinary.normal(rng, min(at_once, len(lines) - first), width, dtype)
        lines[first : first + at_once] = rounded(slab, dtype)

    with ThreadPoolExecutor(min(os.cpu_count() or 1, MOST_THREADS)) as pool:
        list(pool.map(fill, range(0, len(lines), at_once)))
    return x


def names() -> list[tuple[str, str]]:
    """(name, first line of its docstring) of every distribution."""
    return [(name, (draw.__doc__ or "").partition("\n")[0]) for name, draw in DISTRIBUTIONS.items()]
