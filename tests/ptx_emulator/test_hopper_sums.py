"""`mma` and `wgmma` of f16 on sm_90 sum as Hopper's matrix unit does, compiled and by NumPy; others sum exactly."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from both_paths import numpy_alone

from evidence.matrix_sums import compare, units
from evidence.matrix_sums.draws import KINDS
from harness.device.emulator import EmulatorDevice
from ptx_emulator.arithmetic import hopper_product
from ptx_emulator.instructions import wgmma

pytestmark = pytest.mark.covers("mma.", "wgmma.")


@pytest.fixture(params=["compiled", "numpy"])
def path(request, monkeypatch):
    if request.param == "compiled":
        return nullcontext
    monkeypatch.setattr(wgmma._Product, "_multiply_exactly", lambda *_: 0)
    return numpy_alone


@pytest.mark.parametrize("instruction", units.ROWS)
@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_those_of_the_published_model(instruction, kind, path):
    tiles = KINDS[kind](np.random.default_rng(3), 4, units.ROWS[instruction])
    with path():
        found = units.unit_of(EmulatorDevice())(instruction, tiles)
    np.testing.assert_array_equal(found, compare.modelled(tiles))


@pytest.mark.parametrize("instruction", units.ROWS)
def test_a_bit_less_would_be_seen(instruction, monkeypatch):
    """24 bits, as matrix units before Hopper keep: by the NumPy step, because machine code keeps the number."""
    monkeypatch.setattr(wgmma._Product, "_multiply_exactly", lambda *_: 0)
    monkeypatch.setattr(hopper_product, "KEPT", 24)
    tiles = KINDS["cut_off"](np.random.default_rng(3), 4, units.ROWS[instruction])
    with numpy_alone():
        found = units.unit_of(EmulatorDevice())(instruction, tiles)
    assert (found != compare.modelled(tiles)).any()


def test_which_sums_are_known():
    known = hopper_product.is_measured
    assert known("sm_90a", "f16", 16) and known("sm_90", "f16", 16)
    assert not any((known("sm_90a", "bf16", 16), known("sm_90a", "f16", 8), known("sm_100a", "f16", 16)))
