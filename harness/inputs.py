"""Named input distributions: each aims at one thing a quantizer can get wrong.

A distribution is a function in this file; its name is what suites write after `input:`. Nothing here comes from the
oracles: where an input must know a scale, it works it out for itself.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable

import ml_dtypes
import numpy as np

from harness import tensor_file
from harness.errors import InputError
from harness.tensor import round_up

DTYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "fp16": np.dtype(np.float16), "fp32": np.dtype(np.float32)}
MANTISSA_BITS = {"bf16": 7, "fp16": 10, "fp32": 23}
LARGEST = {name: np.float32(ml_dtypes.finfo(dtype).max) for name, dtype in DTYPES.items()}
F32 = np.float32
BLOCK = 16
SLAB = 1 << 24  # elements drawn at once

Distribution = Callable[[np.random.Generator, int, int, str], np.ndarray]
_registry: dict[str, Distribution] = {}


def make(name: str, rows: int, cols: int, dtype: str, seed: int) -> np.ndarray:
    """The (rows, cols) tensor called `name` in `bf16`, `fp16` or `fp32`, C-contiguous; the same seed, the same bytes.

    A name `file:<path>#<tensor>` is the top-left corner of a tensor of a .safetensors or .npy file. Raises InputError
    for a name or dtype that does not exist and for a file that cannot give this shape.
    """
    if dtype not in DTYPES:
        raise InputError(f"there is no input dtype {dtype!r}; it is one of {', '.join(DTYPES)}")
    if rows < 1 or cols < 1:
        raise InputError(f"an input has at least one row and one column, not {rows}x{cols}")
    if name.startswith(tensor_file.PREFIX):
        return rounded(tensor_file.load(name, rows, cols), dtype)
    if name not in _registry:
        near = difflib.get_close_matches(name, _registry, n=1, cutoff=0)[0]
        raise InputError(
            f"there is no input {name!r}; the nearest is {near!r}, and a tensor file is 'file:<path>#<tensor>'"
        )
    draw, rng = _registry[name], np.random.default_rng(seed)
    if draw is not normal:
        return rounded(draw(rng, rows, cols, dtype), dtype)
    # Row by row is the order it is drawn in, and the float32 values of a large tensor would not fit beside others'.
    x = np.empty((rows, cols), DTYPES[dtype])
    at_once = max(1, SLAB // cols)
    for first in range(0, rows, at_once):
        x[first : first + at_once] = rounded(draw(rng, min(at_once, rows - first), cols, dtype), dtype)
    return x


def names() -> list[tuple[str, str]]:
    """(name, one line about it) of every distribution, in the order of this file."""
    return [(name, (draw.__doc__ or "").partition("\n")[0]) for name, draw in _registry.items()]


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """`values` in `dtype`, nearest-even; values that already are of that dtype keep their bits, NaN payloads too."""
    if values.dtype == DTYPES[dtype]:
        return np.ascontiguousarray(values)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(values.astype(F32, copy=False).astype(DTYPES[dtype]))


def distribution(draw: Distribution) -> Distribution:
    """Register `draw(rng, rows, cols, dtype)` under its own name; it returns float32, or `dtype` to keep exact bits."""
    _registry[draw.__name__] = draw
    return draw


# --- ordinary tensors and outliers ------------------------------------------------------------------------------------


@distribution
def normal(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Standard normal values: what most elements of most layers look like."""
    return rng.standard_normal((rows, cols), F32)


@distribution
def outliers_rows(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Normal with one row in 64 fifty times larger: tokens that attend to nothing; columnwise blocks mix both."""
    x = normal(rng, rows, cols, dtype)
    x[_one_in_64(rng, rows)] *= F32(50)
    return x


@distribution
def outliers_cols(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Normal with one column in 64 fifty times larger: outlier features; rowwise blocks mix both."""
    x = normal(rng, rows, cols, dtype)
    x[:, _one_in_64(rng, cols)] *= F32(50)
    return x


@distribution
def outlier_spike(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Small normal values and a single 60,000: nearly every other block scale falls to the subnormals of e4m3."""
    x = normal(rng, rows, cols, dtype) / 4
    x[rng.integers(rows), rng.integers(cols)] = 60_000
    return x


@distribution
def spike_1e6(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Normal with one element in 499 at ±1e6 (fp16: ±65,504): with one amax, other scales are 0 or the smallest."""
    x = normal(rng, rows, cols, dtype)
    few = _few(rng, rows, cols)
    x[few] = np.copysign(np.minimum(F32(1e6), LARGEST[dtype]), x[few])
    return x


@distribution
def row_scales(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Normal rows, each times its own power of two from 2^-20 to 2^20 (fp16: 2^-10 to 2^10), both ends among them."""
    largest = 10 if dtype == "fp16" else 20
    exponents = rng.integers(-largest, largest, rows, endpoint=True)
    exponents[rng.permutation(rows)[:2]] = [-largest, largest][: min(2, rows)]
    return np.ldexp(normal(rng, rows, cols, dtype), exponents[:, None])


@distribution
def heavy_tail(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Log-normal magnitudes over some ten binades within every block: most codes are 0, few are large."""
    x = normal(rng, rows, cols, dtype)
    x *= np.exp(2 * normal(rng, rows, cols, dtype))
    return np.clip(x, -60_000, 60_000)


# --- rounding edges ---------------------------------------------------------------------------------------------------


@distribution
def ties(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Every e2m1 midpoint, exact or as near as the dtype gets, and its 1-ulp neighbours, under a full-mantissa amax.

    2688 = 7 * 384, so under an amax that is an odd multiple of 7 midpoint/m = midpoint * scale_inv * amax / 2688
    is now and then a bf16 value. The four amaxes were found by search: in some blocks the product is the midpoint
    itself, for each of the seven, and the tie rule shows; in others the roundings inside m push it one ulp to a side,
    and a direct multiplier shows.
    """
    amax = F32(7 * rng.choice([19, 31, 33, 35]) / 32)
    target = F32(rng.choice(_E4M3_NORMALS[_E4M3_NORMALS >= 7], _tile_grid(rows, cols)))
    wobble = rng.uniform(0.97, 1.03, target.shape).astype(F32)
    block_amax = np.minimum(rounded(target * amax / F32(448) * wobble, dtype).astype(F32), amax)
    s_enc = F32(2688) / amax
    scale_inv = (block_amax * (s_enc * (F32(1) / F32(6)))).astype(ml_dtypes.float8_e4m3fn).astype(F32)
    multiplier = F32(1) / (scale_inv * (F32(1) / s_enc))

    midpoints = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5], F32)
    tiles = midpoints[rng.integers(0, 7, (*target.shape, BLOCK, BLOCK), np.uint8)]
    tiles /= multiplier[..., None, None]
    ulps = np.array([-1, 0, 0, 1], np.int8)[rng.integers(0, 4, tiles.shape, np.uint8)]
    tiles = _moved(rounded(tiles, dtype), ulps).astype(F32)
    return _with_block_amax(rng, tiles, block_amax, amax, rows, cols)


@distribution
def four_over_six_ties(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Blocks that come back equally close mapped to 4 and to 6, one ulp beside that, or equal but for roundings.

    The amax makes S_enc a power of two, under an e4m3 bound of 448 or of 256 as the seed has it, so nothing rounds.
    In units of the scale of the map to 6, that map has 0, .5, 1, 1.5, 2, 3, 4, 6 and the other 0, .75, 1.5, 2.25, 3,
    4.5, 6: each of the values here is equally far from both, or is a .5, 2 or 4 and the block has a .75, 2.25 or 4.5,
    too. Zero tiles are ties as well. In some tiles values move by an ulp; in others some are so small that the order
    of a float32 sum decides what of them it loses. Every row holds the amax, so that an amax per row changes nothing.
    """
    grid = _tile_grid(rows, cols)
    bound = int(rng.choice([448, 256]))
    exponent = int(rng.integers(-9, -5))
    unit = np.exp2(rng.integers(-3, 8, grid, endpoint=True)).astype(F32)
    unit[rng.random(grid) < 0.15] = 0
    unit[:, 0] = bound
    unit *= F32(2.0**exponent)

    equal = np.array([0, 0.25, 0.625, 0.875, 1.25, 1.5, 2.125, 3, 3.25, 3.5, 4.25, 5.25, 5.5, 6], F32)
    tiles = equal[rng.integers(0, len(equal), (*grid, BLOCK, BLOCK), np.uint8)]
    kind = rng.random(grid)[..., None, None]
    small = (kind > 0.7) & (rng.random(tiles.shape) < 0.3)
    count = np.count_nonzero(small)
    tiles[small] = np.ldexp(rng.integers(64, 128, count).astype(F32), rng.integers(-30, -14, count))
    shifts = rng.permuted(np.broadcast_to(np.arange(BLOCK), (*grid, BLOCK)), axis=-1)
    for shift, value in zip(np.moveaxis(shifts, -1, 0), (6, 0.5, 0.75, 2, 2.25, 4, 4.5), strict=False):
        tiles[_diagonals(shift)] = value
    beside = (kind < 0.3) & (rng.random(tiles.shape) < 0.1) & (tiles > 0) & (tiles < 6) & (unit > 0)[..., None, None]
    ulps = np.where(beside, np.array([-1, 1], np.int8)[rng.integers(0, 2, tiles.shape, np.uint8)], np.int8(0))
    tiles *= unit[..., None, None]
    tiles = _moved(rounded(tiles, dtype), ulps).astype(F32)
    tiles *= np.array([1, -1], F32)[rng.integers(0, 2, tiles.shape, np.uint8)]
    return _joined(tiles, rows, cols)


@distribution
def scale_edges(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Block amaxes on every e4m3 rounding edge and its 1-ulp neighbours: subnormal, underflow and saturation too.

    One to a 16x16 tile, so that 320x320 elements hold them all.
    """
    amax = F32(21 * rng.choice([7, 9, 11]) * 128)
    edges = np.concatenate([_E4M3_MIDPOINTS, F32([2.0**-11, 2.0**-12, 448])])
    edges = rounded(edges / (F32(2688) / amax * (F32(1) / F32(6))), dtype)
    near = np.concatenate([_moved(edges, np.full(edges.shape, ulps)) for ulps in (-1, 0, 1)]).astype(F32)
    block_amax = np.minimum(np.resize(rng.permutation(near), _tile_grid(rows, cols)), amax)
    tiles = rng.uniform(-1, 1, (*block_amax.shape, BLOCK, BLOCK)).astype(F32) * block_amax[..., None, None]
    return _with_block_amax(rng, tiles, block_amax, amax, rows, cols)


@distribution
def midpoints(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Every midpoint of e2m1 and of e4m3 and its 1-ulp neighbours, of both signs: for the casts alone, with no scale.

    Repeated over the tensor, so that 1,024 elements hold them all.
    """
    edges = np.concatenate([F32([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5]), _E4M3_MIDPOINTS, F32([448])])
    near = np.concatenate([_moved(rounded(edges, dtype), np.full(edges.shape, ulps)) for ulps in (-1, 0, 1)])
    return np.resize(np.concatenate([near, -near]), (rows, cols))


# --- zeros and specials -----------------------------------------------------------------------------------------------


@distribution
def zeros(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """All +0: amax 0, S_enc 1, scale bytes 0."""
    return np.zeros((rows, cols), F32)


@distribution
def zero_rows(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Normal with half of the rows zero."""
    x = normal(rng, rows, cols, dtype)
    x[rng.permutation(rows)[: (rows + 1) // 2]] = 0
    return x


@distribution
def zero_blocks(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Normal with a quarter each of the 1x16 blocks, the 16x1 blocks and the 16x16 tiles zero."""
    tiles = rng.standard_normal((*_tile_grid(rows, cols), BLOCK, BLOCK), F32)
    tiles[rng.random(tiles.shape[:3]) < 0.25] = 0
    tiles.swapaxes(2, 3)[rng.random(tiles.shape[:3]) < 0.25] = 0
    tiles[rng.random(tiles.shape[:2]) < 0.25] = 0
    return _joined(tiles, rows, cols)


@distribution
def signed_zero(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Zeros of both signs and values that round to them, some in blocks with nothing else: code 0x8 beside 0x0."""
    tiles = rng.standard_normal((*_tile_grid(rows, cols), BLOCK, BLOCK), F32)
    kind = rng.random(tiles.shape)
    tiles[kind < 0.3] *= F32(2.0**-10)
    tiles[kind > 0.6] *= F32(0)
    tiles[rng.random(tiles.shape[:3]) < 0.25] *= F32(0)
    return _joined(tiles, rows, cols)


@distribution
def subnormal(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Nothing but subnormals of the dtype, of every length: flushing any of them to zero shows."""
    bits = rng.integers(0, 1 << MANTISSA_BITS[dtype], (rows, cols), np.uint32)
    bits >>= rng.integers(0, MANTISSA_BITS[dtype], (rows, cols), np.uint32)
    sign = rng.integers(0, 2, (rows, cols), np.uint32) << (8 * DTYPES[dtype].itemsize - 1)
    return (bits | sign).astype(_unsigned(dtype)).view(DTYPES[dtype])


@distribution
def specials_inf(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Normal with a few infinities of both signs: S_enc 1, scale byte 448, the others x/448."""
    x = normal(rng, rows, cols, dtype)
    x[_few(rng, rows, cols)] *= F32(np.inf)
    return x


@distribution
def specials_nan(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Normal with NaNs of both signs and any payload, quiet and signalling: code 7, neighbours as if absent.

    From two tiles on, one whole 16x16 tile is NaN: its amax is 0, not NaN.
    """
    where = np.zeros((*_tile_grid(rows, cols), BLOCK, BLOCK), bool)
    if where[:, :, 0, 0].size > 1:
        where[rng.integers(where.shape[0]), rng.integers(where.shape[1])] = True
    where = _joined(where, rows, cols)
    where[_few(rng, rows, cols)] = True
    bits = rng.integers(1, 1 << MANTISSA_BITS[dtype], (rows, cols), np.uint32)
    infinity = np.array(np.inf, DTYPES[dtype]).view(_unsigned(dtype)).astype(np.uint32)
    sign = rng.integers(0, 2, (rows, cols), np.uint32) << (8 * DTYPES[dtype].itemsize - 1)
    nan = (bits | infinity | sign).astype(_unsigned(dtype)).view(DTYPES[dtype])
    return np.where(where, nan, rounded(normal(rng, rows, cols, dtype), dtype))


# --- structure and range ----------------------------------------------------------------------------------------------


@distribution
def one_hot_block(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """One non-zero in every 1x16 and every 16x1 block, in every position: a lane that a reduction forgets shows."""
    hot = _random_diagonals(rng, *_tile_grid(rows, cols))
    tiles = np.zeros(hot.shape, F32)
    tiles[hot] = rng.standard_normal(np.count_nonzero(hot), F32)
    return _joined(tiles, rows, cols)


@distribution
def rht_adversarial(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Column blocks that the rotation turns into one element, or spreads flat, or nearly cancels.

    A row of the Hadamard matrix times the signs of the recipe (0xD7E8, or per_token's 0xACE1) rotates to a single
    element four times as large; a single element rotates to sixteen equal ones; a little noise on the former leaves
    small differences of large sums.
    """
    groups = round_up(rows, BLOCK) // BLOCK
    i = np.arange(BLOCK, dtype=np.uint8)
    hadamard = 1 - 2 * (np.bitwise_count(i[:, None] & i) % 2).astype(np.int8)
    signs = np.array([[-1 if mask >> j & 1 else 1 for j in range(BLOCK)] for mask in (0xD7E8, 0xACE1)], np.int8)
    one_element = (hadamard * signs[:, None]).reshape(-1, BLOCK)  # (32, 16): each rotates to one element
    one_hot = np.eye(BLOCK, dtype=np.int8)
    patterns = np.concatenate([one_element, one_hot]).astype(F32)
    columns = patterns[rng.integers(0, len(patterns), (groups, cols))]  # (groups, cols, 16)
    columns *= rng.uniform(0.5, 4, (groups, cols, 1)).astype(F32)
    noisy = rng.random((groups, cols)) < 0.4
    columns[noisy] += F32(2.0**-6) * rng.standard_normal((np.count_nonzero(noisy), BLOCK), F32)
    return columns.transpose(0, 2, 1).reshape(-1, cols)[:rows]


@distribution
def exhaustive(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """All 65,536 bf16 values, NaNs and infinities among them, a block spanning four binades; fp16: all of its own.

    65,536 elements hold them all; a smaller tensor holds the first ones, a larger one repeats them.
    """
    binade = 1 << MANTISSA_BITS["fp16" if dtype == "fp16" else "bf16"]
    spread = 4 * binade // BLOCK
    bits = np.arange(1 << 16).reshape(-1, BLOCK, spread).swapaxes(1, 2)
    bits = np.resize(bits, (rows, cols))
    return (bits << 16).astype(np.uint32).view(F32) if dtype == "fp32" else bits.astype(np.uint16).view(DTYPES[dtype])


@distribution
def exact_sum(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Any e2m1 value times the 1 or 2 of its block: what a GEMM is given packed, so that none of its sums rounds."""
    return _e2m1_times(rng, rows, cols, np.array([1, 2], F32))


@distribution
def wide_sum(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Any e2m1 value times any e4m3 value of its block: what a GEMM is given packed, so that all of its sums round."""
    return _e2m1_times(rng, rows, cols, _E4M3)


@distribution
def tiny_amax(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """An amax so small that S_enc stops at FLT_MAX, yet normal values; in fp16, amax at its smallest normal."""
    x = rng.uniform(-1, 1, (rows, cols)).astype(F32)
    return x * F32(2.0**-14 if dtype == "fp16" else 2.0**-119)


@distribution
def huge(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Values up to the largest of the dtype, which is there too: sums and products overflow, also in the rotation."""
    x = rng.uniform(-1, 1, (rows, cols)).astype(F32) * LARGEST[dtype]
    x[rng.integers(rows), rng.integers(cols)] = LARGEST[dtype]
    return x


# --- helpers ----------------------------------------------------------------------------------------------------------

_E4M3 = np.arange(0x7F, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(F32)
_E4M3_NORMALS = _E4M3[8:]
_E4M3_MIDPOINTS = (_E4M3[:-1] + _E4M3[1:]) / 2


def _e2m1_times(rng: np.random.Generator, rows: int, cols: int, scales: np.ndarray) -> np.ndarray:
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], F32)
    values = np.concatenate([values, -values])[rng.integers(0, 16, (rows, cols), np.uint8)]
    return values * rng.choice(scales, (rows, -(-cols // BLOCK))).repeat(BLOCK, axis=1)[:, :cols]


def _unsigned(dtype: str) -> np.dtype:
    return np.dtype(f"u{DTYPES[dtype].itemsize}")


def _moved(positive: np.ndarray, ulps: np.ndarray) -> np.ndarray:
    """Positive finite values, each moved by its number of ulps of their own dtype."""
    bits = np.dtype(f"i{positive.itemsize}")
    return (positive.view(bits) + ulps.astype(bits)).view(positive.dtype)


def _one_in_64(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.permutation(count)[: max(1, count // 64)]


def _few(rng: np.random.Generator, rows: int, cols: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of one element in 499, at least one."""
    count = max(1, rows * cols // 499)
    return rng.integers(0, rows, count), rng.integers(0, cols, count)


def _tile_grid(rows: int, cols: int) -> tuple[int, int]:
    """How many 16x16 tiles cover (rows, cols)."""
    return round_up(rows, BLOCK) // BLOCK, round_up(cols, BLOCK) // BLOCK


def _joined(tiles: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """(R, C, 16, 16) tiles → (rows, cols)."""
    return tiles.swapaxes(1, 2).reshape(tiles.shape[0] * BLOCK, -1)[:rows, :cols]


def _diagonals(shift: np.ndarray) -> np.ndarray:
    """(R, C) → (R, C, 16, 16) bool: a cyclic diagonal per tile, so that every line of it, either way, has one True."""
    lane = np.arange(BLOCK)
    return (lane - lane[:, None]) % BLOCK == shift[..., None, None]


def _random_diagonals(rng: np.random.Generator, tile_rows: int, tile_cols: int) -> np.ndarray:
    return _diagonals(rng.integers(0, BLOCK, (tile_rows, tile_cols)))


def _with_block_amax(
    rng: np.random.Generator, tiles: np.ndarray, block_amax: np.ndarray, amax: np.float32, rows: int, cols: int
) -> np.ndarray:
    """Random signs, `block_amax` once in every line of its tile, either way, and `amax` once: all blocks know their m.

    One diagonal per tile serves the 1x16 blocks, their columnwise twins and the 16x16 tiles alike.
    """
    hot = _random_diagonals(rng, *block_amax.shape)
    tiles = np.where(hot, block_amax[..., None, None], tiles)
    tiles[0, 0, 0, 0] = amax
    tiles *= np.array([1, -1], F32)[rng.integers(0, 2, tiles.shape, np.uint8)]
    return _joined(tiles, rows, cols)
