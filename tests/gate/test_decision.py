"""Verdicts on samples that are made up, and on some that were taken on a GPU: noise, drift, modes, clocks."""

import json

import numpy as np
import pytest

from harness.files import ROOT
from harness.gate import decision
from harness.gate.decision import EFFECT, Samples, decide, unthrottled
from harness.verdict import Performance, TimeRatio

ROUNDS = 60


def sides(change=1.0, make=None, rounds=ROUNDS, mhz=1980.0, seed=0):
    """Head, head again and base of `rounds` rounds, the head `change` times as slow as the base."""
    random = np.random.default_rng(seed)
    make = make or (lambda random, rounds: 100 * random.normal(1, 0.004, rounds))
    clocks = np.broadcast_to(mhz, rounds)
    return [Samples(list(make(random, rounds) * factor), list(clocks)) for factor in (change, change, 1.0)]


def shared_drift(random, rounds):
    return 100 * np.linspace(1, 1.05, rounds) * random.normal(1, 0.003, rounds)


def two_modes(random, rounds):
    return 100 * random.choice([1.0, 1.012], rounds) * random.normal(1, 0.001, rounds)


def outliers(random, rounds):
    return 100 * random.normal(1, 0.004, rounds) * np.where(random.random(rounds) < 0.08, 3.0, 1.0)


def constant(random, rounds):
    return np.full(rounds, 100.0)


MAKERS = [None, shared_drift, two_modes, outliers, constant]


@pytest.mark.sweep
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("seed", range(20))
def test_a_side_is_neither_faster_nor_slower_than_itself(make, seed):
    assert decide(*sides(make=make, seed=seed)).verdict in (Performance.SAME, Performance.AMBIGUOUS)


@pytest.mark.parametrize("change, verdict", [(1.03, Performance.SLOWER), (1 / 1.03, Performance.FASTER)])
@pytest.mark.parametrize("make", [None, outliers, constant])
@pytest.mark.parametrize("seed", range(5))
def test_three_percent_are_found(change, verdict, make, seed):
    assert decide(*sides(change, make, seed=seed)).verdict is verdict


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("seed", range(5))
def test_ten_percent_are_found_whatever_the_noise(make, seed):
    assert decide(*sides(1.10, make, seed=seed)).verdict is Performance.SLOWER


def test_a_proven_change_below_the_least_effect_is_the_same():
    found = decide(*sides(1 + EFFECT / 3, constant))
    assert found.time.low > 1
    assert found.verdict is Performance.SAME


@pytest.mark.parametrize("head, base, slower", [(0.25, 0.0, 1.5), (0.3, 0.0, 1.3), (0.4, 0.1, 1.1)])
@pytest.mark.parametrize("seed", range(5))
def test_what_is_slow_in_some_of_its_rounds_alone_is_not_the_same(head, base, slower, seed):
    """The median equals the base's, and the mean is 3 to 13 % above it."""
    random = np.random.default_rng(seed)

    def series(share):
        slow = random.permutation(np.arange(ROUNDS) < share * ROUNDS)
        return Samples(list(100 * random.normal(1, 0.002, ROUNDS) * np.where(slow, slower, 1.0)), [1980.0] * ROUNDS)

    found = decide(series(head), series(head), series(base))
    assert found.verdict is Performance.AMBIGUOUS
    assert base or "SAME, but its slowest fifth begins +" in found.reason
    faster = decide(series(base), series(base), series(head)).verdict
    assert faster is (Performance.AMBIGUOUS if base else Performance.SAME)


@pytest.mark.parametrize("which", ["head", "again", "both"])
@pytest.mark.parametrize("at", ["first", "last"])
def test_a_tail_counts_whichever_series_of_the_head_has_it(which, at):
    """Slow rounds too few for the slowest fifth, in one of the two series or spread over both, at either end of it."""

    def series(slow):
        us = [100 + number % 7 / 100 for number in range(ROUNDS)]
        rounds = range(slow) if at == "first" else range(ROUNDS - slow, ROUNDS)
        return Samples([2 * each if number in rounds else each for number, each in enumerate(us)], [1980.0] * ROUNDS)

    head, again = {"head": (4, 0), "again": (0, 4), "both": (2, 2)}[which]
    found = decide(series(head), series(again), series(0))
    assert found.verdict is Performance.AMBIGUOUS
    assert "SAME, but for its tail: 4 of 120 rounds take at least 1.2 times the median, and 0 of 60" in found.reason
    assert decide(series(0), series(0), series(4)).verdict is Performance.SAME


def test_noise_between_two_timings_of_the_head_raises_the_least_effect():
    head, again, base = sides(1.03)
    again = Samples([us * 1.012 for us in again.us], again.mhz)
    assert decide(head, again, base).verdict is Performance.AMBIGUOUS


def test_a_slower_clock_is_no_slower_code():
    head, again, base = sides(1.05)
    head = Samples(head.us, [1980 / 1.05] * ROUNDS)  # 1,886 MHz, which is not low enough to be dropped
    found = decide(head, again, base)
    assert found.verdict is Performance.AMBIGUOUS
    assert "SLOWER by time but SAME by cycles" in found.reason


def test_rounds_with_a_low_clock_are_dropped_and_counted():
    clocks = np.where(np.arange(ROUNDS) % 6 == 0, 1500.0, 1980.0)
    slow = np.where(clocks < 1900, 1.32, 1.0)
    made = [Samples([us * s for us, s in zip(side.us, slow, strict=True)], list(clocks)) for side in sides(1.03)]
    found = decide(*made)
    assert (found.verdict, found.dropped) == (Performance.SLOWER, 10)
    assert "10 dropped for a low clock" in found.reason


def test_a_round_is_dropped_on_every_side_if_one_of_them_was_throttled():
    fast, slow = [2000.0] * 5, [2000.0, 2000.0, 1000.0, 2000.0, 2000.0]
    kept, dropped = unthrottled([Samples([1, 2, 3, 4, 5], fast), Samples([1, 2, 3, 4, 5], slow)])
    assert dropped == 1
    assert [list(side.us) for side in kept] == [[1, 2, 4, 5], [1, 2, 4, 5]]


@pytest.mark.parametrize("low, dropped", [(20, 20), (40, 0), (59, 0)])
@pytest.mark.parametrize("change, verdict", [(1.0, Performance.SAME), (1.03, Performance.SLOWER)])
def test_the_clock_of_most_rounds_is_that_of_the_case(low, dropped, change, verdict):
    clocks = [1700.0] * low + [1980.0] * (ROUNDS - low)
    made = [
        Samples([us * 1980 / mhz for us, mhz in zip(side.us, clocks, strict=True)], clocks) for side in sides(change)
    ]
    found = decide(*made)
    assert (found.verdict, found.dropped) == (verdict, dropped)


@pytest.mark.parametrize(
    "unread, verdict", [(20, Performance.SAME), (40, Performance.INVALID), (60, Performance.INVALID)]
)
def test_rounds_whose_clock_could_not_be_read_tell_nothing(unread, verdict):
    clocks = [0.0] * unread + [1980.0] * (ROUNDS - unread)
    found = decide(*(Samples(side.us, clocks) for side in sides()))
    assert (found.verdict, found.dropped) == (verdict, unread)
    assert verdict is Performance.SAME or f"could not be read in {unread} of {ROUNDS}" in found.reason


@pytest.mark.parametrize("rounds", [0, 1, 9])
def test_too_few_rounds_show_nothing(rounds):
    assert decide(*sides(1.5, rounds=rounds)).verdict is Performance.AMBIGUOUS


@pytest.mark.parametrize("folder, verdict", [("clean", Performance.SAME), ("planted", Performance.SLOWER)])
def test_samples_of_a_gpu_are_judged_as_they_were_then(folder, verdict):
    lines = (ROOT / "results" / "gate" / folder / "gate.jsonl").read_text().splitlines()
    records = [record for record in map(json.loads, lines) if "case_id" in record]
    assert records
    for record in records:
        found = decide(*(Samples(record["samples_us"][side], record["mhz"]) for side in ("head", "again", "base")))
        assert found.verdict is verdict
        assert found.verdict == record["verdict"]
        assert found.time.ratio == pytest.approx(record["time"][0], rel=1e-3)


@pytest.mark.parametrize(
    ("ratio", "low", "high", "noise", "verdict"),
    [
        (1.25, 1.125, 1.5, 0, "SLOWER"),  # just as much as counts
        (1.2, 1.125, 1.5, 0, "AMBIGUOUS"),
        (1.25, 1.0, 1.5, 0, "AMBIGUOUS"),
        (1.25, 1.125, 1.5, 0.5, "AMBIGUOUS"),
        (1.5, 1.125, 1.75, 0.5, "SLOWER"),
        (0.8, 0.7, 0.9, 0, "FASTER"),
        (0.82, 0.7, 0.9, 0, "AMBIGUOUS"),
        (0.8, 0.7, 1.0, 0, "AMBIGUOUS"),
        (0.8, 0.7, 0.9, 0.5, "AMBIGUOUS"),
        (1.0, 0.81, 1.24, 0, "SAME"),
        (1.0, 0.81, 1.25, 0, "AMBIGUOUS"),
        (1.0, 0.8, 1.24, 0, "AMBIGUOUS"),
    ],
)
def test_what_a_ratio_and_its_interval_prove(ratio, low, high, noise, verdict):
    assert TimeRatio(ratio, low, high).verdict(0.25, noise) is Performance[verdict]


def test_a_ratio_in_another_unit_and_what_it_could_have_shown():
    assert TimeRatio(1.5, 1.0, 2.0).scaled(2) == TimeRatio(3.0, 2.0, 4.0)
    wide = TimeRatio(1.0, 0.5, 2.0)  # a factor of 2 to either side
    assert (wide.detectable(0.25), wide.detectable(0.25, 3.0), wide.detectable(1.5, 0.25)) == (1.0, 3.0, 1.5)
    assert TimeRatio(1.0, 0.0, 2.0).detectable(0.25) == float("inf")


def process(scale=1.0, read=True, seed=0, slow=0, count=ROUNDS):
    """Rounds of a process by itself, the last `slow` of which take 1.6 times as long; read: whether its clock was."""
    us = 100 * scale * np.random.default_rng(seed).normal(1, 0.002, count)
    us[count - slow :] *= 1.6
    mhz = [1980.0] * count if read else []
    return Samples(list(us), mhz, clock_mhz=1980.0 * read, roofline_gbps=4000.0, code=f"code {seed}")


@pytest.mark.parametrize("change", [1.1, 1 / 1.1])
@pytest.mark.parametrize("unread", ["this run", "the baseline", "this run and the baseline"])
def test_a_change_that_an_unread_clock_may_have_made_is_none(change, unread):
    judged = decide(process(change, "this run" not in unread, 1), None, process(read="the baseline" not in unread))
    assert judged.verdict is Performance.AMBIGUOUS and judged.ask_again
    assert judged.reason.startswith(f"no clock was read in {unread}, and clocks of one GPU differ by as much")


@pytest.mark.parametrize(("change", "read"), [(1.1, True), (1.2, False), (1 / 1.1, True), (1 / 1.2, False)])
def test_a_change_beyond_every_clock_is_one(change, read):
    judged = decide(process(change, read, 1), None, process(read=read))
    assert judged.verdict is (Performance.SLOWER if change > 1 else Performance.FASTER)


def test_a_change_of_as_much_as_clocks_differ_is_one():
    def constant(us: float) -> Samples:
        return Samples([us] * ROUNDS, [], roofline_gbps=4000.0, code=f"code {us}")

    assert decide(constant(115.0), None, constant(100.0)).verdict is Performance.SLOWER
    assert decide(constant(114.9), None, constant(100.0)).verdict is Performance.AMBIGUOUS


def test_a_change_up_to_the_longer_of_two_speeds_may_be_the_clock_s():
    def rounds(*us: float) -> Samples:
        return Samples(list(us), [], roofline_gbps=4000.0, code=f"code {us}")

    slow = rounds(*np.linspace(119.5, 120.5, ROUNDS))
    judged = decide(slow, None, rounds(*np.linspace(99.5, 100.5, 40), *np.linspace(119.5, 120.5, 20)))
    assert judged.verdict is Performance.AMBIGUOUS and "in the baseline 40 rounds take" in judged.reason
    reached = rounds(*[120.0] * ROUNDS)
    judged = decide(reached, None, rounds(*np.linspace(99.5, 100.5, 40), *[120.0] * 20))
    assert judged.verdict is Performance.AMBIGUOUS and "in the baseline 40 rounds take" in judged.reason


@pytest.mark.parametrize(("tail", "late"), [(0.06, False), (0.0625, True), (-0.5, False)])
def test_the_slowest_fifth_may_begin_twice_as_much_later_as_counts(monkeypatch, tail: float, late: bool):
    monkeypatch.setattr(decision.statistics, "slowest_fifth", lambda *_: tail)
    said = decision._late_tail([1.0] * 20, [1.0] * 20, 0.03)
    assert said == ("SAME, but its slowest fifth begins +6.2% later" if late else "")


@pytest.mark.parametrize(("rounds", "told"), [(9, False), (10, True)])
def test_ten_rounds_are_the_fewest_that_show_anything(rounds: int, told: bool):
    head, again, base = sides(make=constant, rounds=rounds)
    in_turns, alone = decide(head, again, base), decide(process(count=rounds, seed=1), None, process(count=rounds))
    assert [("the fewest that show anything" in each.reason) for each in (in_turns, alone)] == [not told] * 2


@pytest.mark.parametrize(("rounds", "verdict"), [(19, Performance.AMBIGUOUS), (20, Performance.SAME)])
def test_fewer_than_twenty_rounds_are_never_the_same(rounds: int, verdict: Performance):
    judged = decide(process(count=rounds, seed=1), None, process(), effect=0.03)
    assert (judged.verdict, "20 are needed" in judged.reason) == (verdict, verdict is Performance.AMBIGUOUS)


@pytest.mark.parametrize("rounds", [26, 27])
def test_few_rounds_may_hold_none_of_a_tail_so_a_second_process_is_asked(rounds: int):
    judged = decide(process(count=rounds, seed=1), None, process(), effect=0.03)
    assert (judged.verdict, judged.ask_again) == (Performance.SAME, rounds < 27)


def test_two_speeds_of_rounds_without_a_clock_may_be_the_clocks():
    wrong, right = process(read=False, seed=1, slow=40), process(read=False)
    for head, base, where in ((wrong, right, "this run"), (right, wrong, "the baseline")):
        judged = decide(head, None, base)
        assert judged.verdict is Performance.AMBIGUOUS
        assert judged.reason.startswith(f"in {where} 20 rounds take ") and "and no clock was read" in judged.reason


def test_a_change_beyond_both_speeds_is_one_whatever_the_clock_did():
    wrong, right = process(2.0, read=False, seed=1, slow=40), process(read=False)
    assert decide(wrong, None, right).verdict is Performance.SLOWER
    assert decide(right, None, wrong).verdict is Performance.FASTER
