"""Padding and the 128x4 order, against the offset formula written out."""

from __future__ import annotations

import numpy as np
import pytest

from harness.oracles import layout


@pytest.mark.parametrize("shape", [(128, 4), (256, 4), (128, 12), (384, 20)])
def test_swizzle_is_the_formula(shape):
    compact = np.random.default_rng(0).permutation(shape[0] * shape[1]).reshape(shape)
    flat = layout.swizzle(compact).ravel()
    tiles = shape[1] // 4
    for r in range(shape[0]):
        for c in range(shape[1]):
            offset = ((r // 128) * tiles + c // 4) * 512 + (r % 32) * 16 + ((r % 128) // 32) * 4 + c % 4
            assert flat[offset] == compact[r, c]
    np.testing.assert_array_equal(layout.unswizzle(layout.swizzle(compact)), compact)


@pytest.mark.parametrize("scale_layout", ["compact", "swizzled"])
@pytest.mark.parametrize("shape", [(48, 5), (304, 17), (16, 1), (128, 4)])
def test_arrange_pads_with_zero_and_gather_takes_it_back(shape, scale_layout):
    scale_inv = np.random.default_rng(1).integers(1, 256, shape, np.uint8)
    allocation = layout.arrange(scale_inv, scale_layout)
    assert allocation.shape == (-(-shape[0] // 128) * 128, -(-shape[1] // 4) * 4)
    assert np.count_nonzero(allocation) == scale_inv.size
    assert allocation.flags.c_contiguous
    np.testing.assert_array_equal(layout.gather(allocation, shape, scale_layout), scale_inv)


def test_slabs_cover_every_line_once_and_cut_no_tile(monkeypatch):
    monkeypatch.setattr(layout, "SLAB_ELEMENTS", 33 * 80)
    parts = list(layout.slabs(112, 80))
    assert [(p.start, p.stop) for p in parts] == [(0, 32), (32, 64), (64, 96), (96, 112)]
