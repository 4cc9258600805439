"""An order that a process is given holds for its launches, and is forgotten with its block."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_source import buffer, module
from faults import words

from ptx_emulator.launches import launch
from ptx_emulator.process_order import given_order
from ptx_emulator.schedule import ASCENDING, DESCENDING, Schedule, order_of_run

# The last block that comes wins, and a quotient has other bits in each order.
SOURCE = """
extern "C" __global__ void k(unsigned* out, int three) {
  float third;
  asm volatile("div.full.f32 %0, %1, %2;" : "=f"(third) : "f"(1.0f), "f"(float(three)));
  *(volatile unsigned*)out = blockIdx.x;
  out[1 + blockIdx.x] = __float_as_uint(third);
}
"""
NEAREST = int(np.float32(1 / 3).view(np.uint32))
DRAWN = Schedule(seed=1)


def written(schedule: Schedule = ASCENDING) -> tuple[int, int]:
    """The number of the last block of 8, and the bits of a third."""
    out = words(9)
    launch(module(SOURCE), "k", (8, 1, 1), (1, 1, 1), [buffer("out", out), 3], schedule=schedule)
    return int(out[0]), int(out[1])


@pytest.mark.parametrize("given", [DESCENDING, DRAWN, Schedule(seed=2, nearest=True)])
@pytest.mark.parametrize("asked", [ASCENDING, DESCENDING, Schedule(nearest=True)])
def test_a_given_order_holds(given: Schedule, asked: Schedule):
    with given_order(given) as launches:
        found = written(asked)
    assert found == written(given)
    assert (found[1] == NEAREST) is given.nearest
    assert len(launches.approximated) == 1
    assert [name.split()[:2] for name in launches.kernels] == [["sm_90a", "k"]]
    assert written(asked)[0] == {ASCENDING: 7, DESCENDING: 0}.get(asked, 7)


def test_a_seed_that_a_launch_asks_for_draws_a_drawn_order():
    asked = Schedule(seed=5)
    with given_order(Schedule(seed=1, nearest=True)):
        drawn = written(asked)
    assert drawn == written(Schedule(seed=5, nearest=True))
    with given_order(DESCENDING):
        assert written(asked) == written(DESCENDING)


def test_it_ends_with_its_block_also_by_an_error():
    with pytest.raises(ValueError), given_order(DESCENDING):
        raise ValueError
    with given_order(ASCENDING) as launches:
        pass
    assert launches.kernels == () and written()[0] == 7


def test_the_orders_of_runs():
    assert [order_of_run(repeat, 9) for repeat in range(4)] == [ASCENDING, DESCENDING, Schedule(seed=9), ASCENDING]
    assert [order_of_run(repeat, 9).approximation for repeat in range(3)] == [0, 1, 2]
    nearest = [order_of_run(repeat, 9, True) for repeat in range(3)]
    assert [(order.name, order.approximation) for order in nearest] == [
        ("ascending", 0), ("descending", 0), ("drawn", 0)
    ]  # fmt: skip
