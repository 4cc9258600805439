"""Shared by the tests of suites, the plugin and the command line: a small suite on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ("pytester",)

SUITE = """\
# yaml-language-server: $schema=schema.json
recipe: toy
contract: NUMERICS 0

axes:
  dtype: [bf16, fp16]
  rht: [false, true]
  rounding: [rne, sr]
  sign_mask: [0xD7E8, 1]

exclude:
  - when: {rht: true, dtype: fp16}
    because: the rotation is defined on bf16 inputs only
  - when: {rht: false, sign_mask: 1}
    because: a sign mask means nothing without the rotation

launches:
  - kernel: toy_amax
    when: {rht: [false, true]}
    scratch: {state: 16}
  - kernel: toy_encode
    when: {rounding: rne}

sets:
  smoke:
    - cover: pairwise
      shapes: [[16, 16], [48, 80]]
      inputs: [normal, ties]
  full:
    - cover: product
      shapes: [[32, 32]]
      inputs: [normal]
      modes: [eager, graph]
  bench:
    - cover: each
      axes: {rht: true, others: default}
      shapes:
        - [16, 32]
      inputs: [normal]
"""


@pytest.fixture
def suite_text() -> str:
    """A correct suite of a recipe `toy`, with every feature of the format."""
    return SUITE


@pytest.fixture
def suite_path(tmp_path: Path, suite_text: str) -> Path:
    """That suite as `suites/toy.yaml` in a folder of its own."""
    path = tmp_path / "suites" / "toy.yaml"
    path.parent.mkdir()
    path.write_text(suite_text)
    return path


@pytest.fixture(autouse=True)
def not_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that a test starts is no worker of this run, and whoever supervises this one does not supervise it."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setenv("HARNESS_SUPERVISOR", "")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=3, metavar="N", help="moments at which test_kills.py kills a run (3)")
