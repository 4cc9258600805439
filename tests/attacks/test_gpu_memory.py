"""A case without a verdict on a GPU that has room for it: the run's own processes fill it, and strangers are blamed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from ways import still_green_if

from harness.device import cuda
from harness.device.cuda import CudaDevice
from harness.suite.suite import find_case
from harness.verdict import Result, Verdict
from harness.verify import verify as module
from harness.verify.verify import attempt

try:
    from harness.device import gpu_account
except ImportError:  # before processes shared a GPU's memory
    gpu_account = None

GIB = 1 << 30
CASE = find_case("swizzle/default/65552x32784/normal/eager")  # needs 32 GiB
SMALL = find_case("swizzle/default/1024x1024/normal/eager")


class OutOfMemoryError(RuntimeError):
    """Named as the error that torch and CuPy raise when a GPU has no memory left."""


class Gpu(CudaDevice):
    """80 GiB. free: in GiB, at one look after another, and the last one from then on"""

    last: Gpu

    def __init__(self, *free: float) -> None:
        Gpu.last = self
        self.index, self.memory, self.targets, self.processes = 0, 80 * GIB, ("sm_90a",), 14
        self.properties = {"totalGlobalMem": self.memory, "uuid": bytes(16)}
        self.looks = list(free)

    def free(self) -> int:
        return int(GIB * (self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]))

    def release(self) -> None:
        pass


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "make_inputs", lambda case: {})
    monkeypatch.setattr(module, "host_room", lambda case: nullcontext())
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 0)
    pool = SimpleNamespace(total_bytes=lambda: 0)
    runtime = SimpleNamespace(memGetInfo=lambda: (Gpu.last.free(), 80 * GIB))
    cupy = SimpleNamespace(get_default_memory_pool=lambda: pool, cuda=SimpleNamespace(runtime=runtime))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    if gpu_account is None:
        monkeypatch.setattr(cuda, "gpu_lock", lambda uuid: nullcontext())
        return
    monkeypatch.setattr(gpu_account, "PATIENCE", 0.1)
    account = gpu_account.GpuAccount(bytes(16), 80 * GIB, tmp_path)
    monkeypatch.setattr(cuda, "account_of", lambda *_: account)


def out_of_memory(times: int) -> Callable[[Result], Result]:
    tries = iter(range(times))

    def run(empty: Result) -> Result:
        if next(tries, None) is not None:
            raise OutOfMemoryError("out of memory allocating 1,024 bytes")
        return empty

    return run


def judged(case, gpu: Gpu, run: Callable[[Result], Result] = lambda empty: empty) -> Result:
    result = attempt(case, gpu, run)
    still_green_if(result.verdict is not Verdict.PASS, f"not judged: {result.reason}")
    return result


def test_memory_that_another_worker_is_about_to_free():
    """A worker's smaller case holds the memory, or its pool does, for a moment more."""
    judged(CASE, Gpu(20, 20, 70))


@pytest.mark.parametrize("case", [CASE, SMALL], ids=["large", "small"])
def test_memory_that_runs_out_once(case):
    """Others took what the case was promised: it is run again while no large case runs."""
    judged(case, Gpu(70), out_of_memory(1))


def test_memory_that_runs_out_twice_is_an_error_of_ours():
    found = attempt(CASE, Gpu(70), out_of_memory(2))
    assert found.verdict is Verdict.NO_DEVICE
    still_green_if("other large case" not in found.reason, found.reason)
    assert "also while no other large case ran on the GPU" in found.reason


@pytest.mark.parametrize("times", [0, 2])
def test_its_own_contexts_are_called_others(times: int, monkeypatch: pytest.MonkeyPatch):
    """Processes of the same run keep what is missing, and the user looks for strangers in vain.

    The case is tried with what is left, which is enough or not.
    """
    if gpu_account:
        monkeypatch.setattr(gpu_account.GpuAccount, "_others", lambda self: [gpu_account.Entry(2, 3 * GIB)] * 13)
    if not times:
        judged(CASE, Gpu(30))
        return
    found = attempt(CASE, Gpu(30), out_of_memory(times))
    assert found.verdict is Verdict.NO_DEVICE
    still_green_if("else uses" in found.reason, found.reason)
    assert "14 processes of the harness on this GPU keep up to 53 GiB" in found.reason


def test_strangers_are_named_with_what_they_hold():
    """Strangers hold what is missing, and the user is not told how much."""
    found = attempt(CASE, Gpu(30), lambda empty: empty)
    assert found.verdict is Verdict.NO_DEVICE
    still_green_if("are held by" not in found.reason, found.reason)
    assert "about 49 GiB are held by programs that are not the harness's; end what else uses the GPU" in found.reason


def test_a_case_larger_than_the_card_is_excluded_and_does_not_wait():
    """No way to green: the card itself is too small."""
    gpu = Gpu(1)
    gpu.memory = 24 * GIB
    found = attempt(CASE, gpu, lambda empty: empty)
    assert found.verdict is Verdict.EXCLUDED
    assert "needs about 32 GiB of GPU memory, there are 24" in found.reason
