"""The code shared by both backends of fouroversix: how a case is passed to it. https://pypi.org/project/fouroversix"""

from __future__ import annotations

import importlib
import sys
from importlib import metadata
from types import ModuleType
from typing import Any

from harness.contract.case import Case
from harness.subjects.convention import Convention

NEEDS = {
    "torch": "pip install torch",
    "fouroversix": "SKIP_CUDA_BUILD=1 pip install --no-deps --no-build-isolation fouroversix==1.0.5",
}
CONVENTIONS = frozenset(
    {
        Convention.SCALE_ORDER,  # (block_amax / 6) * S_enc
        Convention.DIVIDER_ORDER,
        Convention.ERROR_ORDER,
        Convention.ROTATION_ORDER,  # it rotates by a matrix product
        Convention.ZERO_SCALE_CODES,  # 0 in place of 6
        Convention.ZERO_SIGN,
        Convention.RANDOM_BITS,
        Convention.SPECIALS,
    }
)
RECIPES = ("per_tensor", "four_over_six")
_DEFAULTS = {
    "fast_math": False,
    "row_scaled": False,
    "e4m3_max": None,
    "error_math": "exact",
    "sign_mask": 0xD7E8,
    "activation": "none",
}


def refuses(case: Case) -> str:
    """Why neither backend can run a case, or an empty text."""
    if case.recipe not in RECIPES:
        return f"fouroversix has no {case.recipe}; it has {' and '.join(RECIPES)}"
    if case.flags.stage == "amax":
        return "fouroversix has no kernel for the amax alone"
    for flag, value in _DEFAULTS.items():
        allowed = 256 if flag == "e4m3_max" else value
        if case.flags.get(flag, allowed) != allowed:
            return f"fouroversix has no {flag} other than {allowed}"
    if not case.elements:
        return "fouroversix takes no tensor without rows"
    if case.flags.rht and case.flags.stage == "encode":
        return "fouroversix takes the amax of what it has rotated itself"
    return ""


def load(name: str) -> ModuleType:
    """Import a module of the package without the package's own `__init__`, which imports models and `transformers`."""
    if "fouroversix" not in sys.modules:
        package = ModuleType("fouroversix")
        package.__path__ = [str(metadata.distribution("fouroversix").locate_file("fouroversix"))]
        sys.modules["fouroversix"] = package
    return importlib.import_module(name)


def scale_rule(case: Case) -> Any:
    rules = load("fouroversix.utils").ScaleRule
    return rules.static_6 if case.recipe == "per_tensor" else rules(case.flags.error)


def rounding(case: Case) -> Any:
    """The package's rounding mode: nearest, or stochastic with its own random bits."""
    styles = load("fouroversix.utils").RoundStyle
    return styles.stochastic if case.flags.rounding == "sr" else styles.nearest


def amax(case: Case, given: dict[str, Any], found: dict[str, Any]) -> Any:
    """The amax that is given or was found before, a scalar; else the tensor's, as the package computes it."""
    known = [value for name, value in {**found, **given}.items() if name.endswith("_amax")]
    return known[0].reshape(()) if known else given["input"].abs().max().float()
