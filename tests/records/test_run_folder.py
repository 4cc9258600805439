"""The folders of runs, and what is read back from one."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from runs_on_disk import GPU, IDS, timed_shard
from timed_runs import HEADER

from harness.errors import StorageError, UsageError
from harness.records.run_folder import new_folder, read_run


def test_runs_of_one_second_have_folders_of_their_own(tmp_path: Path):
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: new_folder(runs=tmp_path), range(24)))
    assert len(set(folders)) == 24 and all(folder.is_dir() for folder in folders)
    assert sorted(folders, key=lambda folder: folder.name) == sorted(folders)


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        new_folder(runs=tmp_path / "file")


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        ({"gpu": "NVIDIA H100"}, "machine.gpu is 'NVIDIA H100', and in the journal's device it is 'NVIDIA H200'"),
        ({"driver": "12080"}, "machine.driver is '12080', and in the journal's device it is '13000'"),
        ({"cupy": "14"}, "machine.cupy is '14', and in the journal's device it is missing"),
    ],
)
def test_times_of_another_machine_than_the_journals_are_refused(tmp_path: Path, machine: dict, said: str):
    run = timed_shard(tmp_path, 1, IDS)
    assert read_run(run).header["machine"] == HEADER["machine"]
    (run / "bench_header.json").write_text(json.dumps(HEADER | {"machine": HEADER["machine"] | machine}))
    with pytest.raises(UsageError, match=re.escape(said)):
        read_run(run)


def test_times_of_a_subject_whose_header_has_lost_its_name_are_refused(tmp_path: Path):
    run = timed_shard(tmp_path, 1, IDS)
    first, *lines = (run / "journal.jsonl").read_text().splitlines()
    lines = [
        json.dumps(json.loads(line) | {"subject": "mine (1)", "instantiations": [], "digests": {}}) for line in lines
    ]
    first = json.dumps(json.loads(first) | {"device": {**GPU, "subject": "mine (1)"}})
    (run / "journal.jsonl").write_text("".join(line + "\n" for line in (first, *lines)))
    with pytest.raises(UsageError, match=r"machine.subject is missing, and in the journal's device it is 'mine \(1\)'"):
        read_run(run)
