"""A folder that happens to be called cupy is no CuPy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from processes import python_path

from harness.api import arrays
from harness.device.capability import gpu_count, has_cupy, require_cupy
from harness.device.select import select
from harness.errors import DeviceUnavailable, Exit
from harness.files import ROOT


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `git clone` of CuPy's repository leaves: a folder without `__init__.py`."""
    (tmp_path / "cupy").mkdir()
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])  # where nothing else has that name
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cupy"


def test_a_folder_with_its_name_is_not_cupy(clone: Path):
    assert not has_cupy() and not arrays.has_cupy()
    with pytest.raises(ImportError, match=f"No module named 'cupy'; the folder {clone} is not CuPy"):
        require_cupy()
    assert gpu_count() == 0
    assert select().name == "emulator"
    with pytest.raises(DeviceUnavailable, match="device 'cuda' needs CuPy and torch: No module named 'cupy'"):
        select("cuda")


def test_no_test_sees_a_gpu_unless_it_says_so():
    """Here `auto` is the emulator, in this process and in those below, on a machine with a GPU, too."""
    assert gpu_count() == 0 and select().name == "emulator"
    done = subprocess.run(
        [sys.executable, "-c", "from harness.device.select import select\nprint(select().name)"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "emulator\n", done.stderr


def test_a_module_is_cupy_however_it_is_made(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())
    assert has_cupy()


@pytest.mark.parametrize("count", [0, 1, 8])
def test_gpus_are_those_that_cuda_counts_and_none_where_it_cannot(count: int, monkeypatch: pytest.MonkeyPatch):
    def counted() -> int:
        if not count:
            raise ValueError("no driver")
        return count

    runtime = SimpleNamespace(getDeviceCount=counted, CUDARuntimeError=ValueError)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    assert gpu_count() == count


@pytest.mark.parametrize(
    "words", [pytest.param("verify swizzle -k 16x16 --run-dir out", marks=pytest.mark.slow), "doctor", "exhaustive"]
)
def test_commands_run_beside_a_clone(clone: Path, words: str):
    house = "evidence" if words == "exhaustive" else "harness"
    command = [sys.executable, "-m", house, *words.split()]
    environment = {**os.environ, "PYTHONPATH": python_path(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert "AttributeError" not in done.stdout + done.stderr
    if words == "exhaustive":
        assert done.returncode == Exit.NO_DEVICE or has_cupy(), done.stderr
    else:
        assert done.returncode == Exit.CLEAN, done.stdout + done.stderr
