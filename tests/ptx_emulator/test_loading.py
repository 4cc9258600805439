"""One process compiles the interpreter, and until it has, the others run NumPy steps, which write the same bytes."""

from __future__ import annotations

import fcntl
from pathlib import Path

import numpy as np
import pytest
from cuda_source import buffer
from ptx_snippets import kernel

from ptx_emulator.compiled import jit, loading
from ptx_emulator.launches import Module, launch
from ptx_emulator.machine.fast_path import FastPath, NumpyPath

ADD = " ld.param.u64 %rd0, [p0]; ld.global.u32 %r0, [%rd0]; add.u32 %r0, %r0, 1; st.global.u32 [%rd0], %r0;"


@pytest.fixture
def cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a process that compiles in no time because it had compiled before."""
    compiled = loading.compiled()
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    monkeypatch.setattr(loading._Process, "found", None)
    monkeypatch.setattr(loading._Process, "missed", False)

    def load() -> loading.Compiled:
        if not jit.MachineCode.may_compile:
            raise jit.NotStored("run")
        return compiled

    monkeypatch.setattr(loading, "_load", load)
    return tmp_path / "emulator"


def paths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that launches take from now on."""
    taken: list[str] = []
    for path in (FastPath, NumpyPath):

        def begun(self, batch, code, begin=path.__init__, name=path.__name__):
            taken.append(name)
            begin(self, batch, code)

        monkeypatch.setattr(path, "__init__", begun)
    return taken


def added(**options: bool) -> int:
    x = np.zeros(1, np.uint32)
    launch(Module(kernel(ADD, 1)), "k", (1, 1, 1), (1, 1, 1), [buffer("x", x)], **options)
    return int(x[0])


def test_a_launch_does_without_while_another_process_compiles(cold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = paths(monkeypatch)
    cold.mkdir(mode=0o700)
    with (cold / "compiling.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert added() == 1 and not loading.is_compiled()
    assert added() == 1 and loading.is_compiled()
    assert added() == 1 and added(compiled=False) == 1
    assert taken == ["NumpyPath", "FastPath", "FastPath", "NumpyPath"]


def test_the_lock_is_open_again_after_an_error(cold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> loading.Compiled:
        raise MemoryError

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(loading, "_load", load)
        loading.compiled()
    assert loading.is_compiled()


def test_a_cache_that_cannot_be_written_keeps_nobody_waiting(cold: Path) -> None:
    cold.write_text("no folder")
    assert loading.is_compiled() and added() == 1


def test_what_the_cache_lacks_is_compiled_only_if_it_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))

    def doubled(x):
        return x + x

    with jit.only_stored(), pytest.raises(jit.NotStored, match="doubled"):
        jit.entry("int64(int64)")(doubled)
    assert jit.entry("int64(int64)")(doubled)(3) == 6
    with jit.only_stored():
        assert jit.entry("int64(int64)")(doubled)(4) == 8


def test_a_numba_without_the_method_compiles_nevertheless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    monkeypatch.delattr(jit.CPUCodeLibrary, "_optimize_final_module")
    with jit._optimized_once("run"):
        assert not hasattr(jit.CPUCodeLibrary, "_optimize_final_module")
