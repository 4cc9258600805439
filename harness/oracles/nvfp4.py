"""The building blocks of NUMERICS sections 1, 2 and 9 in NumPy. Every literal of the format is in this file.

Every array between two steps is float32, and every written operation rounds once, to nearest even. NumPy neither
flushes subnormals nor contracts a*b+c, and a float32 array stays float32 beside a Python number. Infinities and NaNs
are ordinary values here, so NumPy's warnings about them are off.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

BLOCK = 16  # elements that share one scale byte
WINDOW = 64  # elements that share one amax in local_1x64
CODES_PER_BYTE = 2
E2M1_MAX = 6  # 1.5 * 2^2
E4M3_MAX = 448  # 1.75 * 2^8
E4M3_BOUNDS = (256, 288, 320, E4M3_MAX)  # the lesser ones leave four_over_six room to scale a block up to half as much
E4M3_NAN = 0x7F
UE5M3_MAX = 114688  # 1.75 * 2^16
UE5M3_NAN = 0xFF
FLT_MAX = np.finfo(np.float32).max
BF16_MAX = np.float32(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
ONE = np.float32(1)
ONE_SIXTH = ONE / np.float32(E2M1_MAX)
RHT_NORM = np.float32(0.25)  # 1/sqrt(16)
AMAX_FLOOR = np.float32(1e-12)  # local_1x64 and per_token divide by no smaller amax

DTYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "fp16": np.dtype(np.float16), "fp32": np.dtype(np.float32)}
_CANONICAL_NAN = {"bf16": np.uint16(0x7FFF), "fp16": np.uint16(0x7FFF), "fp32": np.uint32(0x7FFFFFFF)}

Decode = Callable[[np.ndarray], np.ndarray]
"""Scale bytes → float32."""

ieee = np.errstate(all="ignore")

_E2M1_MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
E2M1_VALUES = np.concatenate([_E2M1_MAGNITUDES, -_E2M1_MAGNITUDES])


def _magnitudes_below(nan: int, bias: int) -> np.ndarray:
    """Values of the bytes below `nan`, float32; three mantissa bits, subnormal step 2^(-2 - bias)."""
    code = np.arange(nan)
    exponent, mantissa = code >> 3, code & 7
    significand = np.where(exponent == 0, mantissa, mantissa + 8).astype(np.float32)
    return np.ldexp(significand, np.maximum(exponent, 1) - bias - 3)


_E4M3_MAGNITUDES = _magnitudes_below(E4M3_NAN, 7)
_UE5M3_MAGNITUDES = _magnitudes_below(UE5M3_NAN, 15)
UE5M3_VALUES = np.append(_UE5M3_MAGNITUDES, np.float32(np.nan))
_E4M3_POSITIVE = np.append(_E4M3_MAGNITUDES, np.float32(np.nan))
E4M3_VALUES = np.concatenate([_E4M3_POSITIVE, -_E4M3_POSITIVE])


def _first_to_reach(magnitudes: np.ndarray) -> np.ndarray:
    """The smallest value that rounds to byte k+1, float32; a tie goes to the even one of k and k+1."""
    midpoint = (magnitudes[:-1] + magnitudes[1:]) / 2
    upper_is_odd = np.arange(midpoint.size) % 2 == 0
    return np.where(upper_is_odd, np.nextafter(midpoint, np.float32(np.inf)), midpoint)


_E4M3_THRESHOLDS = _first_to_reach(_E4M3_MAGNITUDES)
_UE5M3_THRESHOLDS = _first_to_reach(_UE5M3_MAGNITUDES)


def e2m1(v: np.ndarray) -> np.ndarray:
    """1.1  f32→e2m1 codes (uint8): nearest even, saturates at 6, keeps the sign of zero; any NaN gives 0x7."""
    a = np.abs(v)
    code = (a > 0.25).astype(np.uint8)
    for crossed in (a >= 0.75, a > 1.25, a >= 1.75, a > 2.5, a >= 3.5, a > 5):
        code += crossed
    return _signed(code, v)


def _signed(magnitude: np.ndarray, v: np.ndarray) -> np.ndarray:
    """e2m1 codes with the sign of `v` in bit 3, and 0x7 where `v` is NaN."""
    code = magnitude | (np.signbit(v).view(np.uint8) << 3)
    code[np.isnan(v)] = 0x7
    return code


def decode_e2m1(code: np.ndarray) -> np.ndarray:
    return E2M1_VALUES[code]


def e4m3(v: np.ndarray) -> np.ndarray:
    """1.2  f32→e4m3 bytes (uint8): nearest even, saturates at 448, inf too; NaN of either sign gives 0x7F."""
    magnitude = np.searchsorted(_E4M3_THRESHOLDS, np.abs(v), side="right").astype(np.uint8)
    byte = magnitude | (np.signbit(v).astype(np.uint8) << 7)
    return np.where(np.isnan(v), np.uint8(E4M3_NAN), byte)


def decode_e4m3(byte: np.ndarray) -> np.ndarray:
    return E4M3_VALUES[byte]


def ue5m3(v: np.ndarray) -> np.ndarray:
    """1.9  f32→ue5m3 bytes (uint8) of |v|: nearest even, saturates at 114688, inf too; NaN gives 0xFF."""
    byte = np.searchsorted(_UE5M3_THRESHOLDS, np.abs(v), side="right").astype(np.uint8)
    return np.where(np.isnan(v), np.uint8(UE5M3_NAN), byte)


def decode_ue5m3(byte: np.ndarray) -> np.ndarray:
    return UE5M3_VALUES[byte]


def pack(codes: np.ndarray) -> np.ndarray:
    """1.4  (..., n) codes → (..., n/2) bytes, the even element in the low nibble."""
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack(data: np.ndarray) -> np.ndarray:
    """(..., n/2) bytes → (..., n) codes, the low nibble first."""
    codes = np.empty((*data.shape[:-1], data.shape[-1] * CODES_PER_BYTE), np.uint8)
    codes[..., 0::2] = data & 0xF
    codes[..., 1::2] = data >> 4
    return codes


@ieee
def convert(v: np.ndarray, dtype: str) -> np.ndarray:
    """1.3  f32→`dtype`, nearest even as `cvt.rn`; overflow gives inf, and a NaN 0x7FFF, or 0x7FFFFFFF in fp32."""
    out = v.astype(DTYPES[dtype])
    nan = _CANONICAL_NAN[dtype]
    out.view(nan.dtype)[np.isnan(v)] = nan
    return out


@ieee
def global_encode_scale(global_amax: np.ndarray, e4m3_max: int = E4M3_MAX) -> np.ndarray:
    """2.1  S_enc of each amax, float32; an amax of 0 or inf gives 1."""
    s = np.fmin(np.float32(e4m3_max * E2M1_MAX) / global_amax, FLT_MAX)
    return np.where((global_amax == 0) | (s == 0), ONE, s)


def _magnitudes(v: np.ndarray) -> np.ndarray:
    """|v|, with 0 for NaN, as no amax is below 0. NumPy's `fmax` drops a signalling NaN in some of its loops alone."""
    a = np.abs(v)
    a[np.isnan(a)] = 0
    return a


def amax(v: np.ndarray, axis: int | None = None) -> np.ndarray:
    """2.2  max |v| over `axis`, or over all as (1,); NaN is dropped, 0 if nothing is left, inf stays."""
    largest = np.maximum.reduce(_magnitudes(v), axis=axis, initial=np.float32(0))
    return np.reshape(largest, 1) if axis is None else largest


def block_amax(v: np.ndarray) -> np.ndarray:
    """2.2  (lines, length) → (lines, length/16): amax of every 1x16 block."""
    a = _magnitudes(v).reshape(len(v), -1, BLOCK)
    largest = np.zeros(a.shape[:2], np.float32)
    for i in range(BLOCK):  # sixteen long passes; a reduction over an axis of 16 takes three times as long
        np.maximum(largest, a[..., i], out=largest)
    return largest


def tile_amax(v: np.ndarray) -> np.ndarray:
    """2.2  (lines, length) → (lines, length/16): amax of every block's 16x16 tile, repeated for the tile's 16 lines."""
    blocks = block_amax(v)
    tiles = amax(blocks.reshape(-1, BLOCK, blocks.shape[1]), axis=1)
    return np.repeat(tiles, BLOCK, axis=0)


def line_amax(v: np.ndarray) -> np.ndarray:
    """2.2  (lines, length) → (lines,): amax of every line."""
    return amax(v, axis=1)


def window_amax(v: np.ndarray) -> np.ndarray:
    """2.2  (lines, length) → (lines, length/64): amax of every 1x64 window."""
    return amax(block_amax(v).reshape(len(v), -1, WINDOW // BLOCK), axis=2)


def global_decode_scale(s_enc: np.ndarray) -> np.ndarray:
    """2.3  S_dec = RN(1/S_enc)."""
    return ONE / s_enc


@ieee
def scale_inv_multiply(amax_of_block: np.ndarray, s_enc: np.ndarray) -> np.ndarray:
    """2.4  Block scale, multiply form: the product S_enc * (1/6) comes first; f32→e4m3 rounds to nearest even."""
    return e4m3(np.fmin(amax_of_block * (s_enc * ONE_SIXTH), FLT_MAX))


@ieee
def scale_inv_ue5m3(amax_of_block: np.ndarray, s_enc: np.ndarray) -> np.ndarray:
    """2.4  The same, f32→ue5m3."""
    return ue5m3(np.fmin(amax_of_block * (s_enc * ONE_SIXTH), FLT_MAX))


@ieee
def multiplier_ue5m3(scale_inv: np.ndarray, s_enc: np.ndarray, fast: bool = False) -> np.ndarray:
    """2.6, or with `fast` that of fast_math, of a ue5m3 byte."""
    scale = decode_ue5m3(scale_inv)
    if fast:
        return bf16(np.fmin(s_enc / scale, BF16_MAX))
    return np.fmin(ONE / (scale * global_decode_scale(s_enc)), FLT_MAX)


@ieee
def scale_base_divide(amax_of_block: np.ndarray, s_enc: np.ndarray) -> np.ndarray:
    """2.5  Block scale, divide form, float32: before any cast."""
    return (amax_of_block / np.float32(E2M1_MAX)) * s_enc


@ieee
def multiplier_reciprocal(scale_inv: np.ndarray, s_dec: np.ndarray) -> np.ndarray:
    """2.6  Encode multiplier 1/(scale_inv * S_dec); FLT_MAX where the scale byte is 0."""
    return np.fmin(ONE / (decode_e4m3(scale_inv) * s_dec), FLT_MAX)


@ieee
def multiplier_direct(scale_inv: np.ndarray, s_enc: np.ndarray) -> np.ndarray:
    """2.7  Encode multiplier S_enc/scale_inv; 0 where the scale byte is 0."""
    return np.where(scale_inv == 0, np.float32(0), s_enc / decode_e4m3(scale_inv))


@ieee
def multiplier_fast(scale_inv: np.ndarray, s_enc: np.ndarray) -> np.ndarray:
    """Section 3, fast_math: S_enc/scale_inv rounded to bf16, float32; BF16_MAX where the scale byte is 0."""
    return bf16(np.fmin(s_enc / decode_e4m3(scale_inv), BF16_MAX))


@ieee
def scaled(v: np.ndarray, multiplier: np.ndarray) -> np.ndarray:
    """2.8  RN(v * m): every 16-block of `v`, (lines, length), times its multiplier, one of (lines, length/16)."""
    return (v.reshape(*multiplier.shape, BLOCK) * multiplier[..., None]).reshape(v.shape)


@ieee
def e2m1_stochastic(v: np.ndarray, random_byte: np.ndarray) -> np.ndarray:
    """2.9  f32→e2m1 codes, rounded up or down by one random byte per element.

    The product u * step(a) is 8 significant bits times a power of two, exact in float32, so the sum rounds once, as fma
    does.
    """
    a = np.abs(v)
    u = random_byte.astype(np.float32) * np.float32(2**-8)
    t = u * _e2m1_step(a) + a
    step = _e2m1_step(t)
    q = np.fmin(np.floor(t / step) * step, np.float32(E2M1_MAX))
    return _signed(e2m1(q), v)


def _e2m1_step(t: np.ndarray) -> np.ndarray:
    """Distance between e2m1 values around `t` >= 0: 2 from 4 on, 1 from 2 on, else 0.5."""
    step = np.full(t.shape, 0.5, np.float32)
    step[t >= 2] = 1
    step[t >= 4] = 2
    return step


def philox(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """Philox4x32-10: (4, n) uint32 counters → (4, n) uint32 random words."""
    c0, c1, c2, c3 = counter.astype(np.uint64)
    k0, k1 = key
    for _ in range(10):
        even, odd = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (odd >> 32) ^ c1 ^ k0, odd & 0xFFFFFFFF, (even >> 32) ^ c3 ^ k1, even & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3]).astype(np.uint32)


def random_bytes(index: np.ndarray, direction: int, offset: int, seed: int) -> np.ndarray:
    """2.9  A random byte for each element of the blocks with these numbers, (blocks,) uint64 → (blocks, 16) uint8."""
    counter = np.empty((4, len(index)), np.uint32)
    counter[0] = index & 0xFFFFFFFF
    counter[1] = index >> 32
    counter[2] = direction
    counter[3] = offset
    words = philox(counter, (seed & 0xFFFFFFFF, seed >> 32))
    return np.ascontiguousarray(words.T, dtype="<u4").view(np.uint8)


@ieee
def hadamard(v: np.ndarray, sign_mask: int) -> np.ndarray:
    """2.10  Flip signs and rotate every 16-block of (lines, length) float32 `v`; float32, four times too long.

    Bit i of `sign_mask` negates element i; then four butterfly stages with strides 1, 2, 4, 8: (a, b) → (a+b, a-b).
    """
    r = v.reshape(-1, BLOCK).T.copy()  # (16, blocks): a stage then works on long contiguous runs
    flipped = [i for i in range(BLOCK) if sign_mask >> i & 1]
    r[flipped] = -r[flipped]
    for stride in (1, 2, 4, 8):
        pairs = r.reshape(BLOCK // (2 * stride), 2, stride, r.shape[-1])
        a, b = pairs[:, 0], pairs[:, 1]
        r = np.stack([a + b, a - b], axis=1).reshape(r.shape)
    return np.ascontiguousarray(r.T).reshape(v.shape)


@ieee
def rht(v: np.ndarray, sign_mask: int) -> np.ndarray:
    """2.10, per_tensor: bf16(RN(r * 0.25)), as float32; f32→bf16 rounds to nearest even."""
    return bf16(hadamard(v, sign_mask) * RHT_NORM)


@ieee
def bf16(v: np.ndarray) -> np.ndarray:
    """f32→bf16→f32, nearest even."""
    return v.astype(DTYPES["bf16"]).astype(np.float32)


@ieee
def decode_factor(
    scale_inv: np.ndarray, granule_amax: np.ndarray, scale_max: int = E4M3_MAX, decode: Decode = decode_e4m3
) -> np.ndarray:
    """Section 9: f = RN(RN(scale_inv * amax) * C), C = RN(1/(6 * scale_max)); not reassociated."""
    c = ONE / np.float32(E2M1_MAX * scale_max)
    return (decode(scale_inv) * granule_amax) * c
