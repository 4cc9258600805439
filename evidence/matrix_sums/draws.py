"""Products whose sums often differ if the order of summation is wrong: one function for each kind.

Each takes a generator, a count of tiles and the rows of one, and returns a (tiles, rows, 16) and b (tiles, 8, 16),
float16, and c (tiles, rows, 8), float32.
"""

from __future__ import annotations

import numpy as np

K, COLS = 16, 8
Tiles = tuple[np.ndarray, np.ndarray, np.ndarray]
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def decoded(rng: np.random.Generator, tiles: int, rows: int) -> Tiles:
    """NVFP4 values as our products decode them, with accumulators as large as their sums."""

    def lines(count: int) -> np.ndarray:
        codes = rng.choice(E2M1, (tiles, count, K)) * rng.choice([-1, 1], (tiles, count, K))
        scale = 2.0 ** rng.integers(-6, 7, (tiles, count, 1)) * (1 + rng.integers(0, 8, (tiles, count, 1)) / 8)
        return (codes * scale).astype(np.float16)

    return lines(rows), lines(COLS), _scaled(rng, (tiles, rows, COLS), -8, 22)


def alike(rng: np.random.Generator, tiles: int, rows: int) -> Tiles:
    """Normal numbers: terms of one size."""
    a, b = (rng.normal(size=(tiles, count, K)).astype(np.float16) for count in (rows, COLS))
    return a, b, rng.normal(size=(tiles, rows, COLS)).astype(np.float32)


def any_pattern(rng: np.random.Generator, tiles: int, rows: int) -> Tiles:
    """Any finite patterns of f16, subnormal ones among them."""

    def lines(count: int) -> np.ndarray:
        patterns = rng.integers(0, 1 << 16, (tiles, count, K))
        largest = patterns & 0x7C00 == 0x7C00  # infinities and NaN
        return np.where(largest, patterns ^ 0x0400, patterns).astype(np.uint16).view(np.float16)

    return lines(rows), lines(COLS), _scaled(rng, (tiles, rows, COLS), -50, 34)


def cut_off(rng: np.random.Generator, tiles: int, rows: int) -> Tiles:
    """One large term, and others that end around the last bit that is kept."""
    large = rng.integers(0, K + 1, tiles)  # K: the accumulator
    powers = np.where(np.arange(K) == large[:, None], 0, -13)[:, None, :]
    a = rng.choice([-1, 1], (tiles, rows, K)) * _digits(rng, (tiles, rows, K)) * 2.0**powers
    b = _digits(rng, (tiles, COLS, K)) * 2.0 ** (powers + rng.integers(-1, 2, (tiles, COLS, K)))
    c = _scaled(rng, (tiles, rows, COLS), -1, 2) * np.where(large == K, 1.0, 2.0**-24)[:, None, None]
    return a.astype(np.float16), b.astype(np.float16), c.astype(np.float32)


def cancelled(rng: np.random.Generator, tiles: int, rows: int) -> Tiles:
    """Large terms that leave a small rest, so that what was cut off shows in full."""
    a, b, c = cut_off(rng, tiles, rows)
    half = K // 2
    a[..., half:] = -a[..., :half]
    b[..., half:] = b[..., :half]
    a[..., 0] *= np.float16(1 + 2.0**-9)
    return a, b, (c * np.float32(2.0**-12)).astype(np.float32)


def tiny(rng: np.random.Generator, tiles: int, rows: int) -> Tiles:
    """Accumulators around the smallest float32, alone or beside the smallest product, 2^-48."""
    a, b = np.zeros((tiles, rows, K), np.float16), np.zeros((tiles, COLS, K), np.float16)
    a[rng.integers(0, 2, tiles) == 1, :, 0] = 2.0**-24
    b[:, ::2, 0] = 2.0**-24
    return a, b, _scaled(rng, (tiles, rows, COLS), -149, -120)


def special(rng: np.random.Generator, tiles: int, rows: int) -> Tiles:
    """Infinities, NaN, the largest numbers and zeros of both signs among others."""
    a, b, c = any_pattern(rng, tiles, rows)
    for x, share, values in (
        (a, 0.02, [np.inf, -np.inf, np.nan, 65504, -65504, 0.0, -0.0]),
        (b, 0.02, [np.inf, -np.inf, np.nan, 65504, -65504, 0.0, -0.0]),
        (c, 0.2, [np.inf, -np.inf, np.nan, 3.4028235e38, -3.4028235e38, 0.0, -0.0]),
    ):
        there = rng.random(x.shape) < share
        x[there] = rng.choice(np.array(values, x.dtype), int(there.sum()))
    return a, b, c


KINDS = {draw.__name__: draw for draw in (decoded, alike, any_pattern, cut_off, cancelled, tiny, special)}


def _digits(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Random significands in [1, 2) with f16's eleven bits."""
    return 1 + rng.integers(0, 1 << 10, shape) / 1024


def _scaled(rng: np.random.Generator, shape: tuple[int, ...], least: int, most: int) -> np.ndarray:
    """Random float32 values with any fraction and exponents from `least` to below `most`."""
    fraction = rng.choice([-1, 1], shape) * (1 + rng.integers(0, 1 << 23, shape) / 2.0**23)
    return np.ldexp(fraction, rng.integers(least, most, shape).astype(np.int32)).astype(np.float32)
