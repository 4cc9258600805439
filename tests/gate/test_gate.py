"""`harness gate` of a run on the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from gate_runs import BENCHED, CASE, HEADER, OTHER, Folder, changed, record, without_time
from own_recipe import NAME, in_use, written
from runs_on_disk import passed

from harness.cli import main
from harness.errors import Exit
from harness.gate import against_baseline, baseline
from harness.records.run_folder import newest_run, read_bench
from harness.suite.suite import suite_of


def test_a_run_saved_as_baseline_is_what_the_next_is_compared_with(folder: Folder):
    folder.saves(record(), record(OTHER))
    header, records = read_bench(folder.baseline)
    (part,) = header.pop("parts")
    assert (header, len(records)) == (HEADER, 2)
    assert part == {key: HEADER[key] for key in part} and {"commit", "date", "roofline"} < part.keys()
    assert {each["times"]["commit"] for each in records} == {HEADER["commit"]}
    assert "pytest suites --bench" in folder.baseline.with_suffix(".md").read_text()
    code, text = folder.gate()
    assert code == Exit.NOISY and "2 INVALID" in text and "these are the baseline's own times; time the" in text
    folder.holds(record(seed=1), record(OTHER, seed=1))
    assert folder.gate() == (Exit.CLEAN, "2 SAME: exit 0 (clean)\n")


def test_the_command_tells_what_is_not_the_same_and_why(folder: Folder):
    folder.saves(record(), record(OTHER))
    folder.holds(record(us=120.0, seed=1), record(OTHER, seed=1))
    code, text = folder.gate("--once")
    assert code == Exit.SLOWER
    assert "SLOWER" in text and CASE in text and "time +20." in text
    assert OTHER not in text
    assert text.endswith("1 SAME, 1 SLOWER: exit 2 (slower)\n")


def test_the_command_tells_wrong_bytes(folder: Folder):
    folder.holds(record(), without_time(OTHER, "MISMATCH", "[red]bytes differ"))
    code, text = folder.gate()
    assert code == Exit.BYTES_DIFFER
    assert "[red]bytes differ" in text and "1 wrong" in text


def test_without_a_baseline_file_the_command_says_how_to_make_one(folder: Folder):
    folder.holds(record())
    code, text = folder.gate()
    assert code == Exit.NO_BASELINE
    assert f"there is no baseline at {folder.baseline}" in text


def test_the_first_run_on_another_gpu_is_told_whose_baselines_there_are(folder: Folder, monkeypatch):
    folder.saves(record())
    monkeypatch.setattr(baseline, "FOLDER", folder.baseline.parents[1])
    there = baseline.path_of({"machine": {"gpu": "NVIDIA H100"}})
    header = changed(gpu="NVIDIA H100")
    folder.holds(record(seed=1), header=header)
    code, text = folder.gate("--once")
    assert code == Exit.NOISY
    assert f"{folder.baseline} is of NVIDIA H200, and this run of NVIDIA H100: no time of one is held against" in text
    assert f"the gate takes {there}; where there is none yet, `harness gate --save` makes this run the first\n" in text
    assert baseline.none_of_this_gpu(there, {}, header) == (
        f"there is no baseline at {there} (NVIDIA H100), and those of {folder.baseline.parent.name} judge no other "
        "GPU; `harness gate --save` makes this run one"
    )


def test_an_empty_run_fails_the_command(folder: Folder):
    folder.holds()
    assert folder.gate() == (
        Exit.NOISY,
        f"there is no baseline at {folder.baseline}; `harness gate --save` makes this run one\n"
        "nothing was measured: exit 3 (noisy)\n",
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sources": "0" * 64}, "is of other sources than this tree"),
        ({"header": changed(sources="0" * 16)}, "is of other sources than this tree"),
        ({"header": changed(commit="f" * 40)}, "is of commit ffffffffffff, and this tree is at"),
        ({"selected": None}, "does not say how many cases were selected"),
    ],
)
def test_a_stale_run_is_not_judged_and_not_saved(folder: Folder, changes: dict, sentence: str, monkeypatch):
    folder.saves(record())
    monkeypatch.setattr(against_baseline, "commit", lambda: "e" * 40)  # an unpacked archive has none
    folder.holds(record(), **changes)
    for options in ((), ("--save",)):
        assert sentence in folder.refusal(*options)


def test_a_part_of_a_run_is_saved_and_not_judged(folder: Folder):
    folder.saves(record(), record(BENCHED))
    folder.holds(record(), selected=2, header=changed(date="2026-01-02T00:00:00Z"))
    assert "holds 1 of its 2 cases" in folder.refusal()
    assert folder.gate("--save")[0] == Exit.CLEAN
    dates = {each["case_id"]: each["times"]["date"] for each in read_bench(folder.baseline)[1]}
    assert dates[CASE] == "2026-01-02T00:00:00Z" != dates[BENCHED]


def test_what_no_run_of_this_tree_writes_is_not_judged(folder: Folder):
    folder.holds(record() | {"bytes_compared": 3})
    code, text = folder.gate()
    assert code == Exit.USAGE and "bytes are compared in it, not 3" in text


def test_a_recipe_that_neither_the_run_nor_its_baseline_has_is_refused(folder: Folder):
    folder.saves(record())
    right = CASE.partition("/")[0]
    assert f"'{right[:-1]}' is neither a recipe nor the folder" in folder.refusal(right[:-1])
    assert "or of its baseline is of 'casts'" in folder.refusal("casts")
    folder.holds(record(seed=1))
    assert folder.gate(right)[0] == Exit.CLEAN


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["swizzle"], "swizzle"),
        (["--once"], "--once"),
        (["--effect", "0.2"], "--effect"),
        (["--once", "swizzle", "casts"], "swizzle casts, --once"),
    ],
)
def test_what_goes_with_judging_does_not_go_with_saving(folder: Folder, options: list[str], named: str):
    folder.holds(record())
    code, text = folder.gate("--save", *options)
    assert code == Exit.USAGE and not folder.baseline.exists()
    assert text == f"error: --save puts all times of a run into the baseline and judges none; leave out {named}\n"


def test_times_of_a_recipe_of_the_users_have_a_baseline_of_its_own(folder: Folder, tmp_path: Path):
    own, samples = written(tmp_path / "own"), [20.0 + i / 10 for i in range(30)]
    words = "--recipe-dir", str(own)

    def holds(samples: list[float], *ids: str) -> None:
        folder.holds(*(passed(case_id, samples) for case_id in ids))

    with in_use(own):
        first, second = (f"{NAME}/default/{shape}/normal/eager" for shape in ("16x16", "48x80"))
        holds(samples, first, second)
        assert folder.gate("--save", *words)[0] == Exit.CLEAN
        holds([us if i % 10 else 20.0 for i, us in enumerate(samples)], first, second)
        assert folder.gate(*words) == (Exit.CLEAN, "2 SAME: exit 0 (clean)\n")
        for options, sentence in (((), "name a file of yours with --baseline"), (("--base", "HEAD"), "two revisions")):
            with pytest.raises(SystemExit) as ended:
                main(["gate", str(folder.run_dir), *words, *options])
            assert ended.value.code == Exit.USAGE and sentence in folder.capsys.readouterr().err
    assert "there is no recipe 'toy'" in folder.refusal()


def test_a_case_that_a_recipe_of_the_users_times_stays_in_its_baseline(folder: Folder, tmp_path: Path):
    with in_use(written(tmp_path / "own")):
        timed = suite_of(NAME).cases("bench")[0].id
        once = f"{NAME}/default/16x16/normal/eager"
        samples = [20.0 + i / 10 for i in range(30)]
        for case_id, oracles in ((timed, ["torch"]), (once, ["numpy", "torch"])):
            folder.holds(passed(case_id, samples, oracles=oracles))
            assert folder.gate("--save", "--recipe-dir", str(tmp_path / "own"))[0] == Exit.CLEAN
        assert {each["case_id"] for each in read_bench(folder.baseline)[1]} == {timed, once}


@pytest.mark.parametrize("effect", ["inf", "nan", "1e9", "0.51", "0", "-1"])
def test_an_effect_that_no_slowdown_reaches_is_refused(folder: Folder, effect: str):
    folder.saves(record())
    for options in ((), ("--base", "HEAD")):
        with pytest.raises(SystemExit) as ended:
            main(["gate", str(folder.run_dir), "--effect", effect, *options])
        assert ended.value.code == Exit.USAGE
        assert "is no change that could count" in folder.capsys.readouterr().err


def test_the_newest_run_is_so_by_its_header(tmp_path: Path):
    for name, date, seconds in (("old", "2026-01-01T00:00:00Z", 2000), ("new", "2026-01-02T00:00:00Z", 1000)):
        path = tmp_path / name / "bench_header.json"
        path.parent.mkdir()
        path.write_text(json.dumps(changed(date=date)))
        os.utime(path, (seconds, seconds))
    assert newest_run(tmp_path, timed=True).name == "new"
