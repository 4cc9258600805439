"""Remove terms from a sum as long as two ways to compute it still differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from evidence.matrix_sums.draws import Tiles

Way = Callable[[Tiles], np.ndarray]


def smallest(unit: Way, model: Way, tiles: Tiles, at: tuple[int, int, int]) -> str:
    """The sum at (tile, row, column) reduced to the terms that matter, with both results, as one line.

    unit, model: from tiles to patterns of float32 (tiles, rows, 8), which differ there
    """
    now = _alone(tiles, at)
    while True:
        smaller = list(_without_a_term(now))
        if not smaller:
            break
        many = tuple(np.concatenate(parts) for parts in zip(*smaller, strict=True))
        differing = np.flatnonzero((unit(many) != model(many))[:, 0, 0])
        if not len(differing):
            break
        now = smaller[int(differing[0])]
    found, right = unit(now)[0, 0, 0], model(now)[0, 0, 0]
    return f"{_spelled(now)} is {found:#010x}, and the model has {right:#010x}"


def _alone(tiles: Tiles, at: tuple[int, int, int]) -> Tiles:
    """One tile with this sum as its first and zeros for all other sums."""
    tile, row, column = at
    a, b, c = (np.zeros_like(x[:1]) for x in tiles)
    a[0, 0], b[0, 0], c[0, 0, 0] = tiles[0][tile, row], tiles[1][tile, column], tiles[2][tile, row, column]
    return a, b, c


def _without_a_term(tiles: Tiles) -> Iterator[Tiles]:
    a, b, c = tiles
    for k in np.flatnonzero((a[0, 0] != 0) | (b[0, 0] != 0)):
        fewer = a.copy(), b.copy(), c
        fewer[0][0, 0, k] = fewer[1][0, 0, k] = 0
        yield fewer
    if c[0, 0, 0] != 0:
        yield a, b, np.zeros_like(c)


def _spelled(tiles: Tiles) -> str:
    """Factors and accumulator in hexadecimal floats, so that nothing is rounded."""
    a, b, c = tiles
    products = [f"{_hex(x)} * {_hex(y)}" for x, y in zip(a[0, 0], b[0, 0], strict=True) if x != 0 or y != 0]
    return " + ".join([_hex(c[0, 0, 0]), *products])


def _hex(x: np.floating) -> str:
    digits, _, power = float(x).hex().partition("p")
    return f"{digits.rstrip('0').rstrip('.')}p{power}" if power else digits
