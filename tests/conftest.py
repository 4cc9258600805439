"""Shared by the tests of suites, the plugin and the command line: a small suite on disk, and what runs it."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from subprocess import CompletedProcess
from typing import TYPE_CHECKING

import pytest
import torch  # noqa: F401  pytester forgets what a run in this process imports, and torch breaks if it is loaded twice
from suite_files import SUITE

import harness.plugin
from harness import cli
from harness.files import ROOT

if TYPE_CHECKING:
    from toy_runs import Runs

pytest_plugins = ("pytester",)


def pytest_configure(config: pytest.Config) -> None:
    """State the world of all tests, on whatever machine: no GPU, Ctrl-C, and a harness that any process finds.

    Tests with the mark `gpu` run where they alone are asked for, `-m gpu`. xdist's workers inherit this environment.
    """
    if config.option.markexpr.split()[:1] != ["gpu"]:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell has it for what runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    places = [Path(str(each.locate_file(""))) for each in metadata.distributions(name="nvfp4-harness")]
    if all(place.resolve() == ROOT for place in places):  # not installed, and found from this folder alone
        os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)])


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not _has_gpu():
        pytest.skip("needs a GPU from Hopper on, and -m gpu")


@cache
def _has_gpu() -> bool:
    from evidence.museum.driver import device

    return device() is not None


gc.disable()  # until all tests are collected: of objects that stay, the collector finds none to free


SWEPT = 7  # of so many parameters of a sweep the first is not slow; it divides the length of few axes, so that all meet


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what is not of a sweep's sample, and put the pages first.

    Each of xdist's workers begins with an equal part in order, so each gets a share of the pages. A page takes up to a
    minute; the last one would keep one core busy while all others are idle.
    """
    met: Counter[str] = Counter()
    for item in items:
        if item.get_closest_marker("sweep"):
            name = item.nodeid.partition("[")[0]
            if met[name] % SWEPT:
                item.add_marker("slow")
            met[name] += 1
    pages = [item for item in items if item.get_closest_marker("page")]
    others = [item for item in items if not item.get_closest_marker("page")]
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    part = len(others) // workers
    ends = [*(part * (n + 1) for n in range(workers - 1)), len(others)]
    items[:] = [each for n, end in enumerate(ends) for each in (*pages[n::workers], *others[part * n : end])]


def pytest_collection_finish() -> None:
    """Leave out of every collection of garbage the fourteen thousand tests and all that was imported."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000)


@pytest.fixture
def suite_text() -> str:
    """A correct suite of a recipe `toy`, with every feature of the format."""
    return SUITE


@pytest.fixture
def suite_path(tmp_path: Path, suite_text: str) -> Path:
    """The path of `suite_text`, written to `suites/toy.yaml` in a folder of its own."""
    path = tmp_path / "suites" / "toy.yaml"
    path.parent.mkdir()
    path.write_text(suite_text)
    return path


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, suite_text: str) -> Runs:
    """Runs of pytest in a folder with the toy suite, whose verification is a fake."""
    from toy_runs import toy_runs

    return toy_runs(pytester, monkeypatch, suite_text)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., CompletedProcess[str]]:
    """A command of the harness in this process, which is faster than another one."""

    def ran(*words: object) -> CompletedProcess[str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main([str(word) for word in words])
        printed = capsys.readouterr()
        return CompletedProcess(words, int(ended.value.code), printed.out, printed.err)

    return ran


@pytest.fixture(autouse=True)
def not_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that a test starts is not a worker of this run, and this run's supervisor does not supervise it.

    A run in this process has no supervisor: it prints and exits as a supervisor would.
    """
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setenv("HARNESS_SUPERVISOR", "")
    monkeypatch.delenv("HARNESS_TYPED", raising=False)
    # `make test` sets them, and shown commands would be those of a make.
    monkeypatch.delenv("MAKELEVEL", raising=False)
    monkeypatch.delenv("MAKEFLAGS", raising=False)
    monkeypatch.setattr(harness.plugin, "named_suites", lambda words, folder: ((), {}), raising=False)


@cache
def _named() -> dict[str, set[str]]:
    """The instructions for which results/opcodes.csv names a test of the emulator, by that test."""
    import pandas as pd

    return pd.read_csv(ROOT / "results" / "opcodes.csv").groupby("test")["opcode"].agg(set).to_dict()


@pytest.fixture(autouse=True)
def executes_what_the_table_says(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a test that results/opcodes.csv names execute what the table says of it.

    Not where `python -m evidence opcodes` runs the tests to write the table.
    """
    of_emulator = request.path.is_relative_to(ROOT / "tests" / "ptx_emulator")
    if not of_emulator or request.config.getoption("opcodes", None):
        yield
        return
    from evidence.opcodes.recorder import name_of, noted

    named = _named().get(name_of(request.node), set())
    executed = noted(monkeypatch.setattr) if named else None
    yield
    missing = sorted(named - executed.covered_by(request.node)) if named else []
    assert not missing, (
        f"results/opcodes.csv names this test for {missing}; `python -m evidence opcodes --out results` makes it anew"
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=3, metavar="N", help="moments at which test_kills.py kills a run (3)")
