"""The error between a tensor and its decoded bytes.

The bytes come from the torch oracle, which is byte-equal to the kernels, and are decoded as NUMERICS section 9 says,
into float32. Everything after that is float64, so that the metric adds no error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.contract.case import Case, Flags
from harness.contract.field import granularity_of
from harness.errors import UsageError
from harness.expected.expected import oracle_of
from harness.expected.torch_calls import fastest_device, to_torch
from harness.quality.variants import label, side

if TYPE_CHECKING:
    import torch

BLOCK = 16
# Up to this many elements one thread is faster than several that wait for each other: 0.26 s instead of 1.4 s for ten
# variants of 256x256 on two busy cores (2026-11-21). It also makes the last digit of a sum the same on any machine.
FEW_ELEMENTS = 1 << 20
# An element that should be 6 may be slightly above it, because its multiplier has a few rounding errors of 2^-24.
ROUNDINGS = 1 + 2.0**-20


@dataclass(frozen=True)
class Quality:
    """One variant on one tensor. Errors are in the tensor's own unit, shares are of all elements.

    snr_db: signal over error, of the whole tensor; block_snr_db: of the median block that is not zero. Both are inf
        without error, and NaN without signal
    max_error, mean_error: of |decoded - x|
    saturated: elements beyond the largest code; zeroed: non-zero elements that decode to zero
    map4: blocks that are mapped to 4; None for other recipes than four_over_six
    """

    variant: str
    tensor: str
    rows: int
    cols: int
    snr_db: float
    block_snr_db: float
    max_error: float
    mean_error: float
    saturated: float
    zeroed: float
    map4: float | None


def require() -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise UsageError(
            "quality is computed with torch, which is not installed: pip install 'nvfp4-harness[torch]'"
        ) from None


def measure(case: Case, x: np.ndarray) -> Quality:
    """Quantize and decode `x`, (case.rows, case.cols) of the case's dtype, on a GPU if there is one.

    Elements that are NaN or infinite count in no error; one that decodes to NaN or infinity is infinitely wrong.
    """
    with _threads(x.size):
        return _measured(case, _decode(case, x))


def block_snr(case: Case, x: np.ndarray) -> np.ndarray:
    """SNR in dB of each block where it lies in the tensor: (rows, cols/16), or (rows/16, cols) columnwise."""
    with _threads(x.size):
        found = _decode(case, x)
        blocks = _decibel(*_energies(found.x, *_error(found))).cpu().numpy()
    return blocks.T if side(case) == "columnwise" else blocks


def decoded(case: Case, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The quantizer's input, rotated if rht, and the decoded output: (lines, length) float64."""
    with _threads(x.size):
        found = _decode(case, x)
    return found.seen.cpu().numpy(), found.decoded.cpu().numpy()


def _measured(case: Case, found: _Decoded) -> Quality:
    error, finite = _error(found)
    signal, noise = _energies(found.x, error, finite)
    blocks = _decibel(signal, noise)
    blocks = blocks[~blocks.isnan()]
    count = max(int(finite.sum()), 1)
    short = (found.codes == 7) & (found.decoded != 0) & (found.seen.abs() > found.decoded.abs() * ROUNDINGS)
    return Quality(
        variant=label(case),
        tensor=case.input,
        rows=case.rows,
        cols=case.cols,
        snr_db=_decibel(signal.sum(), noise.sum()).item(),
        block_snr_db=blocks.median().item() if blocks.numel() else math.nan,
        max_error=error.max().item(),
        mean_error=error.sum().item() / count,
        saturated=short.double().mean().item(),
        zeroed=((found.seen != 0) & (found.decoded == 0)).double().mean().item(),
        map4=None if found.map4 is None else found.map4.double().mean().item(),
    )


@contextmanager
def _threads(elements: int) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1 if elements <= FEW_ELEMENTS else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class _Decoded:
    """One output and its input; all (lines, length) in the orientation of that output, float64.

    x: the tensor; seen: the quantizer's input, rotated if rht; decoded: the dequantized output; restored: rotated back
    codes: magnitudes of the e2m1 codes, 0 to 7, uint8
    map4: (lines, blocks) bool, or None
    """

    x: torch.Tensor
    seen: torch.Tensor
    decoded: torch.Tensor
    codes: torch.Tensor
    restored: torch.Tensor
    map4: torch.Tensor | None


def _decode(case: Case, x: np.ndarray) -> _Decoded:
    import torch

    from harness.oracles import torch_numerics, torch_oracle  # imported here, because they import torch

    source = to_torch(x).to(fastest_device())
    output = side(case)
    oracle = oracle_of(case.recipe)
    written = oracle.torch_oracle(case, {"input": source})
    fields = {
        name: written[f"{output}_{name}"] for name in ("data", "scale_inv", "amax") if f"{output}_{name}" in written
    }
    amax_shape = tuple(fields["amax"].shape) if "amax" in fields else (1,)
    decoded = torch_oracle.dequantize(_decoder(case, amax_shape), fields)["output"].double()
    lines = source if output == "rowwise" else source.t().contiguous()
    seen, restored = lines, decoded
    if output == "columnwise" and case.flags.get("rht", False):
        seen = torch_numerics.rotate(lines, int(case.flags.sign_mask))
        restored = _rotated_back(decoded, int(case.flags.sign_mask))
    data = fields["data"]
    codes = torch.stack((data & 7, data >> 4 & 7), dim=2).flatten(1)
    map4 = oracle.map4(case, source)[output] if hasattr(oracle, "map4") else None
    return _Decoded(lines.double(), seen.double(), decoded, codes, restored, map4)


def _decoder(case: Case, amax_shape: tuple[int, ...]) -> Case:
    """The dequantize case that reads the output of `case`."""
    flags = {
        "dtype": "fp32",
        "scale_layout": case.flags.get("scale_layout", "compact"),
        "granularity": granularity_of(amax_shape),
        "e4m3_max": case.e4m3_max,
        "scale_format": case.scale_format,
        "global_scale": case.two_levels,
        "outputs": "rowwise",  # lines of either direction are decoded as rows
    }
    return Case("dequantize", Flags(flags), case.problem)


def _rotated_back(rotated: torch.Tensor, sign_mask: int) -> torch.Tensor:
    """Undo the rotation of 16 consecutive elements: Hadamard / 4 is its own inverse, and so are the signs."""
    import torch

    index = torch.arange(BLOCK)
    ones = sum((index[:, None] & index) >> bit & 1 for bit in range(4))
    hadamard = (1.0 - 2.0 * (ones % 2)).double() / 4
    signs = 1.0 - 2.0 * (sign_mask >> index & 1).double()
    back = (hadamard * signs).to(rotated.device)
    return (rotated.unflatten(1, (-1, BLOCK)) @ back).flatten(1)


def _error(found: _Decoded) -> tuple[torch.Tensor, torch.Tensor]:
    """|restored - x|, with 0 where x is not finite; and the mask of finite x."""
    finite = found.x.isfinite()
    error = (found.restored - found.x).abs().nan_to_num(nan=math.inf, posinf=math.inf)
    return error.masked_fill(~finite, 0), finite


def _energies(x: torch.Tensor, error: torch.Tensor, finite: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of squares over each block, (lines, blocks): of x where it is finite, and of its error."""
    signal = x.masked_fill(~finite, 0).square().unflatten(1, (-1, BLOCK)).sum(2)
    return signal, error.square().unflatten(1, (-1, BLOCK)).sum(2)


def _decibel(signal: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """10 log10(signal/noise); NaN where there is neither."""
    return 10 * (signal / noise).log10()
