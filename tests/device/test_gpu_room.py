"""What a case asks of the account: nothing if it is small, and its arrays' bytes otherwise."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from harness.contract.problem import Dense
from harness.device.cuda import CudaDevice
from harness.device.emulator import EmulatorDevice
from harness.device.gpu_account import GpuAccount
from harness.errors import LaunchError
from harness.suite.suite import find_case
from harness.verify.room import BLOCK, gpu_needs

GIB = 1 << 30
SMALL = find_case("swizzle/default/1024x1024/normal/eager")
LARGE = replace(SMALL, problem=Dense(32768, 32768))


class Gpu(CudaDevice):
    """80 GiB. asked: what the account was asked for; kept: bytes in pools"""

    def __init__(self, folder: Path) -> None:
        self.index, self.memory, self.targets = 0, 80 * GIB, ("sm_90a",)
        self.properties = {"uuid": bytes(16)}
        self.kept, self.released = 0, 0
        self.asked: list[tuple[int, int, bool]] = []
        self._account = GpuAccount(bytes(16), self.memory, folder)
        self._account.hold = self._hold

    @property
    def account(self) -> GpuAccount:
        return self._account

    @contextmanager
    def _hold(self, name: str, wants: int, least: int, memory: Any, alone: bool) -> Iterator[None]:
        self.asked.append((wants, least, alone))
        yield

    def release(self) -> None:
        self.released += 1


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    found = Gpu(tmp_path)
    pool = SimpleNamespace(total_bytes=lambda: found.kept)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(get_default_memory_pool=lambda: pool))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 0)
    return found


def test_a_small_case_takes_no_lock_after_the_first(gpu: Gpu, monkeypatch: pytest.MonkeyPatch):
    with gpu.reserve(SMALL):
        pass
    monkeypatch.setattr(gpu.account, "_lock", None)  # an error if it is taken
    for _ in range(3):
        with gpu.reserve(SMALL):
            pass
    assert gpu.asked == [] and gpu.released == 0


def test_a_large_case_asks_for_what_it_needs(gpu: Gpu):
    with gpu.reserve(LARGE):
        pass
    with gpu.reserve(LARGE, needs=20 * GIB):
        pass
    with gpu.reserve(SMALL, alone=True):
        pass
    assert gpu.asked == [(16 * GIB, 16 * GIB, False), (20 * GIB, 16 * GIB, False), (1 << 24, 1 << 24, True)]


@pytest.mark.parametrize("processes", [1, 2, 14, 64])
def test_processes_may_use_a_small_part_without_asking(gpu: Gpu, processes: int):
    gpu.processes = processes
    together = gpu.share * processes
    assert together == 10 * GIB if processes == 1 else 2.4 * GIB < together <= 2.5 * GIB


def test_what_a_small_case_leaves_in_pools_is_freed_beyond_the_share(gpu: Gpu):
    gpu.processes = 14
    for kept, released in ((gpu.share, 0), (gpu.share + 1, 1)):
        gpu.kept = kept
        with gpu.reserve(SMALL):
            pass
        assert gpu.released == released


def test_the_needs_of_a_case_are_its_arrays():
    """Three of each input; of each output one with guards, three copies and two of what is expected."""
    inputs = {"scales": np.zeros(1000, np.uint8)}
    fields = {"one": SimpleNamespace(nbytes=3000, allocated=3000)}
    device = SimpleNamespace(name="cuda", subject_label="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harness.verify.room.fields_of", lambda case: fields)
        patch.setattr("harness.verify.room.scratch_and_workspace", lambda steps: ({"count": 4}, {"notes": 100}))
        found = gpu_needs(SMALL, device, inputs)
        graph = gpu_needs(replace(SMALL, mode="graph"), device, inputs)
        assert gpu_needs(replace(SMALL, problem=Dense(1024, 1008)), device, inputs) == 0
    guarded, own = 2 * 4096 + 3072, BLOCK + (2 * 4096 + BLOCK)
    assert found == 3 * 1024 + guarded + (3 + 2) * 3072 + own
    assert graph - found == 2 * 1024 + guarded + 3 * 3072 + own


def test_a_context_that_a_kernel_broke_hides_no_verdict(gpu: Gpu):
    def broken() -> None:
        raise RuntimeError("an illegal memory access was encountered")

    gpu.release, gpu.kept = broken, gpu.share + 1
    with pytest.raises(LaunchError, match="wrong"), gpu.reserve(SMALL):
        raise LaunchError("wrong")
    memory = SimpleNamespace(clear=lambda: None, release=broken, free=lambda: 80 * GIB)
    with pytest.raises(LaunchError, match="wrong"), GpuAccount.hold(gpu.account, "it", GIB, GIB, memory):
        raise LaunchError("wrong")
    assert gpu.account.holds == 0


def test_of_a_subject_the_oracle_is_added_and_of_the_emulator_nothing():
    assert gpu_needs(SMALL, EmulatorDevice(), {}) == 0
    ours, theirs = (
        gpu_needs(SMALL, SimpleNamespace(name="cuda", subject_label=label), {}) for label in ("", "torchao")
    )
    assert theirs >= ours + 15 * SMALL.elements
