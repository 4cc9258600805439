"""What `harness gate --save` puts into a baseline, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from filelock import Timeout
from gate_runs import BENCHED, CASE, HEADER, OTHER, Folder, changed, rates, record, run_of, without_time

from harness.cli import main
from harness.commands import gate
from harness.errors import Exit, UsageError
from harness.gate import against_baseline, baseline
from harness.records.run_folder import commit, read_bench
from harness.verdict import Performance


@pytest.mark.slow
@pytest.mark.parametrize(
    ("records", "header", "sentence"),
    [
        ([record(), without_time(OTHER, "MISMATCH")], HEADER, f"{OTHER} is MISMATCH"),
        ([without_time()], HEADER, "has no times"),
        ([record()], changed(roofline=rates(4200)), "did not come to its end"),
        (
            [record()],
            changed(method="another"),
            f"has times of 1 cases that this run has not, {BENCHED} for one, which",
        ),
        ([record()], changed(driver="1"), "which were measured otherwise: driver (13000 then, 1 now)"),
        (
            [record(), record(OTHER), record(BENCHED)],
            changed(machine=HEADER["machine"] | {"subject": "mine:make"}),
            "of the subject mine:make; a baseline holds times of our kernels",
        ),
    ],
    ids=["wrong", "untimed", "unfinished", "method", "driver", "subject"],
)
def test_what_cannot_be_trusted_is_not_saved(folder: Folder, records: list[dict], header: dict, sentence: str):
    folder.saves(record(), record(OTHER), record(BENCHED))
    before = folder.baseline.read_text()
    folder.holds(*records, header=header)
    code, text = folder.gate("--save")
    assert code == Exit.USAGE
    assert text.startswith("error: not saved: ") and sentence in text
    assert folder.baseline.read_text() == before


def test_a_baseline_that_is_not_one_is_one_sentence(folder: Folder):
    folder.holds(record())
    folder.baseline.parent.mkdir()
    folder.baseline.write_text("<<<<<<< HEAD\n")
    assert f"{folder.baseline} is not what a run writes" in folder.refusal()


def test_a_baseline_of_this_tree_with_records_that_no_run_writes_is_refused(folder: Folder):
    folder.saves(record(), record(BENCHED))
    header, records = read_bench(folder.baseline)
    records[1]["bytes_compared"] = 1
    folder.baseline.write_text("".join(json.dumps(line) + "\n" for line in (header, *records)))
    folder.holds(record(), record(BENCHED))
    assert f"{folder.baseline} is not what a run writes: {records[1]['case_id']}: " in folder.refusal()


def test_save_refuses_before_it_writes():
    with pytest.raises(UsageError, match="has no times"):
        baseline.save(run_of(), Path("/nonexistent/bench.jsonl"), {}, [])


def later(**changes) -> dict:
    return changed(date="2026-02-02T00:00:00Z", **changes)


def test_a_part_that_is_measured_anew_is_merged_and_the_rest_stays_as_it_was(folder: Folder):
    folder.saves(record(us=100.0), record(BENCHED, us=50.0))
    folder.saves(record(us=80.0), header=later(roofline=rates(4200, 4210)))
    header, records = read_bench(folder.baseline)
    found = {each["case_id"]: (each["times"]["date"], round(each["times"]["median_us"], -1)) for each in records}
    assert found == {BENCHED: (HEADER["date"], 50.0), CASE: ("2026-02-02T00:00:00Z", 80.0)}
    assert [part["date"] for part in header["parts"]] == [HEADER["date"], "2026-02-02T00:00:00Z"]
    assert "1024x2048" in folder.baseline.with_suffix(".md").read_text()
    # A run that replaces all times of an earlier one leaves none of its header.
    folder.saves(record(us=80.0), record(BENCHED, us=50.0), header=changed(date="2026-03-03T00:00:00Z"))
    assert [part["date"] for part in read_bench(folder.baseline)[0]["parts"]] == ["2026-03-03T00:00:00Z"]


def test_a_part_keeps_its_date_however_often_others_are_saved_and_a_case_without_a_time_keeps_its_own(folder: Folder):
    folder.saves(record(BENCHED, us=50.0))
    untimed = record(BENCHED) | {"times": {}}
    for month in ("02", "03"):
        header = changed(date=f"2026-{month}-02T00:00:00Z")
        folder.holds(record(us=80.0), untimed, header=header)
        code, text = folder.gate("--save")
        assert code == Exit.CLEAN, text
    header, records = read_bench(folder.baseline)
    dates = {each["case_id"]: each["times"]["date"] for each in records}
    assert dates == {BENCHED: HEADER["date"], CASE: "2026-03-02T00:00:00Z"}


def test_a_record_of_a_run_that_its_baseline_does_not_have_is_refused(folder: Folder):
    """By the header of another run it would pass, whatever the machine did in its own."""
    folder.saves(record(BENCHED), record())
    lines = folder.baseline.read_text().splitlines()
    lines[1] = lines[1].replace(f'"date": "{HEADER["date"]}"', '"date": "2025-12-31T00:00:00Z"')
    folder.baseline.write_text("\n".join(lines) + "\n")
    for options in ((), ("--save",)):
        folder.holds(record(seed=1), *([] if options else [record(BENCHED, seed=1)]), header=later())
        code, text = folder.gate(*options)
        assert code == Exit.USAGE and "2025-12-31T00:00:00Z, and no run in its header is; take the file as" in text


def test_each_part_is_compared_by_its_own_roofline(folder: Folder):
    folder.saves(
        record(BENCHED, roofline_gbps=3900.0, roofline_percent=53.85), header=changed(roofline=rates(3900, 3900))
    )
    folder.saves(record(), header=later())
    header, records = read_bench(folder.baseline)
    run = run_of(record(seed=1), record(BENCHED, seed=1), header=changed(date="2026-03-03T00:00:00Z"))
    verdicts = {one.case_id: one.verdict for one in against_baseline.judge(run, header, records)}
    assert verdicts == {BENCHED: Performance.INVALID, CASE: Performance.SAME}


def test_a_record_whose_roofline_no_part_measured_is_refused(folder: Folder):
    folder.saves(record())
    lines = folder.baseline.read_text().replace('"gbps": 4200.0, "date"', '"gbps": 4100.0, "date"')
    folder.baseline.write_text(lines)
    assert "roofline_gbps is 4200.0, and the header has measured 4100.0" in folder.refusal()


def test_a_case_that_no_suite_times_any_more_is_dropped_and_not_missed(folder: Folder):
    folder.saves(record(), record(OTHER))
    folder.holds(record(seed=1))
    assert folder.gate() == (Exit.CLEAN, "1 SAME: exit 0 (clean)\n")
    folder.gate("--save")
    assert [each["case_id"] for each in read_bench(folder.baseline)[1]] == [CASE]


@pytest.mark.parametrize("header", [changed(commit="unknown"), changed(commit="f" * 40, edited=True)])
def test_times_from_a_machine_with_another_checkout_get_the_commit_of_the_same_sources(folder: Folder, header: dict):
    folder.saves(record(), header=header)
    assert read_bench(folder.baseline)[1][0]["times"]["commit"] == commit()


def test_what_waits_for_a_baseline_is_said_and_is_no_error(folder: Folder, monkeypatch, capsys):
    folder.saves(record(), record(BENCHED))
    monkeypatch.setattr(baseline, "FOLDER", folder.baseline.parents[1])
    missing, gone = baseline.waiting()
    assert "cases wait for a time, backward/" in missing and "`harness bench` and `harness gate --save`" in missing
    assert f"1 cases are timed no longer, {CASE} for one" in gone


def test_two_runs_of_one_second_are_told_apart_or_not_saved(folder: Folder):
    """By commit and date alone the floors of the one would be those of the other, and its roofline nobody's."""
    folder.saves(record(BENCHED))
    before = folder.baseline.read_text()
    for other in ({"roofline": rates(4200, 4210)}, {"floors_us": {"events": 2.9}}, {"command": "another"}):
        folder.holds(record(), header=changed(**other))
        code, text = folder.gate("--save")
        assert code == Exit.USAGE and f"began in the same second, {HEADER['date']}" in text
        assert f"{BENCHED} for one" in text and "`harness merge` if they are its shards" in text
        assert folder.baseline.read_text() == before


def test_a_run_is_one_part_whatever_its_own_header_says_of_parts(tmp_path: Path):
    part = {key: HEADER[key] for key in ("commit", "edited", "sources", "date", "command", "roofline")}
    path = tmp_path / "bench.jsonl"
    baseline.save(run_of(record(), header=changed() | {"parts": [part, part | {"date": "2025"}]}), path, {}, [])
    assert [each["date"] for each in read_bench(path)[0]["parts"]] == [HEADER["date"]]


def test_a_run_that_goes_on_is_saved_again(folder: Folder):
    """The longer run holds all records of the shorter one, so the baseline keeps one part with one header."""
    folder.saves(record(BENCHED), header=changed())
    folder.saves(record(BENCHED), record(), header=changed(roofline=rates(4200, 4200, 4210, 4210)))
    header, records = read_bench(folder.baseline)
    assert (len(header["parts"]), len(header["parts"][0]["roofline"]), len(records)) == (1, 4, 2)


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path):
    path = tmp_path / "bench.jsonl"
    baseline.save(run_of(record(BENCHED)), path, {}, [])
    before = path.read_text()
    run = run_of(record(roofline_gbps=4100.0, roofline_percent=51.22), header=later())
    with pytest.raises(UsageError, match=r"could not be read again: .*/bench.jsonl is .*roofline_gbps is 4100.0, and"):
        baseline.save(run, path, *read_bench(path))
    assert path.read_text() == before and not list(tmp_path.glob(".*"))


def test_an_older_run_does_not_replace_newer_times_but_may_add_some(folder: Folder):
    folder.saves(record(BENCHED, us=80.0), header=later(floors_us={"events": 2.9}))
    before = folder.baseline.read_text()
    folder.holds(record(BENCHED, us=100.0), record(), header=changed())
    code, text = folder.gate("--save")
    assert code == Exit.USAGE and folder.baseline.read_text() == before
    assert (
        f"has newer times of 1 cases of this run, {BENCHED} for one, of 2026-02-02T00:00:00Z, and this run is of"
        in text
    )
    assert f"{HEADER['date']}; save a newer run, or delete that file first" in text
    folder.saves(record(), header=changed())
    header, records = read_bench(folder.baseline)
    assert (header["date"], header["floors_us"]) == ("2026-02-02T00:00:00Z", {"events": 2.9})
    assert [part["date"] for part in header["parts"]] == [HEADER["date"], "2026-02-02T00:00:00Z"]
    assert [part["floors_us"] for part in header["parts"]] == [{"events": 1.5}, {"events": 2.9}]
    assert {each["case_id"]: each["times"]["date"] for each in records} == {
        BENCHED: "2026-02-02T00:00:00Z", CASE: HEADER["date"],
    }  # fmt: skip


@pytest.mark.parametrize("name", ["times.md", "times", "times.json"])
def test_a_baseline_is_no_file_that_its_table_would_replace(folder: Folder, name: str):
    folder.baseline = folder.baseline.parent / name
    folder.holds(record())
    code, text = folder.gate("--save")
    assert code == Exit.USAGE and not folder.baseline.exists()
    assert f"{folder.baseline} must end in .jsonl, because its table is written beside it, as .md" in text


def test_a_baseline_is_held_while_it_is_read_and_saved(folder: Folder, monkeypatch: pytest.MonkeyPatch):
    """Two processes that read before either writes would keep the times of one alone."""
    held: list[str] = []

    def while_held(what: str, call):
        def wrapped(*given):
            with pytest.raises(Timeout):
                baseline.lock_of(folder.baseline).acquire(timeout=0)
            held.append(what)
            return call(*given)

        return wrapped

    monkeypatch.setattr(gate, "read_bench", while_held("read", gate.read_bench))
    monkeypatch.setattr(baseline, "save", while_held("saved", baseline.save))
    folder.saves(record())
    folder.saves(record(BENCHED))
    assert held == ["saved", "read", "saved"]
    baseline.lock_of(folder.baseline).acquire(timeout=0).lock.release()


@pytest.mark.parametrize(
    ("worthless", "why"),
    [
        (record(us=50.0, exposed=30), "because the GPU waited for the host in 30 of 30 rounds"),
        (record(us=50.0, count=3), "because it has 3 samples; "),
    ],
)
def test_a_time_that_could_judge_no_other_replaces_none(folder: Folder, capsys, worthless: dict, why: str):
    folder.saves(record(us=100.0), record(BENCHED))
    folder.holds(worthless, record(BENCHED))
    with pytest.raises(SystemExit) as ended:
        main(["gate", str(folder.run_dir), "--baseline", str(folder.baseline), "--save"])
    assert ended.value.code == Exit.CLEAN and f"left out: {CASE}, {why}" in capsys.readouterr().err
    header, records = read_bench(folder.baseline)
    found = {each["case_id"]: round(each["times"]["median_us"], -1) for each in records}
    assert found == {CASE: 100.0, BENCHED: 100.0}
    folder.holds(worthless)
    assert f"no time of this run could judge another; of {CASE}, " in folder.refusal("--save")


def test_times_are_not_saved_whose_events_or_date_no_run_could_be_compared_with(folder: Folder):
    folder.holds(record(), header=changed(floors_us={}))
    assert "has no time of two events with nothing between them" in folder.gate("--save")[1]
    folder.holds(record(OTHER), header=changed(floors_us={}))  # a graph's time holds no event
    assert folder.gate("--save")[0] == Exit.CLEAN
    folder.baseline.unlink()
    folder.holds(record(), header=changed(date="2999-01-01T00:00:00Z"))
    assert "is dated 2999-01-01T00:00:00Z, later than now" in folder.gate("--save")[1]
    for date in ("yesterday", "28.11.2026", "2026-11-28T03:53:31+03:00", ""):
        folder.holds(record(), header=changed(date=date))
        assert "is not what a run writes: line 1: date: " in folder.refusal("--save")


def test_times_of_a_users_recipe_stay_where_its_folder_is_not_in_use(folder: Folder):
    folder.saves(record(OTHER), header=changed(command="pytest mine.yaml --bench --recipe-dir mine"))
    mine = OTHER.replace("swizzle", "mine")
    folder.baseline.write_text(folder.baseline.read_text().replace(OTHER, mine).replace('"swizzle"', '"mine"'))
    folder.saves(record(), record(OTHER))
    folder.saves(record())
    header, records = read_bench(folder.baseline)
    assert {each["case_id"] for each in records} == {mine, CASE}  # OTHER is timed no longer
    folder.holds(record(seed=1))
    code, text = folder.gate("--once")
    assert code == Exit.NOISY and "1 SAME, 1 NOT_MEASURED" in text
