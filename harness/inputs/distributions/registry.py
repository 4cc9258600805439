"""Every distribution by its name."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction

import numpy as np

from harness.inputs.distributions import edges, ordinary, specials, structure

Distribution = Callable[[np.random.Generator, int, int, str], np.ndarray]

DISTRIBUTIONS: dict[str, Distribution] = {
    name: draw
    for module in (ordinary, edges, specials, structure)
    for name, draw in vars(module).items()
    if isfunction(draw) and draw.__module__ == module.__name__ and not name.startswith("_")
}
