"""Is this run slower than the committed baseline? A verdict with its reason for each case, and one exit code.

What is no measurement of this tree on this machine is INVALID; times that may be compared are judged by `decision`.
Only SAME and FASTER exit with 0.

An eager time is taken between two events, and what those alone take is 1.3 us on some hosts and 2.9 us on others with
the same GPU and driver (H200, 2026-11-27). Each run measures it, and eager times are compared as if it were the
baseline's. A time of a graph holds no such constant: its events stand around many calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from harness.bench import statistics
from harness.errors import Exit, UsageError, worst
from harness.gate.decision import decide, samples_of
from harness.records.records import Record
from harness.records.run_folder import EVENTS, Header, RunFiles, commit, now_here, same_sources
from harness.records.seal import sources_digest
from harness.records.times import DRIFT, part_of, run_of, unsteady, waited
from harness.verdict import Judgement, Performance, Verdict

EFFECT = 0.03  # smallest change of a time that counts
SHORTEST = 0.8  # share of the time between two empty events: even with noise, no eager sample is below it
EVENTS_APART_US = 2.5  # us; the largest allowance for events; measured hosts take 1.3 to 2.9 us

_MACHINE_KEYS = ("gpu", "multiprocessors", "l2_bytes", "power_limit_w", "subject", "driver", "runtime", "nvrtc")
_HEADER_KEYS = ("compile_flags", "clock", "method")


@dataclass(frozen=True)
class Comparability:
    """Whether times of a run can be compared with those of the run that measured a part of the baseline.

    refused: why not; reference_events_us, candidate_events_us: in each run, the time between two events with nothing
    between them, 0 if not measured
    """

    refused: str
    reference_events_us: float
    candidate_events_us: float

    @property
    def eager_refused(self) -> str:
        """Why their eager times cannot be compared although others may be, or an empty string."""
        for whose, events_us in (("the baseline", self.reference_events_us), ("this run", self.candidate_events_us)):
            if not events_us:
                # Without this check a run's header could hide how much slower the run is.
                return (
                    f"the header of {whose} has no time of two events with nothing between them ('{EVENTS}' in "
                    "floors_us), which its eager times hold; time its suites again"
                )
        if abs(self.shift_us) > EVENTS_APART_US:
            return (
                f"two events with nothing between them took {self.reference_events_us:.2f} us in the baseline and "
                f"{self.candidate_events_us:.2f} in this run, more than {EVENTS_APART_US} us apart, which hosts are "
                "not; time its suites again"
            )
        return ""

    @property
    def shift_us(self) -> float:
        """The microseconds to add to an eager time of this run, so that its events count as long as the baseline's."""
        return self.reference_events_us - self.candidate_events_us


def judge(
    run: RunFiles, header: Header, baseline: Sequence[Record], effect: float = EFFECT, recipes: Sequence[str] = ()
) -> list[Judgement]:
    """Compare every case of the run and of the baseline. header: the baseline's; recipes: only these, if any"""
    candidates = _by_id(run.records, recipes)
    references = _by_id(baseline, recipes)
    known: dict[object, Comparability] = {}  # key: commit and date of the run that measured a part of the baseline

    def comparability_of(record: Record | None) -> Comparability | None:
        if record is None or not run.timed:
            return None
        part = part_of(record["times"])
        if part not in known:
            its_run = measured_by(record, header)
            events = (each["floors_us"].get(EVENTS, 0.0) for each in (its_run, run.header))
            known[part] = Comparability(incomparable(run.header, its_run), *events)
        return known[part]

    return [
        _judge(
            case_id, candidates.get(case_id), references.get(case_id), comparability_of(references.get(case_id)), effect
        )
        for case_id in dict.fromkeys([*references, *candidates])
    ]


def stale(run: RunFiles, whole: bool) -> str:
    """Why a run cannot judge the tree as it is now, or an empty string. whole: whether it must have all cases"""
    now = sources_digest()
    if run.about["sources"] not in (now, now[:16]) or run.header.get("sources", now[:16]) != now[:16]:
        return "is of other sources than this tree; time it again"
    then, here = (run.header | now_here(run.header)).get("commit", "unknown") if run.header else "unknown", commit()
    if "unknown" not in (then, here) and not same_sources(then):
        return f"is of commit {then[:12]}, and this tree is at {here[:12]}; time it again"
    selected = run.about.get("selected")
    if selected is None:
        return "does not say how many cases were selected"
    if whole and len(run.records) != selected:
        return f"holds {len(run.records)} of its {selected} cases; finish it with --resume"
    return ""


def exit_code(records: Sequence[Record], judgements: Sequence[Judgement]) -> Exit:
    """The exit code of the worst verdict; NOISY if nothing was timed. records: what was verified"""
    codes = {Verdict(record["verdict"]).exit_code for record in records}
    codes |= {judgement.verdict.exit_code for judgement in judgements}
    if not judgements:
        codes.add(Exit.NOISY)
    return worst(codes)


def _by_id(records: Sequence[Record], recipes: Sequence[str] = ()) -> dict[str, Record]:
    return {record["case_id"]: record for record in records if not recipes or record["recipe"] in recipes}


def measured_by(record: Record, header: Header) -> Header:
    """The header of the run that measured this record, taken from the baseline's header.

    Raises UsageError if the baseline has no such run.
    """
    run, part = run_of(record["times"], header), part_of(record["times"])
    if run is None:
        raise UsageError(
            f"the baseline's {record['case_id']} is of commit {part[0]}, {part[1]}, and no run in its header is; "
            "take the file as `harness gate --save` wrote it"
        )
    return run


def incomparable(candidate: Header, reference: Header) -> str:
    """The reason why times of two runs cannot be compared, or an empty string."""
    if others := differing(candidate, reference):
        return f"not comparable with the baseline: {', '.join(others)}"
    for name, header in (("this run", candidate), ("the baseline", reference)):
        if problem := unsteady(header):
            return f"{name} {problem}"
    now, then = roofline(candidate), roofline(reference)
    if abs(now / then - 1) > DRIFT:
        return f"the copy roofline is {now / then - 1:+.1%} off the baseline's ({then:,.0f} then, {now:,.0f} GB/s now)"
    return ""


def differing(candidate: Header, reference: Header) -> list[str]:
    """The facts that two runs must share to be compared and that differ: `driver (13000 then, 12080 now)`."""
    found = [
        f"{key} ({reference['machine'].get(key)} then, {candidate['machine'].get(key)} now)"
        for key in _MACHINE_KEYS
        if candidate["machine"].get(key) != reference["machine"].get(key)
    ]
    return found + [
        f"{key} ({reference[key]!r} then, {candidate[key]!r} now)"
        for key in _HEADER_KEYS
        if candidate[key] != reference[key]
    ]


def roofline(header: Header) -> float:
    """The copy roofline of a run, GB/s, over all its measurements."""
    return median(entry["gbps"] for entry in header["roofline"])


def _judge(
    case_id: str, candidate: Record | None, reference: Record | None, runs: Comparability | None, effect: float
) -> Judgement:
    """runs: None if not both of the records have times"""
    judged = partial(Judgement, case_id)
    if candidate is None:
        return judged(Performance.NOT_MEASURED, "the baseline has it and this run has not")
    if not candidate.get("times"):
        verdict = Verdict(candidate["verdict"])
        why = "verified and not timed" if verdict.right else f"{verdict}: {candidate['reason']}"
        return judged(Performance.NOT_MEASURED, why)
    if reference is None:
        why = "the baseline has no such case"
        return judged(Performance.NO_BASELINE, why, candidate["times"]["median_us"])
    now, then = candidate["times"], reference["times"]
    medians = {"candidate_us": now["median_us"], "reference_us": then["median_us"]}
    invalid = partial(judged, Performance.INVALID, **medians)
    samples = now["samples_us"], then["samples_us"]
    if (copied := samples[0] == samples[1]) or statistics.same_origin(*samples):
        changed = "" if copied else ", scaled, shifted or in another order"
        return invalid(f"these are the baseline's own times{changed}; time the suites again")
    late = waited(then)
    if why := runs.refused or (late and f"in the baseline {late}"):
        return invalid(why)
    if why := waited(now):
        return invalid(f"in this run {why}", ask_again=True)
    if not case_id.endswith("/eager"):
        return replace(decide(samples_of(now), None, samples_of(then), effect, case_id), **medians)
    both = ("the baseline", then, runs.reference_events_us), ("this run", now, runs.candidate_events_us)
    for whose, times, events_us in both:
        if min(times["samples_us"]) < SHORTEST * events_us:
            why = f"two events with nothing between them took {events_us:.2f} us, longer than a sample"
            return invalid(f"in {whose} {why}")
    if runs.eager_refused:
        return invalid(runs.eager_refused)
    shift = runs.shift_us
    if min(now["samples_us"]) + shift <= 0:
        why = f"a sample is shorter than what its events take more than the baseline's ({-shift:.2f} us)"
        return invalid(why, ask_again=True)
    shifted = {"samples_us": [us + shift for us in now["samples_us"]], "median_us": now["median_us"] + shift}
    found = replace(decide(samples_of(now | shifted), None, samples_of(then), effect, case_id), **medians)
    if abs(shift) < 0.0005 or found.time is None:
        return found
    took = f"{runs.reference_events_us:.2f} us then and {runs.candidate_events_us:.2f} now"
    return replace(found, reason=f"{found.reason}; two events took {took}, which is allowed for")
