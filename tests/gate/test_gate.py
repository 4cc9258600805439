"""The gate: every verdict and every exit code, from synthetic times of two runs."""

from __future__ import annotations

import json
import os
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from runs_on_disk import passed
from timed_runs import evidence, times_of

from harness.cli import main
from harness.errors import Exit, UsageError
from harness.files import ROOT
from harness.gate import against_baseline, baseline
from harness.records.run_folder import RunFiles, commit, latest_bench, read_bench
from harness.records.seal import sources_digest
from harness.verdict import Performance, Result, Verdict

HEADER = {
    "command": "pytest suites --bench",
    "commit": commit(),
    "edited": False,
    "sources": sources_digest()[:16],
    "date": "2026-01-01T00:00:00Z",
    "machine": {
        "gpu": "NVIDIA H200", "multiprocessors": "132", "l2_bytes": "1", "power_limit_w": "700",
        "driver": "13000", "runtime": "13000", "nvrtc": "13.0",
    },
    "compile_flags": "-ftz=false",
    "method": "a rule",
    "clock": "events",
    "roofline": [{"point": "start", "gbps": 4200.0, "date": ""}, {"point": "end", "gbps": 4200.0, "date": ""}],
    "floors_us": {"events": 1.5},
}  # fmt: skip
CASE = "swizzle/default/16x16/normal/eager"
OTHER = "swizzle/default/16x16/normal/graph"
BENCHED = "swizzle/default/1024x2048/normal/graph"  # the suites time it, and not the two above


def record(case_id: str = CASE, us: float = 100.0, *, noise: float = 0.002, count: int = 30, seed: int = 0, **changes):
    rng = np.random.default_rng([seed, *case_id.replace("swizzle", "toy").encode()])
    samples = (us * (1 + noise * rng.gamma(1.5, size=count))).tolist()
    times = times_of(samples, **{"code": f"code {seed}"} | changes)
    if case_id in (CASE, OTHER, BENCHED):
        return passed(case_id, samples, **({"oracles": ["torch"]} if case_id == BENCHED else {})) | {"times": times}
    result = Result(case_id, case_id.split("/")[0], Verdict.PASS, times=times, **evidence(case_id))
    return json.loads(json.dumps(result.to_record()))


def without_time(case_id: str = CASE, verdict: str = "PASS", reason: str = "") -> dict:
    if verdict == "PASS":
        return passed(case_id, [1.0]) | {"times": {}}
    result = Result(case_id, case_id.split("/")[0], Verdict(verdict), reason)
    return json.loads(json.dumps(result.to_record()))


def run_of(*records: dict, header: dict = HEADER) -> RunFiles:
    return RunFiles(Path("run"), list(records), header)


def only(run: RunFiles, *baseline: dict, header: dict = HEADER, **options) -> against_baseline.Judgement:
    (judgement,) = against_baseline.judge(run, header, baseline, **options)
    return judgement


def changed(**changes) -> dict:
    header = deepcopy(HEADER)
    for key, value in changes.items():
        (header["machine"] if key in header["machine"] else header)[key] = value
    return header


def rates(*gbps: float) -> list[dict]:
    return [{"point": "start" if i % 2 == 0 else "end", "gbps": rate, "date": ""} for i, rate in enumerate(gbps)]


@pytest.mark.parametrize(
    ("us", "verdict", "code"),
    [
        (100.0, Performance.SAME, Exit.CLEAN),
        (101.0, Performance.SAME, Exit.CLEAN),
        (110.0, Performance.SLOWER, Exit.SLOWER),
        (90.0, Performance.FASTER, Exit.CLEAN),
    ],
)
def test_a_change_is_judged_by_rank_and_size(us: float, verdict: Performance, code: Exit):
    run = run_of(record(us=us, seed=1))
    judgement = only(run, record())
    assert judgement.verdict is verdict
    assert against_baseline.exit_code(run.records, [judgement]) is code
    assert judgement.change.ratio == pytest.approx(us / 100, abs=0.002)
    assert judgement.reason.startswith(f"time {judgement.change.ratio - 1:+.1%} (")


def test_a_change_between_the_two_proofs_is_ambiguous():
    judgement = only(run_of(record(us=102.8, seed=1)), record())
    assert judgement.change.ratio < 1 + against_baseline.EFFECT < judgement.change.high
    assert judgement.verdict is Performance.AMBIGUOUS
    assert judgement.verdict.exit_code is Exit.NOISY


def test_noise_that_hides_a_change_is_ambiguous_and_not_the_same():
    judgement = only(run_of(record(us=104.0, noise=0.3, seed=1)), record(noise=0.3))
    assert judgement.verdict is Performance.AMBIGUOUS


def test_the_smallest_change_that_counts_can_be_set():
    run = run_of(record(us=102.0, seed=1))
    assert only(run, record(), effect=0.01).verdict is Performance.SLOWER
    assert only(run, record(), effect=0.05).verdict is Performance.SAME


def test_a_kernel_that_did_not_change_raises_no_false_alarm():
    judged = [
        only(run_of(record(noise=0.02, seed=2 * seed)), record(noise=0.02, seed=2 * seed + 1)).verdict
        for seed in range(300)
    ]
    assert Performance.SLOWER not in judged and Performance.FASTER not in judged
    assert judged.count(Performance.SAME) > 280


def test_a_slower_machine_is_not_a_slower_kernel():
    # 4 % less bandwidth now: times are 4 % longer, and in units of the roofline they are what they were.
    run = run_of(record(us=104.0, seed=1, roofline_gbps=4200 / 1.04), header=changed(roofline=rates(4038, 4038)))
    judgement = only(run, record())
    assert judgement.verdict is Performance.AMBIGUOUS
    assert judgement.reason.startswith("SLOWER by time but SAME by roofline")


def test_a_faster_machine_does_not_hide_a_slower_kernel():
    # 4 % more bandwidth now, and still no faster: not proven, but not green either.
    run = run_of(record(us=100.0, seed=1, roofline_gbps=4200 * 1.04), header=changed(roofline=rates(4368, 4368)))
    assert only(run, record()).verdict is Performance.AMBIGUOUS


@pytest.mark.parametrize("us", [95.0, 105.0])
def test_the_same_machine_code_in_another_process_may_differ_by_twice_of_what_counts(us: float):
    judgement = only(run_of(record(us=us, seed=1, code="code 0")), record())
    assert judgement.change.verdict(against_baseline.EFFECT) in (Performance.SLOWER, Performance.FASTER)
    assert judgement.verdict is Performance.SAME


@pytest.mark.parametrize("us", [90.0, 110.0])
def test_the_same_machine_code_cannot_have_changed_so_its_times_are_doubted(us: float):
    judgement = only(run_of(record(us=us, seed=1, code="code 0")), record())
    assert judgement.verdict is Performance.AMBIGUOUS
    assert judgement.reason.startswith("changed, yet machine code and grids are the baseline's")


def test_the_same_machine_code_is_the_same_if_noise_hides_its_times():
    judgement = only(run_of(record(us=102.8, seed=1, code="code 0")), record())
    assert judgement.verdict is Performance.SAME
    assert judgement.reason.startswith("machine code and grids are the baseline's")


@pytest.mark.parametrize(
    ("us", "verdict"), [(7.0, Performance.AMBIGUOUS), (7.5, Performance.AMBIGUOUS), (8.5, Performance.SLOWER)]
)
def test_a_change_below_the_clocks_own_noise_does_not_count(us: float, verdict: Performance):
    judgement = only(run_of(record(us=us, seed=1)), record(us=7.0))
    assert judgement.verdict is verdict
    told = (
        "nothing can be told of so short a time, because 0.75 us, by which two processes of one binary differ, are 11 %"
    )
    assert judgement.reason.startswith(told.replace(" %", "%")) == (verdict is Performance.AMBIGUOUS)


@pytest.mark.parametrize(("now", "then", "whose"), [(9, 30, "this run"), (30, 9, "the baseline")])
def test_few_samples_prove_nothing(now: int, then: int, whose: str):
    judgement = only(run_of(record(us=200.0, seed=1, count=now)), record(count=then))
    told = f"{whose} has 9 samples; 10 are the fewest that show anything"
    assert (judgement.verdict, judgement.reason) == (Performance.AMBIGUOUS, told)
    assert judgement.again == (whose == "this run")  # more of the baseline no second process can take


@pytest.mark.parametrize(
    ("ours", "reason"),
    [
        (changed(gpu="NVIDIA H100"), "not comparable with the baseline: gpu (NVIDIA H200 then, NVIDIA H100 now)"),
        (changed(multiprocessors="114"), "*multiprocessors (132 then, 114 now)"),
        (changed(l2_bytes="2"), "*l2_bytes (1 then, 2 now)"),
        (changed(power_limit_w="500"), "*power_limit_w (700 then, 500 now)"),
        (changed(driver="12080"), "*driver (13000 then, 12080 now)"),
        (changed(runtime="12080"), "*runtime (13000 then, 12080 now)"),
        (changed(nvrtc="12.8"), "*nvrtc (13.0 then, 12.8 now)"),
        (changed(compile_flags="-ftz=true"), "*compile_flags ('-ftz=false' then, '-ftz=true' now)"),
        (changed(method="another"), "*method ('a rule' then, 'another' now)"),
        (changed(clock="another"), "*clock ('events' then, 'another' now)"),
        (changed(roofline=rates(3900, 3900)), "the copy roofline is -7.1% off the baseline's (4,200 then,*"),
        (changed(roofline=rates(4200, 3900)), "this run saw its own copy roofline move from 3,900 to 4,200 GB/s"),
        (changed(roofline=rates(4200)), "this run did not come to its end, so nothing shows that *"),
        (changed(roofline=[]), "this run did not come to its end, so nothing shows that *"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_times_that_must_not_be_compared_are_invalid_and_say_why(ours: dict, reason: str):
    run = run_of(record(us=100.0, seed=1), header=ours)
    judgement = only(run, record())
    assert judgement.verdict is Performance.INVALID
    assert judgement.reason.endswith(reason.strip("*")) or judgement.reason.startswith(reason.strip("*"))
    assert against_baseline.exit_code(run.records, [judgement]) is Exit.NOISY


def test_an_unsteady_baseline_is_refused_too():
    judgement = only(run_of(record(seed=1)), record(), header=changed(roofline=rates(4200, 3000)))
    assert judgement.reason == "the baseline saw its own copy roofline move from 3,000 to 4,200 GB/s"


@pytest.mark.parametrize(
    ("exposed", "rounds", "verdict"),
    [(7, 30, Performance.SAME), (8, 30, Performance.INVALID), (8, 32, Performance.SAME), (9, 32, Performance.INVALID)],
)
def test_times_that_hold_host_latency_are_invalid(exposed: int, rounds: int, verdict: Performance):
    for_the_host = {"count": rounds, "exposed": exposed}
    assert only(run_of(record(seed=1, **for_the_host)), record()).verdict is verdict
    assert only(run_of(record(seed=1)), record(**for_the_host)).verdict is verdict


def test_a_case_the_baseline_lacks_has_no_baseline():
    run = run_of(record())
    judgement = only(run)
    assert judgement.verdict is Performance.NO_BASELINE
    assert against_baseline.exit_code(run.records, [judgement]) is Exit.NO_BASELINE


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([], "the baseline has it and this run has not"),
        ([without_time()], "verified and not timed"),
        ([without_time(verdict="EXCLUDED", reason="too large")], "EXCLUDED: too large"),
    ],
)
def test_a_case_without_a_time_is_not_measured(records: list[dict], reason: str):
    run = run_of(*records)
    judgement = only(run, record())
    assert (judgement.verdict, judgement.reason) == (Performance.NOT_MEASURED, reason)
    assert against_baseline.exit_code(run.records, [judgement]) is Exit.NOISY


def test_wrong_bytes_weigh_more_than_any_time():
    run = run_of(without_time(verdict="MISMATCH", reason="bytes differ"), record(OTHER, us=200.0, seed=1))
    judgements = against_baseline.judge(run, HEADER, [record(), record(OTHER)])
    assert [judgement.verdict for judgement in judgements] == [Performance.NOT_MEASURED, Performance.SLOWER]
    assert against_baseline.exit_code(run.records, judgements) is Exit.BYTES_DIFFER


def test_slower_weighs_more_than_what_could_not_be_told():
    run = run_of(record(us=200.0, seed=1), record("new/default/16x16/normal/eager"))
    judgements = against_baseline.judge(run, HEADER, [record(), record(OTHER)])
    assert {judgement.verdict for judgement in judgements} == {
        Performance.SLOWER, Performance.NO_BASELINE, Performance.NOT_MEASURED,
    }  # fmt: skip
    assert against_baseline.exit_code(run.records, judgements) is Exit.SLOWER


def test_an_empty_run_is_not_green():
    assert against_baseline.judge(run_of(), {}, []) == []
    assert against_baseline.exit_code(run_of().records, []) is Exit.NOISY


@pytest.mark.parametrize("verdict", Performance)
def test_only_same_and_faster_are_green(verdict: Performance):
    green = verdict in (Performance.SAME, Performance.FASTER)
    assert (
        against_baseline.exit_code(run_of().records, [against_baseline.Judgement(CASE, verdict, "")]) is Exit.CLEAN
    ) == green


def test_one_recipe_can_be_judged_alone():
    other = record("other/default/16x16/normal/eager")
    run = run_of(record(seed=1), record("new/default/16x16/normal/eager"))
    assert only(run, record(), other, recipes=("swizzle",)).verdict is Performance.SAME


def test_the_baseline_lies_under_the_name_of_its_gpu():
    assert baseline.path_of(HEADER) == ROOT / "results" / "baselines" / "nvidia-h200" / "bench.jsonl"


class Folder:
    """A run on disk, the file of a baseline, and the command that compares them."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]):
        self.run_dir = path / "run"
        self.baseline = path / "gpu" / "bench.jsonl"
        self.capsys = capsys
        self.run_dir.mkdir()

    def holds(self, *records: dict, header: dict = HEADER, **about: object) -> None:
        lines = [{"sources": sources_digest(), "selected": len(records)} | about, *records]
        (self.run_dir / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (self.run_dir / "bench_header.json").write_text(json.dumps(header))

    def gate(self, *options: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["gate", str(self.run_dir), "--baseline", str(self.baseline), *options])
        out, error = self.capsys.readouterr()
        return ended.value.code, out or error


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setenv("COLUMNS", "250")
    return Folder(tmp_path, capsys)


def test_a_run_saved_as_baseline_is_the_same_as_itself(folder: Folder):
    folder.holds(record(), record(OTHER))
    assert folder.gate("--save")[0] == Exit.CLEAN
    header, records = read_bench(folder.baseline)
    (part,) = header.pop("parts")
    assert (header, len(records)) == (HEADER, 2)
    assert part == {key: HEADER[key] for key in part} and {"commit", "date", "roofline"} < part.keys()
    assert {each["times"]["commit"] for each in records} == {HEADER["commit"]}
    assert "pytest suites --bench" in folder.baseline.with_suffix(".md").read_text()
    assert folder.gate() == (Exit.CLEAN, "2 SAME: exit 0 (clean)\n")


def test_the_command_tells_what_is_not_the_same_and_why(folder: Folder):
    folder.holds(record(), record(OTHER))
    folder.gate("--save")
    folder.holds(record(us=120.0, seed=1), record(OTHER))
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
def test_a_stale_run_is_not_judged_and_not_saved(folder: Folder, changes: dict, sentence: str):
    folder.holds(record())
    assert folder.gate("--save")[0] == Exit.CLEAN
    folder.holds(record(), **changes)
    for options in ((), ("--save",)):
        code, text = folder.gate(*options)
        assert code == Exit.USAGE and sentence in text


def test_a_part_of_a_run_is_saved_and_not_judged(folder: Folder):
    folder.holds(record(), record(BENCHED))
    folder.gate("--save")
    folder.holds(record(), selected=2, header=changed(date="2026-01-02T00:00:00Z"))
    code, text = folder.gate()
    assert code == Exit.USAGE and "holds 1 of its 2 cases" in text
    assert folder.gate("--save")[0] == Exit.CLEAN
    dates = {each["case_id"]: each["times"]["date"] for each in read_bench(folder.baseline)[1]}
    assert dates[CASE] == "2026-01-02T00:00:00Z" != dates[BENCHED]


def test_what_no_run_of_this_tree_writes_is_not_judged(folder: Folder):
    folder.holds(record() | {"bytes_compared": 3})
    code, text = folder.gate()
    assert code == Exit.USAGE and "bytes are compared in it, not 3" in text


def test_a_recipe_that_neither_the_run_nor_its_baseline_has_is_refused(folder: Folder):
    folder.holds(record())
    folder.gate("--save")
    right = CASE.partition("/")[0]
    code, text = folder.gate("-R", right[:-1])
    assert code == Exit.USAGE and f"is of '{right[:-1]}'; did you mean '{right}'?" in text
    assert folder.gate("-R", right)[0] == Exit.CLEAN
    code, text = folder.gate("-R", right, "--save")
    assert code == Exit.USAGE and "--save puts all times of a run into the baseline" in text


@pytest.mark.parametrize("effect", ["inf", "nan", "1e9", "0.51", "0", "-1"])
def test_an_effect_that_no_slowdown_reaches_is_refused(folder: Folder, effect: str):
    folder.holds(record())
    folder.gate("--save")
    for options in ((), ("--base", "HEAD")):
        with pytest.raises(SystemExit) as ended:
            main(["gate", str(folder.run_dir), "--effect", effect, *options])
        assert ended.value.code == Exit.USAGE
        assert "is no change that could count" in folder.capsys.readouterr().err


def test_what_is_added_for_short_times_has_a_bound():
    short = record(OTHER, us=0.1)
    assert only(run_of(record(OTHER, us=0.2, seed=1)), short).verdict is Performance.SLOWER


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
    folder.holds(record(), record(OTHER), record(BENCHED))
    folder.gate("--save")
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
    code, text = folder.gate()
    assert code == Exit.USAGE
    assert f"{folder.baseline} is not what a run writes" in text


def test_save_refuses_before_it_writes():
    with pytest.raises(UsageError, match="has no times"):
        baseline.save(run_of(), Path("/nonexistent/bench.jsonl"), {}, [])


# A baseline of several runs


def later(**changes) -> dict:
    return changed(date="2026-02-02T00:00:00Z", **changes)


def test_a_part_that_is_measured_anew_is_merged_and_the_rest_stays_as_it_was(folder: Folder):
    folder.holds(record(us=100.0), record(BENCHED, us=50.0))
    folder.gate("--save")
    folder.holds(record(us=80.0), header=later(roofline=rates(4200, 4210)))
    assert folder.gate("--save")[0] == Exit.CLEAN
    header, records = read_bench(folder.baseline)
    found = {each["case_id"]: (each["times"]["date"], round(each["times"]["median_us"], -1)) for each in records}
    assert found == {BENCHED: (HEADER["date"], 50.0), CASE: ("2026-02-02T00:00:00Z", 80.0)}
    assert [part["date"] for part in header["parts"]] == [HEADER["date"], "2026-02-02T00:00:00Z"]
    assert "1024x2048" in folder.baseline.with_suffix(".md").read_text()
    # A run that replaces all times of an earlier one leaves none of its header.
    folder.holds(record(us=80.0), record(BENCHED, us=50.0), header=changed(date="2026-03-03T00:00:00Z"))
    folder.gate("--save")
    assert [part["date"] for part in read_bench(folder.baseline)[0]["parts"]] == ["2026-03-03T00:00:00Z"]


def test_a_part_keeps_its_date_however_often_others_are_saved_and_a_case_without_a_time_keeps_its_own(folder: Folder):
    folder.holds(record(BENCHED, us=50.0))
    folder.gate("--save")
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
    folder.holds(record(BENCHED), record())
    folder.gate("--save")
    lines = folder.baseline.read_text().splitlines()
    lines[1] = lines[1].replace(f'"date": "{HEADER["date"]}"', '"date": "2025-12-31T00:00:00Z"')
    folder.baseline.write_text("\n".join(lines) + "\n")
    for options in ((), ("--save",)):
        folder.holds(record(seed=1), *([] if options else [record(BENCHED, seed=1)]), header=later())
        code, text = folder.gate(*options)
        assert code == Exit.USAGE and "2025-12-31T00:00:00Z, and no run in its header is; take the file as" in text


def test_each_part_is_compared_by_its_own_roofline(folder: Folder):
    folder.holds(
        record(BENCHED, roofline_gbps=3900.0, roofline_percent=53.85), header=changed(roofline=rates(3900, 3900))
    )
    folder.gate("--save")
    folder.holds(record(), header=later())
    folder.gate("--save")
    header, records = read_bench(folder.baseline)
    run = run_of(record(seed=1), record(BENCHED, seed=1), header=later())
    verdicts = {one.case_id: one.verdict for one in against_baseline.judge(run, header, records)}
    assert verdicts == {BENCHED: Performance.INVALID, CASE: Performance.SAME}


def test_a_record_whose_roofline_no_part_measured_is_refused(folder: Folder):
    folder.holds(record())
    folder.gate("--save")
    lines = folder.baseline.read_text().replace('"gbps": 4200.0, "date"', '"gbps": 4100.0, "date"')
    folder.baseline.write_text(lines)
    code, text = folder.gate()
    assert code == Exit.USAGE and "roofline_gbps is 4200.0, and the header has measured 4100.0" in text


def test_a_case_that_no_suite_times_any_more_is_dropped_and_not_missed(folder: Folder):
    folder.holds(record(), record(OTHER))
    folder.gate("--save")
    folder.holds(record())
    assert folder.gate() == (Exit.CLEAN, "1 SAME: exit 0 (clean)\n")
    folder.gate("--save")
    assert [each["case_id"] for each in read_bench(folder.baseline)[1]] == [CASE]


@pytest.mark.parametrize("header", [changed(commit="unknown"), changed(commit="f" * 40, edited=True)])
def test_times_from_a_machine_with_another_checkout_get_the_commit_of_the_same_sources(folder: Folder, header: dict):
    folder.holds(record(), header=header)
    assert folder.gate("--save")[0] == Exit.CLEAN
    assert read_bench(folder.baseline)[1][0]["times"]["commit"] == commit()


def test_what_waits_for_a_baseline_is_said_and_is_no_error(folder: Folder, monkeypatch, capsys):
    folder.holds(record(), record(BENCHED))
    folder.gate("--save")
    monkeypatch.setattr(baseline, "FOLDER", folder.baseline.parents[1])
    missing, gone = baseline.waiting()
    assert "cases wait for a time, backward/" in missing and "`harness bench` and `harness gate --save`" in missing
    assert f"1 cases are timed no longer, {CASE} for one" in gone


# A second process


def in_a_second_process(folder: Folder, *records: dict, name: str = "second_process", **changes) -> None:
    second = Folder.__new__(Folder)
    second.run_dir = folder.run_dir / name
    second.run_dir.mkdir(exist_ok=True)
    second.holds(*records, header=changed(**{"date": "2026-01-01T01:00:00Z"} | changes))


@pytest.fixture
def slower(folder: Folder) -> Folder:
    """A run whose first case is slower than the baseline has it."""
    folder.holds(record(), record(OTHER))
    folder.gate("--save")
    folder.holds(record(us=120.0, seed=1), record(OTHER))
    return folder


@pytest.mark.parametrize(
    ("us", "code", "said"),
    [(118.0, Exit.SLOWER, "so it is in a second process"), (100.0, Exit.NOISY, "and a second found SAME")],
)
def test_a_slower_case_counts_if_a_second_process_finds_it(slower: Folder, us: float, code: Exit, said: str):
    in_a_second_process(slower, record(us=us, seed=1))
    found, text = slower.gate()
    assert (found, said in text) == (code, True)


def test_a_case_is_found_in_whichever_second_process_has_it(slower: Folder):
    in_a_second_process(slower, record(us=118.0, seed=1))
    in_a_second_process(slower, record(OTHER), name="second_process.2")
    assert slower.gate()[0] == Exit.SLOWER


def test_a_second_process_that_no_run_of_this_tree_writes_is_refused(slower: Folder):
    in_a_second_process(slower, record(us=118.0, seed=1) | {"bytes_compared": 1})
    assert slower.gate()[0] == Exit.USAGE


def test_wrong_bytes_of_the_second_process_count(slower: Folder):
    in_a_second_process(slower, without_time(verdict="MISMATCH", reason="bytes differ"))
    assert slower.gate()[0] == Exit.BYTES_DIFFER


def test_without_a_gpu_no_process_can_confirm(slower: Folder, monkeypatch):
    monkeypatch.setattr("harness.commands.gate.gpu_count", lambda: 0)
    code, text = slower.gate()
    assert code == Exit.NOISY and "SLOWER in one process, and no second has timed it" in text


def test_a_copy_of_the_run_is_no_second_process(slower: Folder):
    in_a_second_process(slower, record(us=120.0, seed=1), date=HEADER["date"])
    code, text = slower.gate()
    assert code == Exit.USAGE and "so it is a copy" in text


@pytest.mark.parametrize("there", [False, True])
def test_with_a_gpu_those_cases_are_timed_that_no_second_process_has(slower: Folder, monkeypatch, there: bool):
    ran = []
    monkeypatch.setattr("harness.commands.gate.gpu_count", lambda: 1)
    command = "python -m pytest suites --bench --subject mine:make --case x --recipe-dir=own"
    slower.holds(record(us=120.0, seed=1), record(OTHER), header=changed(command=command))

    def run(*words):
        ran.append(list(words))
        in_a_second_process(slower, record(us=120.0, seed=1), name=Path(words[words.index("--run-dir") + 1]).name)

    monkeypatch.setattr("harness.gate.second_process._harness", run)
    if there:
        in_a_second_process(slower, record(OTHER))
    assert slower.gate()[0] == Exit.SLOWER
    (words,) = ran
    folder = slower.run_dir / ("second_process.2" if there else "second_process")
    assert words == [
        "bench", "swizzle", "--run-dir", str(folder),
        "--subject", "mine:make", "--recipe-dir", "own", "--case", CASE,
    ]  # fmt: skip
    assert slower.gate()[0] == Exit.SLOWER
    assert len(ran) == 1  # the second is there


# Clocks


def clocked(us: float = 100.0, seed: int = 0, **changes) -> dict:
    found = record(us=us, seed=seed)
    found["times"] |= {"mhz": 1980.0, "samples_mhz": [1980.0] * 30, "tflops": 700.0} | changes
    return found


def throttled(slow: int, seed: int, slower: float = 1.0) -> dict:
    """A case of 30 rounds, `slow` of them at a lower clock; calls take the same cycles, or `slower` times as many."""
    found = clocked(seed=seed, samples_mhz=[1980.0] * (30 - slow) + [1830.0] * slow)
    times = found["times"]
    times["samples_us"] = [
        us * slower * 1980.0 / mhz for us, mhz in zip(times["samples_us"], times["samples_mhz"], strict=True)
    ]
    return found


@pytest.mark.parametrize("slow", [3, 12, 27])
def test_a_case_whose_clock_had_two_speeds_is_judged_by_its_cycles(slow: int):
    told = f"the clock had two speeds, 1,830 MHz in {slow} rounds and 1,980 MHz in {30 - slow}, so "
    for run, stored in ((throttled(slow, 1), clocked()), (clocked(seed=1), throttled(slow, 0))):
        judgement = only(run_of(run), stored)
        assert judgement.verdict is Performance.SAME
        assert told + "by cycles: " in judgement.reason
    # More cycles are never SLOWER, as nothing says how long they would take at one clock; and they are not SAME.
    for slower in (1.06, 0.94):
        judgement = only(run_of(throttled(slow, 1, slower)), clocked())
        assert judgement.verdict is Performance.INVALID
        assert told + "its median is of neither; cycles " in judgement.reason
    spread = clocked(seed=1, samples_mhz=[1980.0 - 5 * number for number in range(30)])
    few = clocked(seed=1, samples_mhz=[1980.0] * 28 + [1830.0] * 2)
    assert {only(run_of(each), clocked()).verdict for each in (spread, few)} == {Performance.SAME}


def test_cycles_of_the_same_machine_code_may_differ_by_twice_what_counts():
    stored = clocked()
    for slower, verdict in ((1.045, "SAME"), (0.957, "SAME"), (1.08, "INVALID"), (0.92, "INVALID")):
        ours = throttled(12, 1, slower)
        assert only(run_of(ours), stored).verdict is Performance.INVALID
        ours["times"]["code"] = stored["times"]["code"]
        assert only(run_of(ours), stored).verdict is Performance[verdict]


@pytest.mark.parametrize("slow", [3, 12, 27])
def test_what_moves_bytes_is_not_judged_by_cycles(slow: int):
    """A low clock would hide that it is slower by as much as the clock is lower."""
    ours, stored = throttled(slow, 1), clocked()
    for each in (ours, stored):
        del each["times"]["tflops"]
    judgement = only(run_of(ours), stored)
    assert judgement.verdict is Performance.INVALID and "it is no product" in judgement.reason


@pytest.mark.parametrize("which", [0, 1])
def test_a_clock_that_could_not_be_read_is_none(which: int):
    both = [throttled(12, 1), clocked()]
    both[which]["times"]["samples_mhz"] = [0.0, *both[which]["times"]["samples_mhz"][1:]]
    judgement = only(run_of(both[0]), both[1])
    assert judgement.verdict is Performance.INVALID and "one of both has no clocks" in judgement.reason


def test_a_case_whose_clock_had_two_speeds_and_is_unknown_in_the_other_run_is_invalid():
    unknown = clocked()
    del unknown["times"]["samples_mhz"]
    judgement = only(run_of(throttled(12, 1)), unknown)
    assert judgement.verdict is Performance.INVALID
    assert "one of both has no clocks" in judgement.reason


def test_a_lower_clock_is_not_a_slower_kernel():
    judgement = only(run_of(clocked(108.0, 1, mhz=1980.0 / 1.08)), clocked())
    assert judgement.verdict is Performance.AMBIGUOUS
    assert judgement.reason.startswith("SLOWER by time but SAME by cycles (1,980 MHz then, 1,833 now)")
    assert only(run_of(clocked(108.0, 1)), clocked()).verdict is Performance.SLOWER


def test_a_product_that_needs_more_cycles_in_the_same_time_is_not_the_same():
    """The power limit held the baseline's clock down, and now holds the kernel less."""
    stored = clocked(mhz=1755.0, samples_mhz=[1755.0] * 30)
    judgement = only(run_of(clocked(seed=1)), stored)
    assert (judgement.verdict, judgement.again) == (Performance.AMBIGUOUS, True)
    assert judgement.reason.startswith("SAME by time but SLOWER by cycles (1,755 MHz then, 1,980 now)")
    assert only(run_of(clocked(seed=1, mhz=1755.0, samples_mhz=[1755.0] * 30)), clocked()).verdict is Performance.SAME
    moves_bytes = clocked(seed=1)
    del moves_bytes["times"]["tflops"]
    assert only(run_of(moves_bytes), stored).verdict is Performance.SAME


def test_the_newest_run_is_so_by_its_header(tmp_path: Path):
    for name, date, written in (("old", "2026-01-01T00:00:00Z", 2000), ("new", "2026-01-02T00:00:00Z", 1000)):
        path = tmp_path / name / "bench_header.json"
        path.parent.mkdir()
        path.write_text(json.dumps(changed(date=date)))
        os.utime(path, (written, written))
    assert latest_bench(tmp_path).name == "new"
