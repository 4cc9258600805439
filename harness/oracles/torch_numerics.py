"""The arithmetic of NUMERICS section 2 as tensor operations: one torch operation is one rounding in float32.

NOTE: three conveniences of torch round twice or not as written. `number / tensor` multiplies by a reciprocal, `tensor /
number` does so on CUDA, and the e4m3 cast saturates only since 2.12. So both sides of a division are tensors here, and
values are clamped before that cast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.nn.functional import embedding

FLT_MAX = float.fromhex("0x1.fffffep+127")
BF16_MAX = float.fromhex("0x1.fep+127")
SIXTH = float.fromhex("0x1.555556p-3")  # RN(1/6) = 0x3E2AAAAB
E4M3_MAX = 448.0
UE5M3_MAX = 114688.0
E2M1_MAX = 6.0
AMAX_FLOOR = 1e-12  # sections 5 and 7 divide by no smaller amax

# Philox4x32-10
_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10

# (integer type of the same width, bits of +inf)
_BITS = {
    torch.bfloat16: (torch.int16, 0x7F80),
    torch.float16: (torch.int16, 0x7C00),
    torch.float32: (torch.int32, 0x7F800000),
}

Cast = Callable[[torch.Tensor], torch.Tensor]

_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_SIGNED_VALUES = (*_VALUES, *(-value for value in _VALUES))


def _constant(value: float, like: torch.Tensor) -> torch.Tensor:
    return torch.full((), value, dtype=torch.float32, device=like.device)


def _nearest_limits() -> list[float]:
    """The largest float32 that still rounds to each code below 7: a midpoint belongs to its even neighbour."""
    limits = torch.tensor([(low + high) / 2 for low, high in zip(_VALUES, _VALUES[1:], strict=False)])
    below = torch.nextafter(limits, torch.zeros(()))
    odd = torch.arange(len(limits)) % 2 == 1
    return torch.where(odd, below, limits).tolist()


_NEAREST_LIMITS = _nearest_limits()


def magnitude_max(x: torch.Tensor, dim: int) -> torch.Tensor:
    """2.2: max |x| along one axis as float32; NaN is dropped, 0 if nothing is left.

    Without its sign bit a float orders as its bits do, and only NaN lies above inf.
    """
    integer, infinity = _BITS[x.dtype]
    bits = x.view(integer) & torch.iinfo(integer).max
    return bits.masked_fill_(bits > infinity, 0).amax(dim).view(x.dtype).float()


def global_encode_scale(amax: torch.Tensor, floor: float | None = None, e4m3_max: float = E4M3_MAX) -> torch.Tensor:
    """2.1: S_enc of each granule; `floor` is the least amax the recipe divides by, `e4m3_max` that of 0.2."""
    if floor is not None:
        amax = torch.fmax(amax, _constant(floor, amax))
    scale = torch.fmin(torch.div(_constant(e4m3_max * E2M1_MAX, amax), amax), _constant(FLT_MAX, amax))
    return scale.masked_fill((amax == 0) | (scale == 0), 1.0)


def e4m3(value: torch.Tensor) -> torch.Tensor:
    """1.2 for values that are not negative: f32→e4m3, nearest even, saturating."""
    return value.clamp(max=E4M3_MAX).to(torch.float8_e4m3fn)


def ue5m3(value: torch.Tensor) -> torch.Tensor:
    """1.9 for any float32: f32→ue5m3 of |value|, nearest even, saturating, as uint8; a NaN is 0xFF.

    From 2^-14 on, the byte is the upper bits of the float under an exponent biased by 112 less, rounded as an integer.
    Below, it counts steps of 2^-17.
    """
    magnitude = value.abs()
    bits = magnitude.clamp(max=UE5M3_MAX).view(torch.int32)
    normal = ((bits + 0x7FFFF + (bits >> 20 & 1)) >> 20) - (112 << 3)
    steps = (magnitude.clamp(max=2.0**-14) * 2.0**17).round().int()
    return torch.where(magnitude < 2.0**-14, steps, normal).masked_fill(value.isnan(), 0xFF).to(torch.uint8)


def ue5m3_values(byte: torch.Tensor) -> torch.Tensor:
    """1.9: float32 of uint8 bytes: three bits of mantissa under five of exponent, and NaN for 0xFF."""
    exponent, mantissa = (byte >> 3).int(), (byte & 7).float()
    value = torch.ldexp(torch.where(exponent == 0, mantissa, mantissa + 8), exponent.clamp(min=1) - 18)
    return value.masked_fill(byte == 0xFF, float("nan"))


def block_scale_inv(
    block_amax: torch.Tensor, encode_scale: torch.Tensor, clamp: bool = True, cast: Cast = e4m3
) -> torch.Tensor:
    """2.4: the scale of each block as `cast` makes it, torch.float8_e4m3fn; `clamp` False leaves the fmin out."""
    product = block_amax * (encode_scale * SIXTH)
    return cast(torch.fmin(product, _constant(FLT_MAX, product)) if clamp else product)


def block_scale_base(block_amax: torch.Tensor, encode_scale: torch.Tensor) -> torch.Tensor:
    """2.5: the scale that takes the block amax to 6, float32, before any cast."""
    return torch.div(block_amax, _constant(E2M1_MAX, block_amax)) * encode_scale


def capped_e4m3(value: torch.Tensor) -> torch.Tensor:
    """fmin(value, 448) as torch.float8_e4m3fn; a NaN gives 448 here, and NaN in `e4m3`."""
    return e4m3(torch.fmin(value, _constant(E4M3_MAX, value)))


def reciprocal_multiplier(scale_inv: torch.Tensor, encode_scale: torch.Tensor) -> torch.Tensor:
    """2.3 and 2.6: 1/(scale_inv * S_dec), where S_dec = 1/S_enc; FLT_MAX where scale_inv is 0."""
    one = _constant(1.0, encode_scale)
    quotient = torch.div(one, scale_inv.float() * torch.div(one, encode_scale))
    return torch.fmin(quotient, _constant(FLT_MAX, quotient))


def direct_multiplier(scale_inv: torch.Tensor, encode_scale: torch.Tensor) -> torch.Tensor:
    """2.7: S_enc/scale_inv; 0 where scale_inv is 0."""
    scale = scale_inv.float()
    return torch.div(encode_scale, scale).masked_fill(scale == 0, 0.0)


def fast_multiplier(scale_inv: torch.Tensor, encode_scale: torch.Tensor) -> torch.Tensor:
    """Section 3, fast_math: S_enc/scale_inv rounded to bf16, at most the largest bf16; returned as float32."""
    quotient = torch.div(encode_scale, scale_inv.float())
    return torch.fmin(quotient, _constant(BF16_MAX, quotient)).bfloat16().float()


def nearest_codes(value: torch.Tensor) -> torch.Tensor:
    """2.8: e2m1 codes of float32 values by nearest-even, uint8; a NaN of either sign is 0x7."""
    limits = torch.tensor(_NEAREST_LIMITS, device=value.device)
    return _with_sign(torch.bucketize(value.abs(), limits, out_int32=True), value)


def decoded(codes: torch.Tensor) -> torch.Tensor:
    """The float32 values of uint8 codes 0 to 15; code 8 is -0.0."""
    return torch.tensor(_SIGNED_VALUES, device=codes.device)[codes.int()]


def stochastic_codes(value: torch.Tensor, bits: torch.Tensor) -> torch.Tensor:
    """2.9: e2m1 codes of float32 values under the random byte of each element, uint8; a NaN is 0x7.

    `u * step` is a byte times a power of two, so it is exact, and the sum rounds once, as the contract's fma does. The
    contract's floor to a multiple of step(t), capped at 6, is the largest e2m1 value that is not above t.
    """
    magnitude = value.abs()
    step = torch.where(magnitude >= 4, 2.0, torch.where(magnitude >= 2, 1.0, 0.5))
    raised = magnitude.add_(step.mul_(bits).mul_(2.0**-8))
    values = torch.tensor(_VALUES[1:], device=value.device)
    return _with_sign(torch.bucketize(raised, values, out_int32=True, right=True), value)


def _with_sign(codes: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Give each magnitude code the sign of its value, zeros included; a NaN takes the positive largest code."""
    nan = value.isnan()
    sign = value.signbit().logical_and_(~nan).to(torch.uint8) << 3
    return codes.to(torch.uint8).masked_fill_(nan, 7).bitwise_or_(sign)


def philox(counter: Sequence[torch.Tensor], key: tuple[int, int]) -> list[torch.Tensor]:
    """2.9: the four output words of each counter.

    A 32-bit word lives in an int64. The product of two words may pass 2^63 and wrap, which keeps all 64 bits of the
    unsigned product in two's complement; the mask after the shift takes away the copies of the sign.

    counter: four int64 tensors that broadcast together, values below 2^32, word 0 first
    key: two words below 2^32
    returns: four int64 tensors of the broadcast shape, values below 2^32
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (((p1 >> 32) & _WORD) ^ c1 ^ k0, p1 & _WORD, ((p0 >> 32) & _WORD) ^ c3 ^ k1, p0 & _WORD)
        k0, k1 = (k0 + _KEY_STEPS[0]) & _WORD, (k1 + _KEY_STEPS[1]) & _WORD
    return list(torch.broadcast_tensors(c0, c1, c2, c3))


def element_bits(block: torch.Tensor, direction: int, seed: int, offset: int) -> torch.Tensor:
    """The random byte of every element of the given blocks.

    block: (...) int64, row-major index of each 16-element block in its output
    direction: 0 for the rowwise output, 1 for the columnwise one
    seed: 64-bit key, low word first
    offset: the last counter word
    returns: (..., 16) uint8
    """
    fixed = [torch.full((), word, dtype=torch.int64, device=block.device) for word in (direction, offset)]
    words = philox([block & _WORD, block >> 32, *fixed], (seed & _WORD, seed >> 32))
    # NOTE: reading a word as four bytes takes bits 0-7 first only on a little-endian host, as every CUDA host is.
    return torch.stack(words, dim=-1).to(torch.int32).view(torch.uint8)


def hadamard(x: torch.Tensor, sign_mask: int) -> torch.Tensor:
    """2.10 without its length: rotate every 16 consecutive elements of the last axis; four times too long.

    x: (..., n) bf16, n a multiple of 16
    sign_mask: 16 bits, bit i set flips element i before the transform
    returns: (..., n) float32
    """
    signs = torch.tensor([-1.0 if sign_mask >> i & 1 else 1.0 for i in range(16)], device=x.device)
    r = x.float().unflatten(-1, (-1, 16)) * signs
    for stride in (1, 2, 4, 8):
        a, b = r.unflatten(-1, (-1, 2, stride)).unbind(-2)
        r = torch.stack((a + b, a - b), dim=-2).flatten(-3)
    return r.flatten(-2)


def rotate(x: torch.Tensor, sign_mask: int) -> torch.Tensor:
    """2.10, per_tensor form: the rotation at its right length, rounded to bf16."""
    return (hadamard(x, sign_mask) * 0.25).bfloat16()


def decoded_pairs(data: torch.Tensor) -> torch.Tensor:
    """(rows, n) bytes to the (rows, 2n) float32 values of their nibbles, the low one first; code 8 is -0.0."""
    values = torch.tensor(_SIGNED_VALUES, device=data.device)
    pairs = torch.stack((values.repeat(16), values.repeat_interleave(16)), dim=1)
    return embedding(data.int(), pairs).flatten(1)
