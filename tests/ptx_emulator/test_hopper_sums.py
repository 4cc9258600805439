"""`mma` and `wgmma` of f16 on sm_90 sum as Hopper's matrix unit does, compiled and by NumPy; others sum exactly."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from both_paths import numpy_alone
from cuda_source import buffer, module

from evidence.matrix_sums.draws import COLS, KINDS, Tiles
from evidence.matrix_sums.model import fused_sum
from ptx_emulator.arithmetic import hopper_product
from ptx_emulator.instructions import wgmma
from ptx_emulator.launches import launch

pytestmark = pytest.mark.covers("mma.", "wgmma.")

SOURCE = (Path(__file__).parents[2] / "evidence" / "matrix_sums" / "products.cu").read_text()
ROWS = {"mma": 16, "wgmma": 64}  # of a tile
THREADS = {"mma": 32, "wgmma": 128}


def sums(instruction: str, tiles: Tiles) -> np.ndarray:
    """What the emulator sums, as float32 patterns (tiles, rows, 8)."""
    count, rows = tiles[0].shape[:2]
    out = np.zeros((count, rows, COLS), np.uint32)
    given = [*zip("abc", map(np.ascontiguousarray, tiles), strict=True), ("d", out)]
    products = module(SOURCE.replace("__global__", 'extern "C" __global__'))
    buffers = [buffer(*each) for each in given]
    launch(products, f"{instruction}_products", (count, 1, 1), (THREADS[instruction], 1, 1), buffers)
    return out


def modelled(tiles: Tiles) -> np.ndarray:
    """The same by the published model."""
    a, b, c = tiles
    left, right = np.broadcast_arrays(a[:, :, None], b[:, None])
    return fused_sum(left.reshape(-1, 16), right.reshape(-1, 16), c.reshape(-1)).reshape(c.shape)


@pytest.fixture(params=["compiled", "numpy"])
def path(request, monkeypatch):
    if request.param == "compiled":
        return nullcontext
    monkeypatch.setattr(wgmma._Product, "_multiply_exactly", lambda *_: 0)
    return numpy_alone


@pytest.mark.parametrize("instruction", ROWS)
@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_those_of_the_published_model(instruction, kind, path):
    tiles = KINDS[kind](np.random.default_rng(3), 4, ROWS[instruction])
    with path():
        found = sums(instruction, tiles)
    np.testing.assert_array_equal(found, modelled(tiles))


@pytest.mark.parametrize("instruction", ROWS)
def test_a_bit_less_would_be_seen(instruction, monkeypatch):
    """24 bits, as matrix units before Hopper keep: by the NumPy step, because machine code keeps the number."""
    monkeypatch.setattr(wgmma._Product, "_multiply_exactly", lambda *_: 0)
    monkeypatch.setattr(hopper_product, "KEPT", 24)
    tiles = KINDS["cut_off"](np.random.default_rng(3), 4, ROWS[instruction])
    with numpy_alone():
        found = sums(instruction, tiles)
    assert (found != modelled(tiles)).any()


def test_which_sums_are_known():
    known = hopper_product.is_measured
    assert known("sm_90a", "f16", 16) and known("sm_90", "f16", 16)
    assert not any((known("sm_90a", "bf16", 16), known("sm_90a", "f16", 8), known("sm_100a", "f16", 16)))
