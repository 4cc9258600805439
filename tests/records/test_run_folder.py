"""The folders of runs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.errors import StorageError
from harness.records.run_folder import new_folder


def test_runs_of_one_second_have_folders_of_their_own(tmp_path: Path):
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: new_folder(runs=tmp_path), range(24)))
    assert len(set(folders)) == 24 and all(folder.is_dir() for folder in folders)
    assert sorted(folders, key=lambda folder: folder.name) == sorted(folders)


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        new_folder(runs=tmp_path / "file")
