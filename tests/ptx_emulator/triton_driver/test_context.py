"""What a block of `triton_on` changes, and that all of it is back at its end."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import ptx_emulator
from ptx_emulator.errors import UsageError
from ptx_emulator.triton_driver import backend, context

triton = pytest.importorskip("triton", "3.6", reason="Triton 3.6 or newer is not installed; the extra [triton] has it")
torch = pytest.importorskip("torch")

import kernels as k  # noqa: E402
from triton.backends import backends  # noqa: E402
from triton.runtime import driver  # noqa: E402
from triton.runtime.autotuner import Autotuner  # noqa: E402


def state() -> tuple[object, ...]:
    functions = torch.overrides._get_current_function_mode_stack()
    cuda = [getattr(torch.cuda, name) for name in ("device", "synchronize", "get_device_capability")]
    return driver._active, backends["nvidia"], Autotuner.run, *cuda, len(functions), list(context._ENTERED)


def add() -> torch.Tensor:
    out = torch.empty(4)
    k.add[(1,)](torch.ones(4), torch.ones(4), out, 4, BLOCK=16)
    return out


def test_everything_is_back_at_the_end():
    before = state()
    with ptx_emulator.triton_on("sm_90a") as outer:
        within = state()
        assert not {*map(id, within[:6])} & {*map(id, before[:6])}
        add()
        with pytest.raises(ZeroDivisionError), ptx_emulator.triton_on("sm_100") as inner:
            add(), add()
            1 / 0  # noqa: B018
        assert state() == within
        add()
        with pytest.raises(UsageError), ptx_emulator.triton_on("sm_70"):
            pass
        assert state() == within
    assert state() == before
    assert (len(outer.launches), len(inner.launches)) == (2, 2)
    assert outer.launches[0].kernel == "add" and outer.launches[0].lane_instructions > 128


def test_a_fault_is_no_end_of_the_block():
    with ptx_emulator.triton_on() as run:
        with pytest.raises(ptx_emulator.Fault):
            k.store_out_of_bounds[(1,)](torch.ones(4), torch.zeros(4), 4, BLOCK=16)
        assert add().equal(torch.full((4,), 2.0))
        assert len(run.launches) == 1


def test_targets_differ():
    names = set()
    for target in ("sm_90a", "sm_100a"):
        with ptx_emulator.triton_on(target):
            assert driver.active.get_device_capability() == divmod(int(target[3:-1]), 10)
            compiled = k.add[(1,)](torch.ones(4), torch.ones(4), torch.empty(4), 4, BLOCK=16)
            assert f".target {target}\n" in compiled.asm["ptx"] and "cubin" not in compiled.asm
            names.add(compiled.hash)
    assert len(names) == 2
    with pytest.raises((UsageError, RuntimeError), match="that has ended|0 active drivers"):  # the latter is Triton's
        compiled[(1,)](torch.ones(4), torch.ones(4), torch.empty(4), 4)


def test_an_order_that_is_drawn():
    with ptx_emulator.triton_on(seed=3):
        assert add().equal(torch.full((4,), 2.0))


@pytest.mark.parametrize("options, sentence", [
    ({"target": "sm_70"}, "triton_on has no target 'sm_70'; it has sm_80"),
    ({"target": "hopper"}, "triton_on has no target 'hopper'"),
    ({"autotune": "best"}, "autotune is 'best'; it is 'first' or 'every'"),
])  # fmt: skip
def test_options_that_are_none(options: dict[str, str], sentence: str):
    with pytest.raises(UsageError, match=sentence), ptx_emulator.triton_on(**options):
        pass


@pytest.mark.parametrize("variable", ["TRITON_INTERPRET", "TRITON_STORE_BINARY_ONLY"])
def test_settings_that_leave_nothing_to_emulate(variable: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(variable, "1")
    with pytest.raises(UsageError, match=f"{variable} .*; unset it"), ptx_emulator.triton_on():
        pass


def test_ptxas_is_not_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    backend._ptx_version.cache_clear()
    monkeypatch.setattr("triton.backends.nvidia.compiler.get_ptxas", _no_ptxas)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    k.add.device_caches.clear()
    with ptx_emulator.triton_on("sm_100a"):
        assert add().equal(torch.full((4,), 2.0))
    backend._ptx_version.cache_clear()
    assert not list(tmp_path.rglob("*.cubin")) and list(tmp_path.rglob("*.ptx"))


def _no_ptxas(arch: int) -> None:
    raise RuntimeError("Cannot find ptxas")


def test_host_code_may_ask_torch_of_the_gpu():
    with ptx_emulator.triton_on("sm_100a"):
        with torch.cuda.device(torch.empty(0).device), torch.cuda.device_of(torch.empty(0)):
            torch.cuda.synchronize()
        found = torch.cuda.get_device_properties("cuda")
        assert (found.major, found.minor, found.multi_processor_count) == (10, 0, 4)
        assert torch.cuda.get_device_capability() == (10, 0) and not torch.cuda.is_available()


def in_a_thread(call) -> list[object]:
    found: list[object] = []

    def work() -> None:
        try:
            found.append(call())
        except UsageError as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found


def test_other_threads_launch_and_open_nothing():
    def block() -> None:
        with ptx_emulator.triton_on():
            pass

    with ptx_emulator.triton_on() as run:
        threads = [threading.Thread(target=add) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(run.launches) == 4
        (refused,) = in_a_thread(block)
        assert "another thread is in a block of triton_on" in str(refused)
    assert in_a_thread(block) == [None]


@pytest.mark.parametrize("autotune, launches", [("first", 2), ("every", 3)])
def test_the_first_configuration_that_works_is_chosen(autotune: str, launches: int):
    tuned = {("mine",): "of a GPU"}
    k.scale.cache = dict(tuned)
    for _ in range(2):  # what a block chose, the next has forgotten
        with ptx_emulator.triton_on("sm_90a", autotune=autotune) as run:
            for _ in range(2):
                k.scale[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](torch.ones(100), torch.empty(100), 100, 2.0)
            assert k.scale.best_config.kwargs == {"BLOCK": 64}
            assert len(run.launches) == launches + 1
    assert k.scale.cache == tuned and "do_bench" not in vars(k.scale)


def test_threads_may_tune_at_once():
    with ptx_emulator.triton_on("sm_90a") as run:
        outs = [torch.empty(100) for _ in range(3)]
        threads = [
            threading.Thread(target=lambda out=out: k.scale[(2,)](torch.ones(100), out, 100, 2.0)) for out in outs
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(out.equal(torch.full((100,), 2.0)) for out in outs) and len(run.launches) == 4
    assert "do_bench" not in vars(k.scale)


def test_a_configuration_that_fails_to_fit_is_none():
    fits = triton.Config({"BM": 16, "BN": 16, "BK": 16}, num_stages=1)
    large = triton.Config({"BM": 128, "BN": 128, "BK": 128}, num_stages=5)
    tuned = triton.autotune([large, fits], key=["K"])(k.matmul)
    a, c = torch.ones(32, 16).half(), torch.empty(32, 32)
    with ptx_emulator.triton_on("sm_100a"):
        tuned[lambda meta: (triton.cdiv(32, meta["BM"]), triton.cdiv(32, meta["BN"]))](
            a, a.T.contiguous(), c, 32, 32, 16
        )
    assert tuned.best_config is fits and c.equal(torch.full((32, 32), 16.0))


def test_there_are_no_times():
    with ptx_emulator.triton_on(), pytest.raises(UsageError, match="an emulator has no times"):
        triton.testing.do_bench(add)
