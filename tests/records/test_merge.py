"""Merging shards: every case once, and two runs that disagree about one are never green."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from harness import cli
from harness.errors import Exit
from harness.records.journal import Journal
from harness.records.run_folder import read_run
from harness.verdict import Result, Verdict


def run_dir(folder: Path, sources: str = "same", **verdicts: str) -> Path:
    journal = Journal(folder, {"sources": sources}, resume=False)
    for name, verdict in verdicts.items():
        result = Result(f"swizzle/default/{name}/normal/eager", "swizzle", Verdict(verdict), input="normal")
        journal.append(dataclasses.asdict(result))
    journal.close()
    return folder


def merge(*runs: Path, into: Path) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(["merge", *map(str, runs), "--into", str(into)])
    return int(caught.value.code)


def test_shards_become_one_run(tmp_path: Path):
    one, other = run_dir(tmp_path / "a", x16x16="PASS"), run_dir(tmp_path / "b", x16x32="PASS", x16x16="PASS")
    assert merge(one, other, into=tmp_path / "all") == Exit.CLEAN
    assert [record["case_id"].split("/")[2] for record in read_run(tmp_path / "all").records] == ["x16x16", "x16x32"]
    assert (tmp_path / "all" / "verify.html").exists()


def test_a_failure_of_one_shard_is_a_failure_of_all(tmp_path: Path):
    one, other = run_dir(tmp_path / "a", x16x16="PASS"), run_dir(tmp_path / "b", x16x32="MISMATCH")
    assert merge(one, other, into=tmp_path / "all") == Exit.BYTES_DIFFER


def test_runs_that_disagree_are_a_failure_that_names_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    one, other = run_dir(tmp_path / "a", x16x16="PASS"), run_dir(tmp_path / "b", x16x16="EXCLUDED")
    assert merge(one, other, into=tmp_path / "all") == Exit.BYTES_DIFFER
    assert f"x16x16/normal/eager is PASS in {one} and EXCLUDED in {other}" in capsys.readouterr().out


def test_shards_that_compared_nothing_are_not_green(tmp_path: Path):
    one, other = run_dir(tmp_path / "a", x16x16="EXCLUDED"), run_dir(tmp_path / "b")
    assert merge(one, other, into=tmp_path / "all") == Exit.NO_DEVICE


def test_runs_of_different_sources_do_not_mix(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    one, other = run_dir(tmp_path / "a", x16x16="PASS"), run_dir(tmp_path / "b", sources="edited", x16x32="PASS")
    assert merge(one, other, into=tmp_path / "all") == Exit.USAGE
    assert "are of different sources" in capsys.readouterr().err


def test_a_folder_that_holds_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert merge(tmp_path, into=tmp_path / "all") == Exit.USAGE
    assert f"error: {tmp_path}/journal.jsonl cannot be read: No such file" in capsys.readouterr().err
