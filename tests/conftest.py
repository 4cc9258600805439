"""Shared by the tests of suites, the plugin and the command line: a small suite on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch  # noqa: F401  pytester forgets what a run in this process imports, and torch breaks if it is loaded twice
from toy_suite import SUITE

import harness.plugin

pytest_plugins = ("pytester",)


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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=3, metavar="N", help="moments at which test_kills.py kills a run (3)")
