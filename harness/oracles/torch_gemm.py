"""GEMM in torch: NUMERICS 10.1 and 10.3, derived apart from the NumPy oracle.

Operands are decoded to code times scale first. A block's part of the sum is a matrix product of these in float64, where
nothing rounds in any order. Only the sum over blocks is float32.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from harness.contract.case import Case
from harness.oracles import torch_layout as layout
from harness.oracles import torch_numerics as numerics
from harness.oracles.torch_oracle import stored
from harness.oracles.torch_source import BLOCK, DTYPES

_WINDOW = 64
_SLAB = 1 << 22  # elements of the output that are summed at one time


def ordered(case: Case, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The output of 10.1 and 10.3, (M, N) in the case's dtype; a NaN is stored with every bit below the sign set.

    tensors: the arrays that `inputs` of the recipe makes
    """
    a, b = (values(case, tensors, name) for name in "ab")
    out = torch.empty((case.rows, case.problem.n), dtype=DTYPES[case.flags.dtype], device=a.device)
    for rows, cols in layout.slabs(case.rows, case.problem.n, _SLAB):
        if case.flags.epilogue == "windows":
            total = torch.zeros((rows.stop - rows.start, cols.stop - cols.start), device=a.device)
            for window, parts in enumerate(
                zip(a[rows].split(_WINDOW, dim=1), b[cols].split(_WINDOW, dim=1), strict=True)
            ):
                total += window_factors(tensors, (rows, cols), window) * _in_order(*parts)
        else:
            total = _in_order(a[rows], b[cols])
        out[rows, cols] = finished(case, tensors, (rows, cols), total)
    return out


def _in_order(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = torch.zeros((len(a), len(b)), device=a.device)
    for a_block, b_block in zip(a.split(BLOCK, dim=1), b.split(BLOCK, dim=1), strict=True):
        total += (a_block.double() @ b_block.double().T).float()
    return total


def window_factors(tensors: Mapping[str, torch.Tensor], at: tuple[slice, slice], window: int) -> torch.Tensor:
    """The float32 product of the amaxes of both operands in a window of 64 along K, for the part `at` of the output."""
    rows, cols = at
    return torch.outer(tensors["a_amax"][rows, window], tensors["b_amax"][cols, window])


def values(case: Case, tensors: Mapping[str, torch.Tensor], name: str) -> torch.Tensor:
    """An operand as float32, code times scale byte, which is exact: (M, K) of `a` or (N, K) of `b`."""
    data, scale_inv = tensors[f"{name}_data"], tensors[f"{name}_scale_inv"]
    if case.flags[f"{name}_scale_layout"] == "swizzled":
        scale_inv = layout.unswizzle(scale_inv)
    lines, blocks = data.shape[0], 2 * data.shape[1] // BLOCK
    stored_scales = scale_inv[:lines, :blocks].contiguous()
    if case.scale_format == "ue5m3":
        scale = numerics.ue5m3_values(stored_scales)
    else:
        scale = stored_scales.view(torch.float8_e4m3fn).float()
    return (numerics.decoded_pairs(data).unflatten(1, (-1, BLOCK)) * scale.unsqueeze(2)).flatten(1)


def finished(
    case: Case, tensors: Mapping[str, torch.Tensor], at: tuple[slice, slice], total: torch.Tensor
) -> torch.Tensor:
    """10.3 for the part `at` of the output, from its float32 sum."""
    flags = case.flags
    e_a, e_b = (114688, 114688) if case.scale_format == "ue5m3" else (flags.a_e4m3_max, flags.b_e4m3_max)
    range_of_codes = numerics.E2M1_MAX * numerics.E2M1_MAX * e_a * e_b
    rescale = torch.div(*(torch.tensor(v, dtype=torch.float32, device=total.device) for v in (1.0, range_of_codes)))
    if flags.epilogue == "windows":
        return stored(total * rescale, flags.dtype)
    given = [tensors.get(f"{name}_amax", total.new_full((1,), 6.0 * e)) for name, e in (("a", e_a), ("b", e_b))]
    row = given[0].expand(case.rows)[at[0]].unsqueeze(1)
    col = given[1].expand(case.problem.n)[at[1]]
    match flags.epilogue:
        case "per_tensor":
            none = "a_amax" not in tensors and "b_amax" not in tensors
            value = total * (flags.alpha if none else row * flags.alpha * col * rescale)
            if flags.beta:
                value = fused_multiply_add(flags.beta, tensors["c"][at].float(), value)
        case "row_scaled":
            value = total * rescale
            value = value * (row * col) if flags.b_granularity == "tensor" else value * row * col
        case "per_token":
            value = stored(total * rescale, "bf16").float() * row * col
        case _:
            value = total * row * col * rescale
    if flags.bias:
        value = value + tensors["bias"][at[1]].float()
    if flags.accumulate:
        value = stored(value, flags.dtype).float() + tensors["c"][at].float()
    return stored(value, flags.dtype)


def fused_multiply_add(x: float, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """x * y + z in float32, rounded once, for an x that is a float32.

    float64 holds the product. The sum there loses at most a few last bits, which matter only where the rest lies half
    way between two float32.
    """
    product, addend = y.double() * x, z.double()
    total = product + addend
    back = total - product
    rest = (product - (total - back)) + (addend - back)
    near = total.float()
    above = total > near
    infinity = torch.full_like(near, float("inf"))
    other = torch.nextafter(near, torch.where(above, infinity, -infinity))
    half_way = (total != near) & ((total - near).abs() == (other.double() - total).abs())
    return torch.where(half_way & (rest != 0) & ((rest > 0) == above), other, near)
