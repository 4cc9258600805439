"""FlashInfer's own CPU specification of its batch-invariant quantizers. https://pypi.org/project/flashinfer-python

Installed, or from `pip install --no-deps --target FOLDER flashinfer-python==0.7.4` with FOLDER in PYTHONPATH. Its
vectorised reference calls the functions that its kernels are made of, on float32 tensors of torch. The contract takes
the global scale of a tensor as an input. Where a case gives the amax, it is given the scale of NUMERICS 2.1, and
otherwise that of `make_nvfp4_global_scale`, which FlashInfer tells its callers to use.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from types import ModuleType
from typing import Any

from harness.contract.case import Case
from harness.subjects import handover
from harness.subjects.convention import Choice, Convention
from harness.subjects.subject import Arrays

NEEDS = {"torch": "pip install torch", "flashinfer-python": "pip install --no-deps flashinfer-python==0.7.4"}
CONVENTIONS = frozenset({Convention.SCALE_ORDER, Convention.DIVIDER_ORDER, Convention.SPECIALS})
MX = ("mxfp8", "mxfp4")  # of the folders examples/mxfp8 and examples/mxfp4
RECIPES = ("per_tensor", "row_scaled", "casts", *MX)
_MX_RULES = {"ceil": ("rcp", "rp"), "floor": ("pow2", "rz"), "nearest": ("rcp", "rn")}  # its norm and its rounding
_FLAGS = {"block": "block_1x16", "rht": False, "rounding": "rne", "fast_math": False, "activation": "none"}
_PACKAGES = ("", ".quantization", ".batch_invariant", ".batch_invariant.quantization")
_LARGEST = 448 * 6
_FLT_MAX = 3.4028234663852886e38
_mended: set[str] = set()  # names of the choices without which it runs now


def refuses(case: Case) -> str:
    if case.recipe == "per_token":
        return "its per-token class has the reciprocal multiplier and no floor: it is row_scaled's contract"
    if case.recipe not in RECIPES:
        return f"FlashInfer's contract has no {case.recipe}; it has {', '.join(RECIPES)}"
    if case.flags.get("stage") == "amax":
        return "FlashInfer's contract has no function for the amax alone"
    for flag, value in _FLAGS.items():
        if case.flags.get(flag, value) != value:
            return f"FlashInfer's contract has no {flag} other than {value}"
    return "" if case.elements else "FlashInfer's reference takes no tensor without rows"


def _module(name: str) -> ModuleType:
    """A module of the package, without running any `__init__`, which would import kernels and need a GPU's packages."""
    if "flashinfer" not in sys.modules:
        folder = metadata.distribution("flashinfer-python").locate_file("flashinfer")
        for package in _PACKAGES:
            made = ModuleType(f"flashinfer{package}")
            made.__path__ = [str(folder.joinpath(*package.split(".")[1:]))]
            sys.modules[made.__name__] = made
    return importlib.import_module(f"flashinfer{name}")


def _nvfp4() -> ModuleType:
    return _module(".batch_invariant.quantization.nvfp4_reference")


def _amax(x: Any) -> Any:
    """The largest |x| of each row, (rows,), where NaN counts only if the row has nothing else."""
    return _nvfp4().amax_ignoring_nan(x.float().abs())


def _global_scale(x: Any) -> tuple[Any, Any]:
    """The scale that FlashInfer's helper makes of a tensor, and the amax that it took; both float32 scalars."""
    import torch

    seen = torch.where(x.isnan(), 0, x) if "NaN beside numbers" in _mended else x
    amax = seen.abs().max().float()
    scale = _module(".quantization.nvfp4_quantization_utils").make_nvfp4_global_scale(seen, False)[0]
    if "order of the global scale" in _mended and amax > 0:
        scale = torch.tensor(float(_LARGEST)) / amax
    if "guards of the global scale" in _mended:
        scale = scale.clamp(max=_FLT_MAX)
        scale = torch.where(scale == 0, 1.0, scale)
    return scale, amax


def _given_scale(amax: Any) -> Any:
    """The scale of NUMERICS 2.1 of an amax that the case gives."""
    import torch

    scale = torch.fmin(torch.tensor(float(_LARGEST)) / amax.reshape(()), torch.tensor(_FLT_MAX))
    return torch.where((amax.reshape(()) == 0) | (scale == 0), 1.0, scale)


def call(case: Case, given: dict[str, Any]) -> dict[str, Any]:
    reference = _nvfp4()
    x = given["input"]
    if case.recipe == "casts":
        codes = reference.e2m1_codes(reference.e2m1_round(x))
        return {"e2m1_data": reference.pack_e2m1(codes), "e4m3_data": reference.e4m3_bytes(reference.e4m3_round(x))}
    found: dict[str, Any] = {}
    for side in handover.sides(case):
        lines = x.t().contiguous() if side == "columnwise" else x
        if case.recipe in MX:
            found |= _mx(case, side, lines)
            continue
        by_row = case.recipe == "row_scaled"
        if by_row:
            utils = _module(".quantization.nvfp4_quantization_utils")
            scale, amax = utils.make_nvfp4_global_scale(lines, True), _amax(lines)
        elif f"{side}_amax" in given:
            amax = given[f"{side}_amax"]
            scale = _given_scale(amax)
        else:
            scale, amax = _global_scale(lines)
        data, scales, _ = reference.quantize_reference(lines, scale, per_token=by_row)
        found |= {f"{side}_data": data, f"{side}_scale_inv": scales.reshape(-1), f"{side}_amax": amax}
    return found


def _mx(case: Case, side: str, lines: Any) -> dict[str, Any]:
    """One direction of mxfp8 or mxfp4. Columns of mxfp8 are stored as they lie in the input."""
    spec, norm_and_round = _module(".batch_invariant.quantization.mx_spec"), _MX_RULES[case.flags.scale_rule]
    reference = _module(".batch_invariant.quantization.mx_reference")
    rule = spec.ScaleRule(*norm_and_round)
    data, _, scales = reference.quantize_mx_reference(lines, spec.FORMATS[case.recipe], rule, "linear")
    if side == "columnwise" and case.recipe == "mxfp8":
        data, scales = data.t(), scales.t()
    return {f"{side}_data": data, f"{side}_scale_inv": scales}


def quantize(case: Case, inputs: Arrays, outputs: Arrays) -> None:
    handover.run(call, case, inputs, outputs)


def _without(name: str) -> Callable[[], Any]:
    """A context in which a choice is made as NUMERICS does."""

    @contextmanager
    def mended() -> Iterator[None]:
        _mended.add(name)
        try:
            yield
        finally:
            _mended.discard(name)

    return mended


@contextmanager
def _only_nan_is_zero() -> Iterator[None]:
    """While the context lasts, an amax of nothing but NaN is 0."""
    modules = _nvfp4(), _module(".batch_invariant.quantization.mx_reference")
    theirs = [module.amax_ignoring_nan for module in modules]
    for module, amax in zip(modules, theirs, strict=True):
        module.amax_ignoring_nan = lambda values, amax=amax: amax(values).nan_to_num(0.0, posinf=float("inf"))
    try:
        yield
    finally:
        for module, amax in zip(modules, theirs, strict=True):
            module.amax_ignoring_nan = amax


CHOICES = {
    "order of the global scale": Choice(
        "2.1, step 1", "2688 · RN(1/amax), as torch divides a number by a tensor, which is a rounding more; "
        "make_nvfp4_global_scale's, for the contract takes any scale",
        _without("order of the global scale"), order=True,
    ),
    "guards of the global scale": Choice(
        "2.1, steps 2 and 3", "an amax below 2688/FLT_MAX gives inf, and an infinite one 0; "
        "make_nvfp4_global_scale's, where ours is Transformer Engine's rule", _without("guards of the global scale"),
    ),
    "NaN beside numbers": Choice(
        "2.2", "the amax of a tensor with a NaN is NaN, and so is every scale; make_nvfp4_global_scale's, by torch's "
        "max, for the contract's own amaxes drop NaN as ours", _without("NaN beside numbers"),
    ),
    "only NaN": Choice(
        "2.2", "the amax of nothing but NaN is NaN, and so is the scale; the contract's, whose max.f32 of two NaN is "
        "NaN, and which has NaN out of its scope", _only_nan_is_zero,
    ),
}  # fmt: skip
