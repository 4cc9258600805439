"""Special inputs: zeros, subnormal numbers, infinities and NaNs; single places, sums, and the ends of the range."""

from __future__ import annotations

import numpy as np

from harness.contract.dtypes import DTYPES, LARGEST, MANTISSA_BITS, rounded, unsigned
from harness.contract.field import round_up
from harness.inputs.distributions.edges import E4M3
from harness.inputs.distributions.ordinary import normal
from harness.inputs.distributions.tiles import BLOCK, joined, one_in_499, random_diagonals, tile_grid

F32 = np.float32


def zeros(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """All +0: amax 0, S_enc 1, scale bytes 0."""
    return np.zeros((rows, cols), F32)


def zero_rows(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Normal with half of the rows zero."""
    x = normal(rng, rows, cols, dtype)
    x[rng.permutation(rows)[: (rows + 1) // 2]] = 0
    return x


def zero_blocks(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Normal with a quarter each of the 1x16 blocks, the 16x1 blocks and the 16x16 tiles zero."""
    tiles = rng.standard_normal((*tile_grid(rows, cols), BLOCK, BLOCK), F32)
    tiles[rng.random(tiles.shape[:3]) < 0.25] = 0
    tiles.swapaxes(2, 3)[rng.random(tiles.shape[:3]) < 0.25] = 0
    tiles[rng.random(tiles.shape[:2]) < 0.25] = 0
    return joined(tiles, rows, cols)


def signed_zero(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Zeros of both signs and values that round to them, some in blocks with nothing else: code 0x8 beside 0x0."""
    tiles = rng.standard_normal((*tile_grid(rows, cols), BLOCK, BLOCK), F32)
    kind = rng.random(tiles.shape)
    tiles[kind < 0.3] *= F32(2.0**-10)
    tiles[kind > 0.6] *= F32(0)
    tiles[rng.random(tiles.shape[:3]) < 0.25] *= F32(0)
    return joined(tiles, rows, cols)


def subnormal(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Subnormals of the dtype, of every length: flushing any of them to zero shows."""
    bits = rng.integers(0, 1 << MANTISSA_BITS[dtype], (rows, cols), np.uint32)
    bits >>= rng.integers(0, MANTISSA_BITS[dtype], (rows, cols), np.uint32)
    sign = rng.integers(0, 2, (rows, cols), np.uint32) << (8 * DTYPES[dtype].itemsize - 1)
    return (bits | sign).astype(unsigned(dtype)).view(DTYPES[dtype])


def specials_inf(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Normal with a few infinities of both signs: S_enc 1, scale byte 448, the others x/448."""
    x = normal(rng, rows, cols, dtype)
    x[one_in_499(rng, rows, cols)] *= F32(np.inf)
    return x


def specials_nan(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Normal with NaNs of both signs and any payload, quiet and signalling: code 7, neighbours as if absent.

    From two tiles on, one whole 16x16 tile is NaN: its amax is 0, not NaN.
    """
    where = np.zeros((*tile_grid(rows, cols), BLOCK, BLOCK), bool)
    if where[:, :, 0, 0].size > 1:
        where[rng.integers(where.shape[0]), rng.integers(where.shape[1])] = True
    where = joined(where, rows, cols)
    where[one_in_499(rng, rows, cols)] = True
    nan = all_nan(rng, rows, cols, dtype)
    return np.where(where, nan, rounded(normal(rng, rows, cols, dtype), dtype))


def nan_lines(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Normal with one row and one column in 64 of nothing but NaN: as of zeros their amax is 0, but codes are 7.

    The same is true of their windows and blocks, of any length.
    """
    where = np.zeros((rows, cols), bool)
    for lines in (where, where.T):
        count = len(lines)
        lines[rng.permutation(count)[: max(count // 64, int(count > 1))]] = True
    nan = all_nan(rng, rows, cols, dtype)
    return np.where(where, nan, rounded(normal(rng, rows, cols, dtype), dtype))


def all_nan(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """NaNs alone, of both signs and any payload, quiet and signalling: amax and scales 0, as of zeros, but codes 7."""
    bits = rng.integers(1, 1 << MANTISSA_BITS[dtype], (rows, cols), np.uint32)
    infinity = np.array(np.inf, DTYPES[dtype]).view(unsigned(dtype)).astype(np.uint32)
    sign = rng.integers(0, 2, (rows, cols), np.uint32) << (8 * DTYPES[dtype].itemsize - 1)
    return (bits | infinity | sign).astype(unsigned(dtype)).view(DTYPES[dtype])


def one_hot_block(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """One non-zero in every 1x16 and 16x1 block, in every position: a lane that a reduction skips shows."""
    hot = random_diagonals(rng, *tile_grid(rows, cols))
    tiles = np.zeros(hot.shape, F32)
    values = rng.standard_normal(np.count_nonzero(hot), F32)
    tiles[hot] = np.where(values == 0, F32(1), values)  # one in some millions is drawn as 0
    return joined(tiles, rows, cols)


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


def exhaustive(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """All 65,536 bf16 values, NaNs and infinities among them, a block spanning four binades; fp16: all of its own.

    65,536 elements hold them all; a smaller tensor holds the first ones, a larger one repeats them.
    """
    binade = 1 << MANTISSA_BITS["fp16" if dtype == "fp16" else "bf16"]
    spread = 4 * binade // BLOCK
    bits = np.arange(1 << 16).reshape(-1, BLOCK, spread).swapaxes(1, 2)
    bits = np.resize(bits, (rows, cols))
    return (bits << 16).astype(np.uint32).view(F32) if dtype == "fp32" else bits.astype(np.uint16).view(DTYPES[dtype])


def exact_sum(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Any e2m1 value times 1 or 2, one per block: the values of a GEMM's packed operands, whose sums never round."""
    return _e2m1_times(rng, rows, cols, np.array([1, 2], F32))


def wide_sum(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Any e2m1 value times any e4m3 value, one per block: the values of packed operands whose sums all round."""
    return _e2m1_times(rng, rows, cols, E4M3)


def tiny_amax(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """An amax so small that S_enc stops at FLT_MAX, yet normal values; in fp16, amax at its smallest normal."""
    x = rng.uniform(-1, 1, (rows, cols)).astype(F32)
    return x * F32(2.0**-14 if dtype == "fp16" else 2.0**-119)


def large_amax(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """An amax of 2^118, at which the amax times a code and its scale overflows, and no value does; in fp16, 2^14."""
    x = rng.uniform(-1, 1, (rows, cols)).astype(F32)
    return x * F32(2.0**14 if dtype == "fp16" else 2.0**118)


def near_floor(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Amaxes of rows and columns within four binades of 1e-12, the floor of two recipes; fp16: zeros.

    Each row and each column has a factor; an element takes the smaller of its two.
    """
    # ldexp, not a power, which processors round differently.
    down, across = (
        np.ldexp(F32(1e-12) * rng.uniform(1, 2, extent).astype(F32), rng.integers(-4, 4, extent))
        for extent in (rows, cols)
    )
    return rng.uniform(-1, 1, (rows, cols)).astype(F32) * np.minimum(down[:, None], across)


def huge(rng: np.random.Generator, rows: int, cols: int, dtype: str) -> np.ndarray:
    """Values up to and including the dtype's largest: sums and products overflow, also in the rotation."""
    x = rng.uniform(-1, 1, (rows, cols)).astype(F32) * LARGEST[dtype]
    x[rng.integers(rows), rng.integers(cols)] = LARGEST[dtype]
    return x


def _e2m1_times(rng: np.random.Generator, rows: int, cols: int, scales: np.ndarray) -> np.ndarray:
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], F32)
    values = np.concatenate([values, -values])[rng.integers(0, 16, (rows, cols), np.uint8)]
    return values * rng.choice(scales, (rows, -(-cols // BLOCK))).repeat(BLOCK, axis=1)[:, :cols]
