"""What a batch met of a buffer lies in pages: each cell has one place, and the next batch finds nothing there."""

from __future__ import annotations

import numpy as np
import pytest

from ptx_emulator.races.async_global import TouchedCells

CELLS = 10_000


@pytest.mark.parametrize("width", [1, 3, 8, 64, 200], ids=lambda width: f"{width} cells")
def test_each_cell_has_one_place(width: int) -> None:
    first = np.random.default_rng(width).permutation(CELLS - width)[:300]
    met = TouchedCells(CELLS)
    places = met.at(first, width, adds=True)
    cells = first[:, None] + np.arange(width)
    np.testing.assert_array_equal(met.at(cells.reshape(-1), 1, adds=False)[:, 0], places.reshape(-1))
    assert len(np.unique(places)) == len(np.unique(cells))
    assert places.max() < len(met.writer)
    met.writer[places] = cells + 1  # no cell loses what it holds to another
    np.testing.assert_array_equal(met.writer[places], cells + 1)


def test_a_part_that_nothing_met_holds_nothing() -> None:
    met = TouchedCells(CELLS)
    place = met.at(np.array([100]), 4, adds=True)
    met.writer[place] = 7
    assert not met.writer[met.at(np.array([5000]), 4, adds=False)].any()


def test_what_is_kept_outlasts_more_pages() -> None:
    met = TouchedCells(CELLS)
    place = met.at(np.array([70]), 8, adds=True)
    met.reads[place] = 5
    met.at(np.arange(0, CELLS, 8), 8, adds=True)
    np.testing.assert_array_equal(met.reads[met.at(np.array([70]), 8, adds=False)], np.full((1, 8), 5))


def test_the_next_batch_finds_nothing() -> None:
    met = TouchedCells(CELLS)
    every = np.arange(0, CELLS - 8, 8)
    places = met.at(every, 8, adds=True)
    met.writer[places], met.writes[places], met.reads[places] = 1, 2, 3
    met.clear()
    again = met.at(every[::-1].copy(), 8, adds=True)
    assert not (met.writer[again].any() or met.writes[again].any() or met.reads[again].any())


def test_a_part_that_the_last_batch_met_has_no_page_left() -> None:
    met = TouchedCells(CELLS)
    earlier, later = np.array([100]), np.array([100 + 64 * 40])  # at the same place in their pages
    met.at(earlier, 4, adds=True)
    met.clear()
    place = met.at(later, 4, adds=True)
    met.writer[place] = 7
    assert not met.writer[met.at(earlier, 4, adds=False)].any()
