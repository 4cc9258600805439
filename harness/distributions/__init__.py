"""Named distributions of inputs: each aims at one thing a quantizer can get wrong.

A distribution is a public function of one of these modules, and its name is what suites write after `inputs:`. It is
called as `draw(rng, rows, cols, dtype)`, and returns float32, or `dtype` to keep exact bits. Nothing here comes from
the oracles.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction

import numpy as np

from harness.distributions import edges, ordinary, specials, structure

Distribution = Callable[[np.random.Generator, int, int, str], np.ndarray]

DISTRIBUTIONS: dict[str, Distribution] = {
    name: draw
    for module in (ordinary, edges, specials, structure)
    for name, draw in vars(module).items()
    if isfunction(draw) and draw.__module__ == module.__name__ and not name.startswith("_")
}
