"""What two events take differs between hosts; eager times are compared as if it did not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gate_runs import BENCHED, CASE, OTHER, Folder, changed, only, record, run_of

from harness.gate import against_baseline, baseline
from harness.records.run_folder import read_bench
from harness.verdict import Performance

SLOW_EVENTS = changed(floors_us={"events": 2.9})  # where others have 1.5


@pytest.mark.parametrize("seed", [0, 1], ids=["the same machine code", "other machine code"])
def test_an_eager_time_may_be_longer_by_what_its_events_are(seed: int):
    judgement = only(run_of(record(us=8.0 + 1.4, seed=seed, code=f"code {seed}"), header=SLOW_EVENTS), record(us=8.0))
    assert judgement.verdict is Performance.SAME or "nothing can be told of so short a time" in judgement.reason
    assert judgement.time.ratio == pytest.approx(1, abs=0.002)
    assert (judgement.candidate_us, judgement.reference_us) == pytest.approx(
        (9.4, 8.0), abs=0.05
    )  # as they were measured
    assert judgement.reason.endswith("; two events took 1.50 us then and 2.90 now, which is allowed for")


def test_it_is_allowed_for_the_other_way_round():
    judgement = only(run_of(record(us=100.0, seed=1)), record(us=101.4), header=SLOW_EVENTS)
    assert judgement.time.ratio == pytest.approx(1, abs=0.001)
    assert judgement.reason.endswith("; two events took 2.90 us then and 1.50 now, which is allowed for")


def test_a_kernel_that_is_slower_beside_it_is_slower():
    judgement = only(run_of(record(us=50.0 + 1.4 + 4.0, seed=1), header=SLOW_EVENTS), record(us=50.0))
    assert judgement.verdict is Performance.SLOWER and judgement.time.ratio == pytest.approx(1.08, abs=0.002)
    hidden = only(run_of(record(us=50.0, seed=1)), record(us=50.0 - 4.0 + 1.4), header=SLOW_EVENTS)
    assert hidden.verdict is Performance.SLOWER  # its events are faster, and its time is not


def test_the_time_of_a_graph_holds_no_events():
    judgement = only(run_of(record(OTHER, us=50.0, seed=1), header=SLOW_EVENTS), record(OTHER, us=50.0))
    assert judgement.verdict is Performance.SAME and judgement.time.ratio == pytest.approx(1, abs=0.001)
    assert "events" not in judgement.reason
    assert only(run_of(record(OTHER, us=51.4 + 2, seed=1), header=SLOW_EVENTS), record(OTHER, us=50.0)).verdict is (
        Performance.SLOWER
    )


def test_where_events_take_as_long_nothing_is_said():
    assert "events" not in only(run_of(record(us=50.0, seed=1)), record(us=50.0)).reason


@pytest.mark.parametrize(
    ("now_us", "then_us", "whose"), [(90.0, 1.5, "this run"), (1.5, 80.0, "the baseline"), (90.0, 80.0, "the baseline")]
)
def test_events_that_take_longer_than_a_sample_are_no_events(now_us: float, then_us: float, whose: str):
    """A header could else say that the events of a slower kernel took as much longer."""
    now, then = (changed(floors_us={"events": us}) for us in (now_us, then_us))
    judgement = only(run_of(record(us=70.0, seed=1), header=now), record(us=60.0), header=then)
    assert judgement.verdict is Performance.INVALID
    took = then_us if whose == "the baseline" else now_us
    assert (
        judgement.reason == f"in {whose} two events with nothing between them took {took:.2f} us, longer than a sample"
    )


@pytest.mark.parametrize("floors", [{}, {"events": 0.0}, {"eager": 2.1}], ids=["none", "zero", "another"])
@pytest.mark.parametrize("whose", ["this run", "the baseline"])
def test_without_a_time_of_events_no_eager_time_is_compared(floors: dict, whose: str):
    """If a missing time counted as 0 us, the difference would excuse a kernel that has become slower."""
    lacks = changed(floors_us=floors)
    now, then = (lacks if whose == name else changed() for name in ("this run", "the baseline"))
    judgement = only(run_of(record(us=110.0, seed=1), header=now), record(us=100.0), header=then)
    assert judgement.verdict is Performance.INVALID
    assert judgement.reason == (
        f"the header of {whose} has no time of two events with nothing between them ('events' in floors_us), which its "
        "eager times hold; time its suites again"
    )
    graph = only(run_of(record(OTHER, us=110.0, seed=1), header=now), record(OTHER, us=100.0), header=then)
    assert graph.verdict is Performance.SLOWER


def test_a_baseline_whose_part_has_null_for_floors_is_one_sentence(folder: Folder):
    folder.saves(record())
    text = folder.baseline.read_text()
    end = text.index("\n")
    head = json.loads(text[:end])
    head["parts"][0]["floors_us"] = None
    folder.baseline.write_text(json.dumps(head) + text[end:])
    folder.holds(record())
    assert "parts.0.floors_us: Input should be a valid dictionary" in folder.refusal()


def test_a_part_without_floors_takes_those_of_the_head_along_when_a_newer_run_replaces_it(tmp_path: Path):
    """By the floors of the newer run its eager times would be compared with a wrong allowance."""
    path = tmp_path / "bench.jsonl"
    baseline.save(run_of(record(BENCHED, us=50.0), record(us=50.0)), path, {}, [])
    header, stored = read_bench(path)
    del header["parts"][0]["floors_us"]
    later = changed(date="2026-02-02T00:00:00Z", floors_us={"events": 2.9})
    baseline.save(run_of(record(us=50.0), header=later), path, header, stored)
    header, _ = read_bench(path)
    assert header["floors_us"] == {"events": 2.9}
    assert [part["floors_us"] for part in header["parts"]] == [{"events": 1.5}, {"events": 2.9}]


def test_a_baseline_of_several_runs_knows_the_events_of_each(tmp_path: Path):
    later = changed(date="2026-02-02T00:00:00Z", floors_us={"events": 2.9})
    path = tmp_path / "bench.jsonl"
    baseline.save(run_of(record(BENCHED, us=50.0)), path, {}, [])
    baseline.save(run_of(record(us=50.0), header=later), path, *read_bench(path))
    header, stored = read_bench(path)
    assert {part["date"]: part["floors_us"] for part in header["parts"]} == {
        "2026-01-01T00:00:00Z": {"events": 1.5}, "2026-02-02T00:00:00Z": {"events": 2.9},
    }  # fmt: skip
    events = {each["case_id"]: against_baseline.measured_by(each, header)["floors_us"]["events"] for each in stored}
    assert events == {BENCHED: 1.5, CASE: 2.9}


@pytest.mark.parametrize(("now_us", "judged"), [(3.9, Performance.SAME), (4.5, Performance.INVALID)])
def test_events_are_allowed_for_as_far_as_hosts_differ(now_us: float, judged: Performance):
    """A run whose host was late when it measured its events could else hide a slower kernel behind them."""
    slower = record(us=100.0 + now_us - 1.5, seed=1)
    judgement = only(run_of(slower, header=changed(floors_us={"events": now_us})), record(us=100.0))
    assert judgement.verdict is judged
    if judged is Performance.INVALID:
        assert "took 1.50 us in the baseline and 4.50 in this run, more than 2.5 us apart" in judgement.reason


def test_bounds_on_what_events_take_are_allowed(monkeypatch: pytest.MonkeyPatch):
    def ended(us: float, now_us: float, then_us: float, then: float = 100.0) -> str:
        ours, stored = record(us=us, seed=1), record(us=then)
        ours["times"]["samples_us"][7] = us
        now_, then_ = (changed(floors_us={"events": each}) for each in (now_us, then_us))
        return only(run_of(ours, header=now_), stored, header=then_).reason

    assert "us apart" not in ended(100.0, 4.0, 1.5) and "us apart" in ended(100.0, 4.01, 1.5)
    assert "us apart" not in ended(100.0, 1.5, 4.0) and "us apart" in ended(100.0, 1.5, 4.01)
    assert "longer than a sample" not in ended(2.0, 2.5, 2.5) and "longer than a sample" in ended(2.0, 2.6, 2.5)
    assert ended(2.0, 2.5, 0.5).startswith("a sample is shorter than what its events take more")
    assert not ended(2.25, 2.5, 0.5).startswith("a sample is shorter")
    assert ended(100.0, 0.0005, 0.001).endswith("which is allowed for")
    assert ended(100.0, 0.001, 0.0005).endswith("which is allowed for")
    assert "allowed for" not in ended(100.0, 0.0009, 0.0005) + ended(100.0, 0.0005, 0.0009)


def test_a_sample_that_would_be_no_time_without_its_events_is_invalid():
    """If events take longer now than in the baseline, the excess is subtracted; here it exceeds the sample.

    A sample may be a little shorter than its events.
    """
    now, then = (changed(floors_us={"events": us}) for us in (2.5, 0.1))
    judgement = only(run_of(record(us=2.1, seed=1), header=now), record(us=2.0), header=then)
    assert (judgement.verdict, judgement.ask_again) == (Performance.INVALID, True)
    assert judgement.reason.startswith("a sample is shorter than what its events take more")
