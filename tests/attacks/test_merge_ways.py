"""Ways to green by merging too little, or what does not belong together."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs_on_disk import GPU, IDS, about, mismatch, passed, shard, sources, timed_shard, write_run
from ways import Command, must_be_red

from harness.suite.suite import suite_of

EXTRA = "swizzle/default/64x64/normal/eager"


@pytest.fixture
def merged(tmp_path: Path, command: Command):
    return lambda *runs: command("merge", *runs, "--into", tmp_path / "all")


def test_a_shard_is_left_out(tmp_path: Path, merged):
    """Merge the shard that passed, and leave out the one that did not."""
    must_be_red(merged(shard(tmp_path, 1, IDS[:3])), "shards are missing")


def test_a_shard_is_there_twice(tmp_path: Path, merged):
    """Merge the shard that passed twice, so that the number of runs is right."""
    again = write_run(tmp_path / "again", about(IDS[:3], IDS, "1/2"), *map(passed, IDS[:3]))
    must_be_red(merged(shard(tmp_path, 1, IDS[:3]), again), "is there 2 times")


def test_a_shard_of_another_split(tmp_path: Path, merged):
    """Merge shard 1/2 with shard 2/3, between which cases fall through."""
    must_be_red(merged(shard(tmp_path, 1, IDS[:2]), shard(tmp_path, 2, IDS[2:3], count=3)), "of 2 and 3 shards")


def test_a_shard_of_a_smaller_set(tmp_path: Path, merged):
    """Merge a shard of everything with one of a smaller selection."""
    other = write_run(tmp_path / "b", about(IDS[3:], IDS[3:], "2/2"), passed(IDS[3]))
    must_be_red(merged(shard(tmp_path, 1, IDS[:3]), other), "selection")


def test_a_shard_of_another_device(tmp_path: Path, merged):
    """Merge a shard of the GPU with one of the emulator, which excludes what it cannot run."""
    one = shard(tmp_path, 1, IDS[:3])
    records = [passed(IDS[3], [20.0] * 12) | {"times": {}}]
    must_be_red(merged(one, write_run(tmp_path / "b", about(IDS[3:], IDS, "2/2", device=GPU), *records)), "device")


def test_a_shard_with_other_packages(tmp_path: Path, merged):
    """Merge a shard that was run with another NumPy, whose oracle says otherwise."""
    other = shard(tmp_path, 2, IDS[3:], sealed={"package numpy": "1.0"})
    must_be_red(merged(shard(tmp_path, 1, IDS[:3]), other), "package numpy")


def test_a_case_in_two_shards(tmp_path: Path, merged):
    """Have a case in two shards, so that another one is in none and the number is right."""
    must_be_red(merged(shard(tmp_path, 1, IDS[:3]), shard(tmp_path, 2, IDS[2:3])), f"{IDS[2]} is in")


def test_shards_that_lost_a_case(tmp_path: Path, merged):
    """Take a failing case out of a shard and out of its header."""
    must_be_red(merged(shard(tmp_path, 1, IDS[:2]), shard(tmp_path, 2, IDS[3:])), "not all cases of their selection")


def test_a_run_that_was_narrowed(tmp_path: Path, merged):
    """Merge a run that was narrowed by -k: what it left out never ran."""
    run = write_run(tmp_path / "a", about(IDS, IDS), *map(passed, IDS[:2]))
    must_be_red(merged(run), "holds 2 of its 4 cases")


def test_a_set_that_lost_a_case(tmp_path: Path, merged):
    """Call a run the smoke set although a case of that set is missing in it."""
    ids = [case.id for case in suite_of("swizzle").cases("smoke")][1:]
    must_be_red(merged(write_run(tmp_path / "a", about(ids, ids, set="smoke"), *map(passed, ids))), "smoke")


def test_a_run_without_a_number(tmp_path: Path, merged):
    """Take from the journal what says how many cases there should be."""
    first = {key: value for key, value in about(IDS[:1], IDS).items() if key not in ("selected", "cases", "shard")}
    must_be_red(merged(write_run(tmp_path / "a", first, passed(IDS[0]))), "says nothing of its")


def test_runs_of_another_tree(tmp_path: Path, merged):
    """Merge green runs of an earlier tree after the kernels changed."""
    must_be_red(merged(shard(tmp_path, 1, IDS, count=1, sources="0" * 64)), "of other sources than this tree")


def test_times_of_two_machines(tmp_path: Path, merged):
    """Merge times of a faster GPU with those of ours."""
    one, other = timed_shard(tmp_path, 1, IDS[:2]), timed_shard(tmp_path, 2, IDS[2:], machine={"gpu": "NVIDIA B200"})
    must_be_red(merged(one, other), "machine")


def test_a_failing_shard_stays_red(tmp_path: Path, merged):
    """Merge a shard that failed with one that passed: it was never green."""
    other = write_run(tmp_path / "b", about(IDS[3:], IDS, "2/2"), mismatch(IDS[3]))
    must_be_red(merged(shard(tmp_path, 1, IDS[:3]), other), "4 cases of 2 runs", code=1)
    assert sources()
