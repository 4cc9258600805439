"""The steps from a matrix to NVFP4 bytes, each with the choices in which implementations differ.

The defaults are the contract. A changed choice is a hypothesis about what a wrong kernel does: `changed_steps` tries
which choices give a kernel's bytes, `trace` prints the steps of one block. This is a diagnosis, never a verdict: the
bytes that decide come from the oracles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from harness.contract.case import Case
from harness.expected import formats
from harness.expected.expected import oracle_of
from harness.expected.formats import BLOCK, VALUES
from harness.oracles import nvfp4

WINDOW = 64
E4M3_BOUNDS = 256, 288, 320, 448  # the values of e4m3_max

_CHUNK = 1 << 22  # float32 elements in memory at once while an amax is computed
_FLT_MAX = np.finfo(np.float32).max
_WORD = np.uint64(0xFFFFFFFF)
_BF16_MAX = np.float32(ml_dtypes.finfo(ml_dtypes.bfloat16).max)


@dataclass(frozen=True)
class Encoded:
    """The results of every step on n lines of a length: arrays (n, blocks) float32 unless stated otherwise.

    values, product: (n, length)
    encode_scale, decode_scale: S_enc and S_dec, (n or 1, blocks or 1)
    scale: before its cast
    scale_inv: (n, blocks) uint8
    random: (n, length) uint8, None for rne
    codes: (n, length) uint8
    """

    values: np.ndarray
    encode_scale: np.ndarray
    decode_scale: np.ndarray
    block_amax: np.ndarray
    scale: np.ndarray
    scale_inv: np.ndarray
    multiplier: np.ndarray
    product: np.ndarray
    random: np.ndarray | None
    codes: np.ndarray

    @property
    def data(self) -> np.ndarray:
        """(n, length/2) uint8, the even element in the low nibble."""
        return self.codes[:, 0::2] | (self.codes[:, 1::2] << 4)


@dataclass(frozen=True)
class Steps:
    """One way from a matrix to bytes, for one output direction.

    direction: 0 rowwise, 1 columnwise; a line is a row or a column of the input
    seed, offset: Philox key and last counter word
    granularity: `tensor`, `row` or `window`
    amax_floor: the least amax that S_enc is computed from
    e4m3_max: the largest scale that is aimed at; two_levels: whether there is an amax, without which S_enc is 1
    square: True for 16x16 blocks
    granule: whose amax a line or window takes: its `own`, the `first` one, that of the line whose number differs by
        `xor N`, or of the line `+N` or `-N` away
    rotation: sign mask of the rht, None without
    rotation_strides: of its butterflies; rotation_turned: whether they have b - a for a - b
    rotation_norm: what the rotated values are multiplied by
    rotation_rounded: whether the rotated values are rounded to bf16
    amax_of: `magnitudes`, `values` (no abs), `even` (elements), `rotated_fp32` (before the rounding to bf16) or
        `nan_kept`
    block_nans: whether a block's amax is NaN: `dropped` (never), `kept` (if any of its values is NaN) or `kept_alone`
        (if all are)
    encode_clamped: whether S_enc is FLT_MAX at most; encode_of_inf: S_enc of an infinite amax,
        encode_of_none: where there is none
    encode_flushed: whether S_enc of an amax above 2^126 is that of an infinite one
    scale_form: `multiply` or `divide`
    multiplier: `reciprocal`, `direct` or `fast`
    multiplier_of: what it is made of, the `scale_inv` that is stored or the `scale` before its cast
    multiplier_ulps: how many last bits are added to it
    underflow: the multiplier of a block whose scale is 0, where it is not the contract's
    rounding: `rne` or `sr`
    random_direction: the third counter word if it is not `direction`
    random_order: which byte of a word serves each of its four elements
    random_sum: the dtype that a value and its random share are added in
    scale_product, scale_cast, multiplier_by, product_by, code_cast: functions that take the place of a step, as
        `other_products` and `casts` have them; None for the contract's
    """

    direction: int = 0
    seed: int = 0
    offset: int = 0
    granularity: str = "tensor"
    amax_floor: float = 0.0
    e4m3_max: int = 448
    scale_format: str = "e4m3"
    two_levels: bool = True
    square: bool = False
    granule: str = "own"
    rotation: int | None = None
    rotation_strides: tuple[int, ...] = (1, 2, 4, 8)
    rotation_turned: bool = False
    rotation_norm: float = 0.25
    rotation_rounded: bool = True
    amax_of: str = "magnitudes"
    block_nans: str = "dropped"
    encode_clamped: bool = True
    encode_of_inf: float = 1.0
    encode_of_none: float = 1.0
    encode_flushed: bool = False
    scale_form: str = "multiply"
    multiplier: str = "reciprocal"
    multiplier_of: str = "scale_inv"
    multiplier_ulps: int = 0
    underflow: float | None = None
    rounding: str = "rne"
    random_direction: int | None = None
    random_order: tuple[int, ...] = (0, 1, 2, 3)
    random_sum: type = np.float32
    scale_product: Callable[..., np.ndarray] | None = None
    scale_cast: Callable[..., np.ndarray] | None = None
    multiplier_by: Callable[..., np.ndarray] | None = None
    product_by: Callable[..., np.ndarray] | None = None
    code_cast: Callable[..., np.ndarray] | None = None

    @classmethod
    def of(cls, case: Case, side: str) -> Steps | None:
        """The contract's steps for `rowwise` or `columnwise`; None if the recipe's oracle has no `encode_steps`."""
        oracle = oracle_of(case.recipe)
        if not hasattr(oracle, "encode_steps"):
            return None
        rotated = side == "columnwise" and case.flags.get("rht", False)
        return cls(
            direction=int(side == "columnwise"),
            seed=case.seed,
            offset=case.offset,
            rotation=int(case.flags.sign_mask) if rotated else None,
            rounding=str(case.flags.get("rounding", "rne")),
            **oracle.encode_steps(case),
        )

    @np.errstate(all="ignore")
    def lines(self, x: np.ndarray, numbers: np.ndarray | slice) -> np.ndarray:
        """(n, length) float32: the values to quantize in some lines of the input, rotated if the steps rotate."""
        values = self._rotated(x, numbers)
        if self.rotation is None or not self.rotation_rounded:
            return values
        return values.astype(ml_dtypes.bfloat16).astype(np.float32)

    def group(self, line: int) -> np.ndarray:
        """Numbers of the lines that are encoded together: `line` itself, or the 16 lines of its square blocks."""
        return np.arange(line // BLOCK * BLOCK, line // BLOCK * BLOCK + BLOCK) if self.square else np.array([line])

    def amax(self, x: np.ndarray) -> np.ndarray:
        """(1,), (lines,) or (lines, length/64) float32 by granularity."""
        count, length = x.shape[::-1] if self.direction else x.shape
        step = max(1, _CHUNK // length)
        width = WINDOW if self.granularity == "window" else length
        read = self._rotated if self.amax_of == "rotated_fp32" else self.lines
        parts = [read(x, slice(first, first + step)) for first in range(0, count, step)]
        nans = "kept" if self.amax_of == "nan_kept" else "dropped"
        found = np.concatenate([self._largest(part.reshape(len(part), -1, width), nans) for part in parts])
        if self.granularity == "window":
            return found
        return self._largest(found.reshape(1, -1), nans) if self.granularity == "tensor" else found[:, 0]

    @np.errstate(all="ignore")
    def encode(self, values: np.ndarray, numbers: np.ndarray, amax: np.ndarray) -> Encoded:
        """Encode whole lines.

        values: (n, length) float32 from `lines`; with square blocks n counts whole groups of 16 lines
        numbers: (n,) their line numbers
        amax: of all granules, as `amax` gives it
        """
        n, blocks = len(values), values.shape[1] // BLOCK
        encode_scale = self._encode_scale(amax, numbers)
        decode_scale = np.float32(1) / encode_scale
        grouped = values.reshape(n, blocks, BLOCK)
        block_amax = self._largest(grouped, self.block_nans)
        if self.square:
            block_amax = np.repeat(block_amax.reshape(-1, BLOCK, blocks).max(axis=1), BLOCK, axis=0)
        scale = self._scale(block_amax, encode_scale)
        scale_inv = self._scale_bytes(scale) if self.scale_cast is None else self.scale_cast(scale)
        divisor = scale if self.multiplier_of == "scale" else VALUES[self.scale_format][scale_inv]
        multiplier = self._multiplier(divisor, encode_scale, decode_scale)
        if self.product_by is None:
            product = grouped * multiplier[:, :, None]
        else:
            both = (np.broadcast_to(each, divisor.shape)[:, :, None] for each in (encode_scale, decode_scale))
            product = self.product_by(grouped, divisor[:, :, None], *both, multiplier[:, :, None])
            product = np.where((divisor == 0)[:, :, None], grouped * multiplier[:, :, None], product).astype(np.float32)
        product = product.reshape(n, -1)
        random = self._random(numbers, blocks) if self.rounding == "sr" else None
        codes = self._codes(product, random)
        return Encoded(
            values, encode_scale, decode_scale, block_amax, scale, scale_inv, multiplier, product, random, codes
        )

    def _codes(self, product: np.ndarray, random: np.ndarray | None) -> np.ndarray:
        if self.code_cast is not None and random is None:
            return self.code_cast(product)
        return formats.e2m1(product, random, self.random_sum)

    @np.errstate(all="ignore")
    def scales(self, block_amax: np.ndarray, amaxes: np.ndarray) -> np.ndarray:
        """(n, blocks) uint8: the scale bytes of some blocks under each of n amaxes."""
        return self._scale_bytes(self._scale(block_amax[None, :], self._encode_of(amaxes)[:, None]))

    def _scale_bytes(self, scale: np.ndarray) -> np.ndarray:
        return formats.e4m3(scale) if self.scale_format == "e4m3" else formats.ue5m3(scale)

    def _rotated(self, x: np.ndarray, numbers: np.ndarray | slice) -> np.ndarray:
        chosen = x[:, numbers].T if self.direction else x[numbers]
        values = np.ascontiguousarray(chosen).astype(np.float32)
        if self.rotation is None:
            return values
        strides, norm = self.rotation_strides, np.float32(self.rotation_norm)
        return formats.rotate(values, self.rotation, strides, self.rotation_turned) * norm

    @np.errstate(all="ignore")
    def _largest(self, values: np.ndarray, nans: str = "dropped") -> np.ndarray:
        magnitudes = self._magnitudes(values)
        # NaNs are dropped by value: NumPy's `fmax` gives a NaN for a signalling one, in some loops and not in others.
        is_nan = np.isnan(magnitudes)
        largest = np.where(is_nan, np.float32(0), magnitudes).max(axis=-1, initial=np.float32(0))
        if nans == "dropped":
            return largest
        kept = is_nan.any(axis=-1) if nans == "kept" else is_nan.all(axis=-1)
        return np.where(kept, np.float32(np.nan), largest)

    def _magnitudes(self, values: np.ndarray) -> np.ndarray:
        if self.amax_of == "even":
            values = values[..., ::2]
        return values if self.amax_of == "values" else np.abs(values)

    def _encode_scale(self, amax: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        if self.granularity == "tensor":
            return self._encode_of(amax.reshape(-1)[:1].reshape(1, 1))  # weight_2d stores the one amax for every line
        granules = amax[self._whose(numbers, len(amax))]
        by_block = granules[:, None] if self.granularity == "row" else np.repeat(granules, WINDOW // BLOCK, axis=1)
        return self._encode_of(by_block)

    def _whose(self, numbers: np.ndarray, count: int) -> np.ndarray:
        if self.granule == "own":
            return numbers
        if self.granule == "first":
            return numbers * 0
        other = numbers ^ int(self.granule[4:]) if self.granule.startswith("xor") else numbers + int(self.granule)
        return np.where((other >= 0) & (other < count), other, numbers)

    def _encode_of(self, granules: np.ndarray) -> np.ndarray:
        if not self.two_levels:
            return np.full_like(granules, self.encode_of_none)
        granules = np.fmax(granules, np.float32(self.amax_floor))
        scale = np.float32(self.e4m3_max * 6) / granules
        if self.encode_flushed:
            scale = np.where(granules > np.float32(2**126), np.float32(0), scale)
        if self.encode_clamped:
            scale = np.fmin(scale, _FLT_MAX)
        return np.where(granules == 0, np.float32(1), np.where(scale == 0, np.float32(self.encode_of_inf), scale))

    def _scale(self, block_amax: np.ndarray, encode_scale: np.ndarray) -> np.ndarray:
        if self.scale_product is not None:
            return np.fmin(self.scale_product(block_amax, encode_scale), _FLT_MAX)
        if self.scale_form == "divide":
            return block_amax / np.float32(6) * encode_scale
        return np.fmin(block_amax * (encode_scale * (np.float32(1) / np.float32(6))), _FLT_MAX)

    def _multiplier(self, scale: np.ndarray, encode_scale: np.ndarray, decode_scale: np.ndarray) -> np.ndarray:
        if self.multiplier_by is not None:
            return np.asarray(self.multiplier_by(scale, encode_scale, decode_scale), np.float32)
        multiplier = self._exact_multiplier(scale, encode_scale, decode_scale).astype(np.float32)
        if self.multiplier_ulps:
            moved = (multiplier.view(np.int32) + np.int32(self.multiplier_ulps)).view(np.float32)
            multiplier = np.where(np.isfinite(moved), moved, multiplier)
        return multiplier if self.underflow is None else np.where(scale == 0, np.float32(self.underflow), multiplier)

    def _exact_multiplier(self, scale: np.ndarray, encode_scale: np.ndarray, decode_scale: np.ndarray) -> np.ndarray:
        if self.multiplier == "direct":
            return np.where(scale == 0, np.float32(0), encode_scale / scale)
        if self.multiplier == "fast":
            return np.fmin(encode_scale / scale, _BF16_MAX).astype(ml_dtypes.bfloat16).astype(np.float32)
        return np.fmin(np.float32(1) / (scale * decode_scale), _FLT_MAX)

    def _random(self, numbers: np.ndarray, blocks: int) -> np.ndarray:
        index = np.asarray(numbers, np.uint64)[:, None] * np.uint64(blocks) + np.arange(blocks, dtype=np.uint64)
        direction = self.direction if self.random_direction is None else self.random_direction
        fixed = np.full((2, index.size), [[direction], [self.offset]], np.uint64)
        counter = np.stack((index.reshape(-1) & _WORD, index.reshape(-1) >> np.uint64(32), *fixed)).astype(np.uint32)
        words = nvfp4.philox(counter, (self.seed & 0xFFFFFFFF, self.seed >> 32))
        random = np.ascontiguousarray(words.T, "<u4").view(np.uint8).reshape(-1, 4)
        return random[:, self.random_order].reshape(len(numbers), -1)


def side_and_kind(field: str) -> tuple[str, str]:
    """A field's side, `rowwise` or `columnwise`, and kind, `amax`, `scale_inv` or `data`; else its name as its kind."""
    for side in ("rowwise", "columnwise"):
        if field.startswith(f"{side}_"):
            return side, field.removeprefix(f"{side}_")
    return "", field
