"""What a batch touched of a buffer lies in pages: each cell has one place, and the next batch finds nothing there."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_source import buffer

from ptx_emulator.races.async_global import GlobalCopies, TouchedCells

CELLS = 10_000


@pytest.mark.parametrize("width", [1, 3, 8, 64, 200], ids=lambda width: f"{width} cells")
def test_each_cell_has_one_place(width: int) -> None:
    first = np.random.default_rng(width).permutation(CELLS - width)[:300]
    touched = TouchedCells(CELLS)
    places = touched.at(first, width, adds=True)
    cells = first[:, None] + np.arange(width)
    np.testing.assert_array_equal(touched.at(cells.reshape(-1), 1, adds=False)[:, 0], places.reshape(-1))
    assert len(np.unique(places)) == len(np.unique(cells))
    assert places.max() < len(touched.writer)
    touched.writer[places] = cells + 1  # no cell loses what it holds to another
    np.testing.assert_array_equal(touched.writer[places], cells + 1)


def test_a_part_that_nothing_touched_holds_nothing() -> None:
    touched = TouchedCells(CELLS)
    place = touched.at(np.array([100]), 4, adds=True)
    touched.writer[place] = 7
    assert not touched.writer[touched.at(np.array([5000]), 4, adds=False)].any()


def test_what_is_kept_outlasts_more_pages() -> None:
    touched = TouchedCells(CELLS)
    place = touched.at(np.array([70]), 8, adds=True)
    touched.reads[place] = 5
    touched.at(np.arange(0, CELLS, 8), 8, adds=True)
    np.testing.assert_array_equal(touched.reads[touched.at(np.array([70]), 8, adds=False)], np.full((1, 8), 5))


def test_the_next_batch_finds_nothing() -> None:
    touched = TouchedCells(CELLS)
    every = np.arange(0, CELLS - 8, 8)
    places = touched.at(every, 8, adds=True)
    touched.writer[places], touched.writes[places], touched.reads[places] = 1, 2, 3
    touched.clear()
    again = touched.at(every[::-1].copy(), 8, adds=True)
    assert not (touched.writer[again].any() or touched.writes[again].any() or touched.reads[again].any())


def test_a_part_that_the_last_batch_met_has_no_page_left() -> None:
    touched = TouchedCells(CELLS)
    earlier, later = np.array([100]), np.array([100 + 64 * 40])  # at the same place in their pages
    touched.at(earlier, 4, adds=True)
    touched.clear()
    place = touched.at(later, 4, adds=True)
    touched.writer[place] = 7
    assert not touched.writer[touched.at(earlier, 4, adds=False)].any()


def test_a_batch_knows_nothing_of_what_the_last_one_copied() -> None:
    """Both batches use the same cells, which are cleared between them."""
    known = GlobalCopies()
    of_buffer = buffer("out", np.zeros(64, np.uint8))
    first = known.of(of_buffer, 4)
    place = first.at(np.array([3]), 1, adds=True)
    first.reads[place], first.writer[place] = 7, 1
    known.forget()
    second = known.of(of_buffer, 4)
    assert second is first
    assert not second.reads.any()
    assert not second.writer.any()
