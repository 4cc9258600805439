"""A bench on several GPUs: a shard each, with the GPU that is its own, and one run of all of them in the end."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from own_recipe import in_use, written
from runs_on_disk import IDS, timed_shard

from harness.errors import DeviceUnavailable, Exit, UsageError
from harness.files import SUITES
from harness.records.run_folder import read_run
from harness.runner import several_gpus


class Ended:
    returncode = 0


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several_gpus, "gpu_count", lambda: 2)


@pytest.fixture
def bench(two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs with a Python whose `-m harness bench` notes its words and GPU, and puts a timed shard into its folder."""
    made = {f"{n}/2": timed_shard(tmp_path / "made", n, ids) for n, ids in ((1, IDS[:2]), (2, IDS[2:]))}
    made["1/1"] = made["1/2"]
    python, calls = tmp_path / "python", tmp_path / "calls"
    python.write_text(
        f"""#!{sys.executable}
import json, os, pathlib, shutil, sys
words = sys.argv[3:]
if words[0] != "bench":
    os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])
option = lambda name: words[words.index(name) + 1]
with open({str(calls)!r}, "a") as file:
    file.write(json.dumps([os.environ["CUDA_VISIBLE_DEVICES"], *words]) + "\\n")
if "--broken" in words and option("--shard") == "2/2":
    sys.exit(2)
shutil.copytree({ {k: str(v) for k, v in made.items()}!r}[option("--shard")], option("--run-dir"), dirs_exist_ok=True)
print("timed")
"""
    )
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))

    def run(*words: str) -> tuple[Exit, list[list[str]]]:
        code = several_gpus.bench([*words, "--run-dir", str(tmp_path / "run")], [str(SUITES)], 2, tmp_path)
        return code, sorted(map(json.loads, calls.read_text().splitlines()))

    return run


def test_shards_are_timed_on_their_own_gpus_and_become_one_run(bench, tmp_path, capfd):
    code, calls = bench("per_tensor", "--set", "bench")
    assert code is Exit.CLEAN
    assert [(call[0], call[1:5], call[call.index("--shard") + 1]) for call in calls] == [
        (gpu, ["bench", "per_tensor", "--set", "bench"], shard) for gpu, shard in (("0", "1/2"), ("1", "2/2"))
    ]
    assert {record["case_id"] for record in read_run(tmp_path / "run").records} == set(IDS)
    assert "gpu 1: timed\n" in capfd.readouterr().out


def test_no_gpu_gets_a_shard_without_a_case(bench, monkeypatch):
    """A case and its mode are in one shard."""
    monkeypatch.setattr(several_gpus.subprocess, "run", lambda words, check: Ended())
    calls = bench("--case", IDS[0], "--case", IDS[0].replace("eager", "graph"))[1]
    assert [call[call.index("--shard") + 1] for call in calls] == ["1/1"]


@pytest.mark.slow
def test_the_gpus_are_those_that_this_process_sees(bench, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 1")
    assert [call[0] for call in bench()[1]] == ["1", "3"]


def test_what_a_shard_ended_with_is_the_end_and_nothing_is_merged(bench, tmp_path, capfd):
    code, _ = bench("--broken")
    assert code is Exit.SLOWER and not (tmp_path / "run" / "journal.jsonl").exists()
    assert "--resume goes on with what is unfinished" in capfd.readouterr().out


def test_shards_that_were_begun_are_gone_on_with(bench, tmp_path):
    (tmp_path / "run" / "gpu2").mkdir(parents=True)
    (tmp_path / "run" / "gpu2" / "journal.jsonl").write_text("")
    assert ["--resume" in call for call in bench("--resume")[1]] == [False, True]


@pytest.mark.parametrize("words", [(), ("--resume",)])
def test_a_folder_that_holds_a_whole_run_is_refused_before_anything_is_timed(bench, tmp_path, words):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "journal.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match="already holds a run; that of several GPUs needs a new folder"):
        bench(*words)
    assert not (tmp_path / "run" / "gpu1").exists()


@pytest.mark.parametrize("word", ["--shard=1/2", "--ahead", "-n"])
def test_what_a_shard_has_of_its_own_is_refused(two, tmp_path, word):
    with pytest.raises(UsageError, match=f"{word} does not go with --gpus"):
        several_gpus.bench(["per_tensor", word], [str(SUITES)], 2, tmp_path)


@pytest.mark.parametrize("word", ["-k16x16", "-xk16x16", "--deselect=suites/casts.yaml", "--shape=16x16"])
def test_what_leaves_cases_out_is_refused_before_anything_is_timed(bench, tmp_path, word):
    with pytest.raises(UsageError, match="-k, --flag, --shape and --deselect do not go with --gpus"):
        bench("swizzle", word)
    assert not (tmp_path / "run").exists()


def test_shards_of_recipes_of_ones_own_are_merged_with_their_folder(bench, tmp_path, monkeypatch):
    merges = []
    monkeypatch.setattr(several_gpus.subprocess, "run", lambda words, check: merges.append(words) or Ended())
    with in_use(written(tmp_path / "own")):
        bench("--recipe-dir", str(tmp_path / "own"))
    assert merges[0][-2:] == ["--recipe-dir", str(tmp_path / "own")]


@pytest.mark.parametrize(("asked", "error"), [("0", UsageError), ("some", UsageError), ("3", UsageError)])
def test_a_number_that_there_is_not_is_refused(two, asked, error):
    with pytest.raises(error, match=f"--gpus {asked}"):
        several_gpus.count_of(asked)


def test_without_a_gpu_a_number_is_no_mistake_of_the_command_line(monkeypatch):
    monkeypatch.setattr(several_gpus, "gpu_count", lambda: 0)
    with pytest.raises(DeviceUnavailable):
        several_gpus.count_of("2")
    assert several_gpus.count_of("all") == 1
