"""Compare the model with a matrix unit, kind by kind, and keep the smallest sum that it gets wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from evidence.matrix_sums.draws import COLS, KINDS, K, Tiles
from evidence.matrix_sums.model import FRACTION_BITS, fused_sum
from evidence.matrix_sums.smallest import smallest
from evidence.matrix_sums.units import ROWS, Unit
from harness.report.tables import markdown, write_table

CHUNK = 1 << 18  # sums at a time


@dataclass(frozen=True)
class Compared:
    """One instruction on one kind of products.

    sums: how many; differing: from the model; first: one of these, as small as it gets
    """

    instruction: str
    products: str
    sums: int
    differing: int
    first: str


def compare(unit: Unit, sums: int, seed: int) -> Iterator[Compared]:
    """Every instruction on every kind. sums: of each, at least"""
    for instruction, rows in ROWS.items():
        for number, (kind, draw) in enumerate(KINDS.items()):
            rng = np.random.default_rng([seed, rows, number])
            done, differing, first = 0, 0, ""
            while done < sums:
                tiles = draw(rng, -(-min(sums - done, CHUNK) // (rows * COLS)), rows)
                found, right = unit(instruction, tiles), modelled(tiles)
                wrong = np.argwhere(found != right)
                if len(wrong) and not first:
                    first = smallest(partial(unit, instruction), modelled, tiles, tuple(wrong[0]))
                done, differing = done + found.size, differing + len(wrong)
            yield Compared(instruction, kind, done, differing, first)


def modelled(tiles: Tiles, fraction_bits: int = FRACTION_BITS) -> np.ndarray:
    """The model's sums, patterns of float32 (tiles, rows, 8)."""
    a, b, c = tiles
    shape = (*c.shape, K)
    left = np.broadcast_to(a[:, :, None, :], shape).reshape(-1, K)
    right = np.broadcast_to(b[:, None, :, :], shape).reshape(-1, K)
    return fused_sum(left, right, c.reshape(-1), fraction_bits).reshape(c.shape)


def write(command: str, device: str, compared: Sequence[Compared], folder: Path) -> list[Path]:
    text = [
        "# Sums of the matrix unit",
        f"`{command}` on {device}",
        "One instruction for each sum of sixteen products of f16 and a float32, against the model of MMA-Sim (arXiv "
        "2511.10909): terms aligned to the largest and cut off behind 25 bits, their sum cut off to float32.",
        markdown(pd.DataFrame([asdict(one) for one in compared])),
    ]
    return write_table(folder, "matrix_sums", pd.DataFrame([asdict(one) for one in compared]), text)
