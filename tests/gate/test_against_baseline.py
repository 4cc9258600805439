"""Verdicts of a run's times beside a baseline's."""

from __future__ import annotations

import pytest
from gate_runs import CASE, HEADER, OTHER, changed, judged, only, rates, record, run_of, without_time

from harness.errors import Exit
from harness.files import ROOT
from harness.gate import against_baseline, baseline
from harness.verdict import Performance


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
    assert judgement.time.ratio == pytest.approx(us / 100, abs=0.002)
    assert judgement.reason.startswith(f"time {judgement.time.ratio - 1:+.1%} (")


def with_slow_calls(calls: int, seed: int = 1, **changes) -> dict:
    """A case whose median is as ever, while so many of its 30 calls take three times as long."""
    found = record(seed=seed, **changes)
    times = found["times"]
    times["samples_us"] = [
        us * (3 if number % 4 == 0 and number < 4 * calls else 1) for number, us in enumerate(times["samples_us"])
    ]
    return found


def test_a_kernel_that_is_slow_in_a_quarter_of_its_calls_is_not_the_same():
    judgement = only(run_of(with_slow_calls(7)), record())
    assert judgement.time.verdict(against_baseline.EFFECT) is Performance.SAME
    assert (judgement.verdict, judgement.ask_again) == (
        Performance.AMBIGUOUS,
        False,
    )  # a second process would miss as much
    assert judgement.reason.startswith("SAME, but its slowest fifth begins +199")
    tail = only(run_of(with_slow_calls(4)), record())
    assert (tail.verdict, tail.ask_again) == (Performance.AMBIGUOUS, False)
    assert tail.reason.startswith("SAME, but for its tail: 4 of 30 rounds take at least 1.2 times the median, and 0 of")
    once = only(run_of(with_slow_calls(1)), record())  # as of other work on the host: a second process tells
    assert (once.verdict, once.ask_again) == (Performance.AMBIGUOUS, True)
    assert only(run_of(with_slow_calls(4)), with_slow_calls(4, seed=0)).verdict is Performance.SAME
    few = only(run_of(record(seed=1, count=20)), record(count=20))
    assert (few.verdict, few.ask_again) == (Performance.SAME, True)
    assert only(run_of(record(seed=1)), with_slow_calls(7, seed=0)).verdict is Performance.SAME
    # Where the machine code is the same, it is the noise of a process.
    assert only(run_of(with_slow_calls(7, code="code 0")), record()).verdict is Performance.SAME


def test_a_change_between_the_two_proofs_is_ambiguous():
    judgement = only(run_of(record(us=102.8, seed=1)), record())
    assert judgement.time.ratio < 1 + against_baseline.EFFECT < judgement.time.high
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


@pytest.mark.parametrize(
    ("us", "gbps", "reason"),
    [
        # 4 % less bandwidth now: times are 4 % longer, and in units of the roofline they are what they were.
        (104.0, 4200 / 1.04, "SLOWER by time but SAME by roofline"),
        # 4 % more bandwidth now, and still no faster: not proven, but not green either.
        (100.0, 4200 * 1.04, "SAME by time but "),
    ],
)
def test_another_machine_neither_makes_nor_hides_a_slower_kernel(us: float, gbps: float, reason: str):
    header = changed(roofline=rates(round(gbps), round(gbps)))
    judgement = only(run_of(record(us=us, seed=1, roofline_gbps=gbps), header=header), record())
    assert judgement.verdict is Performance.AMBIGUOUS and judgement.reason.startswith(reason)


@pytest.mark.parametrize(
    ("us", "by_itself", "verdict", "doubt"),
    [
        (95.0, "FASTER", "SAME", ""),
        (105.0, "SLOWER", "SAME", ""),
        (102.8, "AMBIGUOUS", "SAME", ""),
        (90.0, "FASTER", "AMBIGUOUS", "changed, yet "),
        (110.0, "SLOWER", "AMBIGUOUS", "changed, yet "),
    ],
)
def test_the_same_machine_code_is_the_same_up_to_twice_of_what_counts_and_is_doubted_beyond(
    us: float, by_itself: str, verdict: str, doubt: str
):
    judgement = only(run_of(record(us=us, seed=1, code="code 0")), record())
    assert judgement.time.verdict(against_baseline.EFFECT) == by_itself
    assert judgement.verdict == verdict
    assert judgement.reason.startswith(f"{doubt}machine code and grids are the baseline's")


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
    assert judgement.ask_again == (whose == "this run")  # more of the baseline no second process can take


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


@pytest.mark.parametrize(("now", "told"), [(5000, ""), (3000, ""), (5001, "+25.0%"), (2999, "-25.0%")])
def test_a_copy_roofline_may_drift_by_so_much_either_way(monkeypatch: pytest.MonkeyPatch, now: int, told: str):
    monkeypatch.setattr(against_baseline, "DRIFT", 0.25)
    headers = (changed(roofline=rates(each, each)) for each in (now, 4000))
    why = against_baseline.incomparable(*headers)
    assert bool(why) is bool(told) and f"roofline is {told}" in (why or "roofline is ")


def test_an_unsteady_baseline_is_refused_too():
    judgement = only(run_of(record(seed=1)), record(), header=changed(roofline=rates(4200, 3000)))
    assert judgement.reason == "the baseline saw its own copy roofline move from 3,000 to 4,200 GB/s"


@pytest.mark.parametrize(
    ("exposed", "rounds", "verdict"),
    [(7, 30, Performance.SAME), (8, 30, Performance.INVALID), (8, 32, Performance.SAME), (9, 32, Performance.INVALID)],
)
def test_times_that_hold_host_latency_are_invalid(exposed: int, rounds: int, verdict: Performance):
    for_the_host = {"count": rounds, "exposed": exposed}
    ours, stored = (
        only(run_of(record(seed=1, **for_the_host)), record()),
        only(run_of(record(seed=1)), record(**for_the_host)),
    )
    assert (ours.verdict, stored.verdict) == (verdict, verdict)
    if verdict is Performance.INVALID:  # more of the baseline no second process can take
        assert (ours.ask_again, stored.ask_again) == (True, False)


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
    judgements = judged(run, record(), record(OTHER))
    assert [judgement.verdict for judgement in judgements] == [Performance.NOT_MEASURED, Performance.SLOWER]
    assert against_baseline.exit_code(run.records, judgements) is Exit.BYTES_DIFFER


def test_slower_weighs_more_than_what_could_not_be_told():
    run = run_of(record(us=200.0, seed=1), record("new/default/16x16/normal/eager"))
    judgements = judged(run, record(), record(OTHER))
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


def test_what_is_added_for_short_times_has_a_bound():
    short = record(OTHER, us=0.1)
    assert only(run_of(record(OTHER, us=0.2, seed=1)), short).verdict is Performance.SLOWER


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


@pytest.mark.parametrize("slow", [3, 12])
def test_a_case_whose_clock_had_two_speeds_is_judged_by_its_cycles(slow: int):
    told = f"the clock had two speeds, 1,830 MHz in {slow} rounds and 1,980 MHz in {30 - slow}, so "
    for run, stored in ((throttled(slow, 1), clocked()), (clocked(seed=1), throttled(slow, 0))):
        judgement = only(run_of(run), stored)
        assert judgement.verdict is Performance.SAME
        assert told + "by cycles: " in judgement.reason
    # More cycles are never SLOWER, as nothing says how long they would take at one clock; and they are not SAME.
    for slower in (1.06, 0.94):
        judgement = only(run_of(throttled(slow, 1, slower)), clocked())
        assert (judgement.verdict, judgement.ask_again) == (Performance.INVALID, True)
        assert told + "its median is of neither; cycles " in judgement.reason
    spread = clocked(seed=1, samples_mhz=[1980.0 - 5 * number for number in range(30)])
    few = clocked(seed=1, samples_mhz=[1980.0] * 28 + [1830.0] * 2)
    assert {only(run_of(each), clocked()).verdict for each in (spread, few)} == {Performance.SAME}


@pytest.mark.parametrize("slow", [16, 27])
def test_other_machine_code_that_takes_longer_at_a_lower_clock_is_not_the_same(slow: int):
    """A kernel that draws more power lowers its own clock, and its cycles stay as they were."""
    judgement = only(run_of(throttled(slow, 1)), clocked())
    assert judgement.verdict is Performance.AMBIGUOUS and judgement.verdict.exit_code is Exit.NOISY
    assert judgement.reason.startswith("SLOWER by time but SAME by cycles: time +")
    same_code = throttled(slow, 1)
    same_code["times"]["code"] = clocked()["times"]["code"]
    assert only(run_of(same_code), clocked()).verdict is Performance.SAME
    assert only(run_of(clocked(seed=1)), throttled(slow, 0)).verdict is Performance.SAME


def test_cycles_of_a_clock_of_two_speeds_are_doubted_as_times_are():
    """A short product and one that is slow in a quarter of its calls are no more SAME by cycles than by times."""
    short, stored = throttled(12, 1), clocked()
    for each in (short, stored):
        each["times"]["samples_us"] = [us / 10 for us in each["times"]["samples_us"]]
        each["times"]["median_us"] /= 10
    judgement = only(run_of(short), stored)
    assert (judgement.verdict, judgement.ask_again) == (Performance.AMBIGUOUS, False)
    assert "nothing can be told of so short a time" in judgement.reason
    short["times"]["code"] = stored["times"]["code"]
    assert only(run_of(short), stored).verdict is Performance.SAME
    intermittent = throttled(12, 1)
    times = intermittent["times"]
    times["samples_us"] = [us * (3 if number % 4 == 0 else 1) for number, us in enumerate(times["samples_us"])]
    judgement = only(run_of(intermittent), clocked())
    assert judgement.verdict is Performance.AMBIGUOUS and "its slowest fifth begins +" in judgement.reason


def test_a_run_is_not_judged_by_its_own_samples_whatever_its_header_says():
    """Such a header comes from a run that was saved before its commit, or from merged shards that were."""
    judgement = only(run_of(record()), record())
    assert (judgement.verdict, judgement.ask_again) == (Performance.INVALID, False)
    assert judgement.reason == "these are the baseline's own times; time the suites again"


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


@pytest.mark.parametrize(("which", "clocks"), [(0, [0.0]), (1, [0.0]), (1, None)])
def test_a_clock_that_could_not_be_read_is_none(which: int, clocks: list[float] | None):
    both = [throttled(12, 1), clocked()]
    read = both[which]["times"].pop("samples_mhz")
    both[which]["times"] |= {} if clocks is None else {"samples_mhz": [*clocks, *read[1:]]}
    judgement = only(run_of(both[0]), both[1])
    assert judgement.verdict is Performance.INVALID and "one of both has no clocks" in judgement.reason


def test_a_lower_clock_is_not_a_slower_kernel():
    judgement = only(run_of(clocked(108.0, 1, mhz=1980.0 / 1.08)), clocked())
    assert judgement.verdict is Performance.AMBIGUOUS
    assert judgement.reason.startswith("SLOWER by time but SAME by cycles (1,980 MHz then, 1,833 now)")
    assert only(run_of(clocked(108.0, 1)), clocked()).verdict is Performance.SLOWER


def test_a_product_that_needs_more_cycles_in_the_same_time_is_not_the_same():
    """The power limit held the baseline's clock down, and now holds the kernel less."""
    stored = clocked(mhz=1755.0, samples_mhz=[1755.0] * 30)
    judgement = only(run_of(clocked(seed=1)), stored)
    assert (judgement.verdict, judgement.ask_again) == (Performance.AMBIGUOUS, True)
    assert judgement.reason.startswith("SAME by time but SLOWER by cycles (1,755 MHz then, 1,980 now)")
    assert only(run_of(clocked(seed=1, mhz=1755.0, samples_mhz=[1755.0] * 30)), clocked()).verdict is Performance.SAME
    moves_bytes = clocked(seed=1)
    del moves_bytes["times"]["tflops"]
    assert only(run_of(moves_bytes), stored).verdict is Performance.SAME
