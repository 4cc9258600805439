"""Fixtures of several files."""

from __future__ import annotations

from pathlib import Path

import pytest
from gate_runs import Folder


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setenv("COLUMNS", "250")
    return Folder(tmp_path, capsys)
