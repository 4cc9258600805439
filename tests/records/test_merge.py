"""Merging shards: every shard once, of one run, and nothing that no run could have written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from own_recipe import written
from runs_on_disk import IDS, about, excluded, mismatch, passed, shard, timed_shard, write_run
from timed_runs import HEADER

from harness import cli
from harness.errors import Exit
from harness.records.run_folder import read_bench, read_run
from harness.suite.suite import suite_of


def merge(*runs: Path, into: Path) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(["merge", *map(str, runs), "--into", str(into)])
    return int(caught.value.code)


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    def refused(*runs: Path) -> str:
        assert merge(*runs, into=tmp_path / "all") == Exit.USAGE
        assert not (tmp_path / "all").exists()
        said = capsys.readouterr().err
        assert said.startswith("error: ") and said.count("\n") == 1
        return said

    return refused


def test_shards_become_one_run(tmp_path: Path):
    one, other = shard(tmp_path, 1, IDS[:3]), shard(tmp_path, 2, IDS[3:])
    assert merge(other, one, into=tmp_path / "all") == Exit.CLEAN
    found = read_run(tmp_path / "all")
    assert sorted(record["case_id"] for record in found.records) == sorted(IDS)
    assert (found.about["shard"], found.about["selected"]) == ("1/1", 4)
    assert (tmp_path / "all" / "verify.html").exists() and not (tmp_path / "all" / "bench.jsonl").exists()
    assert merge(tmp_path / "all", into=tmp_path / "again") == Exit.CLEAN


def test_a_folder_that_holds_a_run_is_refused_by_the_option_that_merge_has(tmp_path: Path, capsys):
    one = shard(tmp_path, 1, IDS, count=1)
    before = (write_run(tmp_path / "all", about(IDS, IDS), *map(passed, IDS)) / "journal.jsonl").read_bytes()
    assert merge(one, into=tmp_path / "all") == Exit.USAGE
    said = f"error: {tmp_path}/all already holds a run; merging makes a new one, so name another --into\n"
    assert capsys.readouterr().err == said
    assert (tmp_path / "all" / "journal.jsonl").read_bytes() == before


@pytest.mark.slow
def test_shards_of_a_recipe_of_the_users_become_one_run(tmp_path: Path):
    own = ("--recipe-dir", str(written(tmp_path / "own")))
    runs = [tmp_path / name for name in "ab"]
    for number, run in enumerate(runs, 1):
        words = ("verify", *own, "--device", "emulator", "-n", "0", "--shard", f"{number}/2", "--run-dir", str(run))
        subprocess.run([sys.executable, "-m", "harness", *words], check=True, capture_output=True)
    words = ("merge", *own, *map(str, runs), "--into", str(tmp_path / "all"))
    done = subprocess.run([sys.executable, "-m", "harness", *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_shards_of_a_set_become_the_set(tmp_path: Path):
    ids = [case.id for case in suite_of("swizzle").cases("smoke")]
    one, other = (shard(tmp_path, number, ids[number - 1 :: 2], ids, set="smoke") for number in (1, 2))
    assert merge(one, other, into=tmp_path / "all") == Exit.CLEAN


def test_times_are_merged_with_what_they_were_measured_with(tmp_path: Path):
    rates = [{"point": "start", "gbps": 4200.0, "date": ""}, {"point": "end", "gbps": 4150.0, "date": ""}]
    floors = {"events": 1.2, "eager": 2.5, "other": 1.0}
    one, other = timed_shard(tmp_path, 1, IDS[:2]), timed_shard(tmp_path, 2, IDS[2:], roofline=rates, floors_us=floors)
    assert merge(one, other, into=tmp_path / "all") == Exit.CLEAN
    header, records = read_bench(tmp_path / "all" / "bench.jsonl")
    assert len(records) == 4 and read_run(tmp_path / "all").header == header
    assert [rate["gbps"] for rate in header["roofline"]] == [4200.0, 4200.0, 4200.0, 4150.0]
    assert header["floors_us"] == {"eager": 2.1, "events": 1.2}


def test_a_failure_of_one_shard_is_a_failure_of_all(tmp_path: Path):
    one = shard(tmp_path, 1, IDS[:3])
    other = write_run(tmp_path / "b", about(IDS[3:], IDS, "2/2"), mismatch(IDS[3]))
    assert merge(one, other, into=tmp_path / "all") == Exit.BYTES_DIFFER


@pytest.mark.parametrize(
    ("verdicts", "code", "line"),
    [
        (
            ["SETUP_ERROR"],
            Exit.USAGE,
            "3 compared, 0 excluded, 1 not judged; exit 64 (in 1 case no kernel was judged: ",
        ),
        (["NOT_EMULATED"], Exit.NO_DEVICE, "3 compared, 0 excluded, 1 not judged; exit 4 (in 1 case no kernel was"),
        (
            ["NOT_EMULATED", "MISMATCH"],
            Exit.BYTES_DIFFER,
            "3 compared, 0 excluded, 1 not judged, 1 wrong; exit 1 (bytes",
        ),
        (["COMPILE_ERROR"], Exit.BYTES_DIFFER, "1 failed before they could be compared; exit 1 (a kernel does not com"),
    ],
)
def test_what_no_shard_judged_no_run_has_judged(tmp_path: Path, capsys, verdicts: list[str], code: Exit, line: str):
    red = [mismatch(case_id) | {"verdict": word} for case_id, word in zip(reversed(IDS), verdicts, strict=False)]
    one = shard(tmp_path, 1, IDS[: -len(red)])
    other = write_run(tmp_path / "b", about(IDS[-len(red) :], IDS, "2/2"), *reversed(red))
    assert merge(one, other, into=tmp_path / "all") == code
    assert line in capsys.readouterr().out.splitlines()[-1]


def test_shards_that_compared_nothing_are_not_green(tmp_path: Path):
    graphs = [case_id.replace("eager", "graph") for case_id in IDS[:2]]
    one, other = (
        write_run(tmp_path / str(i), about(ids, graphs, f"{i}/2"), *map(excluded, ids))
        for i, ids in ((1, graphs[:1]), (2, graphs[1:]))
    )
    assert merge(one, other, into=tmp_path / "all") == Exit.NO_DEVICE


SET = [case.id for case in suite_of("swizzle").cases("smoke")][1:]
# A name for the mistake, the runs in a folder, and the sentence about them.
REFUSED = {
    "killed": (lambda at: [write_run(at / "a", about(IDS, IDS), *map(passed, IDS[:3]))],
               "holds 3 of its 4 cases; finish it with --resume"),
    "missing": (lambda at: [shard(at, 1, IDS[:3])], "1 of 2 shards are missing, 2/2 for one"),
    "many missing": (lambda at: [shard(at, 3, IDS[:3], count=100000)], "99999 of 100000 shards are missing"),
    "a copy": (lambda at: [shard(at, 1, IDS[:3]), write_run(at / "b", about(IDS[:3], IDS, "1/2"),
                                                            *map(passed, IDS[:3]))], "shard 1/2 is there 2 times"),
    "twice": (lambda at: [shard(at, 1, IDS[:3])] * 2, "shard 1/2 is there 2 times"),
    "two numbers": (lambda at: [shard(at, 1, IDS[:3]), shard(at, 2, IDS[3:], count=3)], "are of 2 and 3 shards"),
    "a case twice": (lambda at: [shard(at, 1, IDS[:3]), shard(at, 2, IDS[2:])], f"{IDS[2]} is in"),
    "a case left out": (lambda at: [shard(at, 1, IDS[:2]), shard(at, 2, IDS[3:])],
                        "are not all cases of their selection: -k, --deselect or a node id left some out"),
    "a part of a set": (lambda at: [write_run(at / "a", about(SET, SET, set="smoke"), *map(passed, SET))],
                        "is not set 'smoke' of swizzle: 1 of its"),
    "another tree": (lambda at: [shard(at, 1, IDS, count=1, sources="0" * 64)], "of other sources than this tree"),
    "no shard": (lambda at: [write_run(at / "a", {"sources": "x", "cases": "y"}, *map(passed, IDS))],
                 "says nothing of its device and selection and set and timed"),
    "another commit": (lambda at: timed(at, {}, {"commit": "fffffff"}), "are of different commit"),
    "another method": (lambda at: timed(at, {}, {"method": "another"}), "are of different method"),
    "another GPU": (lambda at: timed(at, {}, {"machine": HEADER["machine"] | {"gpu": "B200"}}),
                    "are no shards of one run, because these differ: device"),
    "no end": (lambda at: timed(at, {}, {"roofline": HEADER["roofline"][:1]}), "did not come to its end"),
}  # fmt: skip


def timed(at: Path, one: dict, other: dict) -> list[Path]:
    """Two timed shards, each with what differs in its header."""
    return [timed_shard(at, 1, IDS[:2], **one), timed_shard(at, 2, IDS[2:], **other)]


def floors(at: Path, one: float, other: float | None) -> list[Path]:
    return timed(at, *({"floors_us": {"events": us} if us else {}} for us in (one, other)))


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_is_no_whole_run_is_refused(tmp_path: Path, refused, wrong: str):
    runs, said = REFUSED[wrong]
    assert said in refused(*runs(tmp_path))


def test_times_of_hosts_whose_events_take_otherwise_are_not_merged(tmp_path: Path, refused):
    """With one number for both, the gate would allow too much for the eager times of one shard."""
    one, other = floors(tmp_path, 2.976, 1.3)
    said = refused(one, other)
    assert f"events with nothing between them took 2.98 us in {one}, 1.30 us in {other}, and every eager time" in said
    assert "time all shards on one host, where they differ by 0.1 us at most" in said


@pytest.mark.parametrize(("other", "merged"), [(1.4, {"events": 1.3}), (None, {})], ids=["nearly", "one lacks it"])
def test_a_floor_is_that_of_all_shards(tmp_path: Path, other: float | None, merged: dict):
    """Without one, no eager time of the merged run is compared."""
    assert merge(*floors(tmp_path, 1.3, other), into=tmp_path / "all") == Exit.CLEAN
    assert read_run(tmp_path / "all").header["floors_us"] == merged


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"sources": "edited"}, "sources"),
        ({"sealed": {"package numpy": "2.5"}}, r"package numpy (2.4 then, 2.5 now)"),
        ({"device": {"device": "cuda", "gpu": "a"}}, "device"),
        ({"set": "smoke"}, "set"),
        ({"timed": True}, "timed"),
        ({"whole": [*IDS, "swizzle/default/64x64/normal/eager"]}, "selection"),
    ],
)
def test_shards_are_of_one_run(tmp_path: Path, refused, changes: dict, differs: str):
    one = shard(tmp_path, 1, IDS[:3])
    whole = changes.pop("whole", IDS)
    first = about(IDS[3:], whole, "2/2", **changes)
    records = [{**mismatch(IDS[3]), "device": ""}]
    said = refused(one, write_run(tmp_path / "b", first, *records))
    assert f"are no shards of one run, because these differ: {differs}" in said


def test_tensors_of_one_shard_alone_are_no_difference(tmp_path: Path):
    sealed = {"package numpy": "2.4", "tensor suites/data/x.npy": "1"}
    one, other = shard(tmp_path, 1, IDS[:3], sealed=sealed), shard(tmp_path, 2, IDS[3:])
    assert merge(one, other, into=tmp_path / "all") == Exit.CLEAN
    assert read_run(tmp_path / "all").about["sealed"] == sealed


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bytes_compared": 6}, "bytes are compared in it, not 6"),
        ({"oracles": ["torch"]}, "its oracles are numpy and torch, not torch"),
        ({"instantiations": ["sm_90a swizzle", "sm_100a swizzle"]}, "it runs sm_90a swizzle"),
        ({"case_id": "swizzle/direction=sideways/16x16/normal/eager"}, "sideways"),
        (
            {"case_id": "swizzle/direction=columnwise/16x16/normal/eager", "recipe": "swizzle"},
            "it runs sm_90a swizzle<",
        ),
    ],
)
def test_what_no_run_of_this_tree_writes_is_not_merged(tmp_path: Path, refused, changes: dict, said: str):
    record = passed(IDS[0]) | changes
    ids = [record["case_id"]]
    assert said in refused(write_run(tmp_path / "a", about(ids, ids), record))


def test_a_folder_that_holds_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert merge(tmp_path, into=tmp_path / "all") == Exit.USAGE
    assert f"error: {tmp_path}/journal.jsonl cannot be read: No such file" in capsys.readouterr().err
