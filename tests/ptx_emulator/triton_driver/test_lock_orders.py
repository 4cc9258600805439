"""A right kernel that waits for a lock ends in every order that a judge gives."""

from __future__ import annotations

import kernels as k
import pytest

import harness
from ptx_emulator.process_order import given_order
from ptx_emulator.schedule import ASCENDING, DESCENDING, Schedule


@pytest.mark.parametrize("order", [ASCENDING, DESCENDING, *(Schedule(seed=seed) for seed in range(4))])
def test_a_lock(order: Schedule):
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton", "3.6", reason="Triton 3.6 or newer is not installed; the extra [triton] has it")
    lock, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    with given_order(order), harness.triton_on("sm_100a"):
        k.add_under_a_lock[(5,)](lock, out)
    assert (out.item(), lock.item()) == (5, 0)
