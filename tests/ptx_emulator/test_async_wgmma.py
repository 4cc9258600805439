"""A warpgroup multiplies what bulk copies bring: neither may come too early."""

from __future__ import annotations

from dataclasses import replace

import pytest
from async_source import PRELUDE
from exercises import ALL, product
from test_exercises import emulated

from ptx_emulator.errors import Fault

(EXERCISE,) = (each for each in ALL if each.name == "product")


def caught(**parts: str) -> str:
    with pytest.raises(Fault) as found:
        emulated(replace(EXERCISE, source=PRELUDE + product(**parts)))
    assert found.value.kind == "race"
    return found.value.sentence


def test_multiplied_before_the_copy_is_complete() -> None:
    assert "reads shared bytes that the copy of thread" in caught(full="")


def test_one_thread_of_the_warpgroup_waits() -> None:
    assert "may still write" in caught(full="if (t == 0) wait(full[slot], step / 2 & 1);")


def test_a_slot_is_handed_back_before_the_product_is_waited_for() -> None:
    sentence = caught(early="arrive(empty[slot]);", late="")
    assert "copies to shared bytes that the copy of thread" in sentence
    assert "no wgmma.wait_group of its warpgroup" in sentence
