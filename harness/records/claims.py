"""Check that a run could have written a record: it has evidence for its verdict, and times follow from samples.

Each function returns what is wrong, or an empty string.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import NormalDist
from typing import Any

import numpy as np

from harness.contract.case import id_parts
from harness.errors import HarnessError
from harness.expected.expected import fields_of
from harness.records.times import part_of, run_of
from harness.suite.stages import terms
from harness.suite.suite import find_case
from harness.verdict import Performance, Verdict

LARGEST_EFFECT = 0.5  # a gate with a larger one would call even 1.5 times the time SAME
_LAST_DIGIT = 0.0011  # us; times have three decimals, and a quantile may lie between two of them
_LAST_DIGIT_GATE = 0.00011
UNCHANGED = "machine code, grids and libraries are the base's; not timed"  # the reason for an untimed case
_MOST_ROUNDS = 1000  # a gate takes a quarter of them, and a bench a twentieth
_SHORTEST = 0.1  # us; a graph of empty kernels takes several times as long for each
_MOST_MEMORY = 1 << 40  # bytes; no GPU has a tebibyte
_MOST_PERCENT = 400.0  # percent of a copy's rate; no GPU's L2 is that much faster
# Standard error of a median, times the root of the number of samples, in interquartile ranges of a normal distribution.
_RELATIVE_ERROR = math.sqrt(math.pi / 2) / (2 * NormalDist().inv_cdf(0.75))
_JUDGED = (Performance.SAME, Performance.AMBIGUOUS, Performance.SLOWER, Performance.FASTER)  # they follow from samples
_DEVICES = {"emulator": "sm_", "cuda": "sm_", "host": "host"}


def wrong_case(record: Any) -> str:
    """Say what is wrong with a finished case; empty if nothing is. record: a `records.Finished`"""
    return next(_problems_of_case(record), "")


def _problems_of_case(record: Any) -> Iterator[str]:
    verdict = record.verdict
    if verdict.right:
        yield from _without_evidence(record)
    if verdict is Verdict.CONVENTION and not (record.subject and record.reason):
        yield "a CONVENTION needs a subject and the conventions that explain its bytes"
    if verdict is Verdict.EXCLUDED:
        if not record.reason:
            yield "an EXCLUDED needs its reason"
        if record.story:
            yield "an EXCLUDED case has no story, because nothing was wrong"
        evidence = ("bytes_compared", "instantiations", "oracles", "digests", "written")
        ran = {name: getattr(record, name) for name in evidence}
        yield from (f"an EXCLUDED case did not run, so it has no {name}" for name, value in ran.items() if value)
    elif not verdict.judges:
        if not record.reason:
            yield f"a {verdict} needs its reason"
        if record.digests or record.offence:
            yield f"a {verdict} judges no kernel, so it has neither digests nor an offence"
    if record.times and not verdict.right:
        yield f"a {verdict} may carry no time"
    elif record.times:
        if record.device == "emulator":
            yield "device is 'emulator', which has no clock, and there are times"
        yield from _other_tflops(record.case_id, record.times)
    if record.died and verdict is not Verdict.LAUNCH_ERROR:
        yield f"a case whose process died is a LAUNCH_ERROR, not a {verdict}"
    if record.offence and (not record.subject or verdict.right or verdict is Verdict.EXCLUDED):
        yield f"an offence is a subject's, and never a {verdict}"
    if record.second_opinion and verdict is not Verdict.NONDETERMINISTIC:
        yield f"a second opinion is on runs that differ, and never on a {verdict}"
    if not set(record.digests) <= set(record.targets):
        yield "there is a digest of a target that was not run"
    if record.launched and not (record.subject and verdict.right):
        yield "only of a subject that was right is it said what it launched"
    if record.written and not record.subject:
        yield "only of a subject is it said what it wrote"
    if record.device and record.device not in _DEVICES:
        yield f"there is no device '{record.device}'"


def _without_evidence(record: Any) -> Iterator[str]:
    """Yield the evidence that the record of a right case lacks."""
    if not record.bytes_compared and not _writes_nothing(record.case_id):
        yield f"a {record.verdict} that compared no byte"
    for name in ("device", "targets", "oracles"):
        if not getattr(record, name):
            yield f"a {record.verdict} without {name}"
    if record.input != id_parts(record.case_id)[-2]:
        yield f"input is '{record.input}', and the case id names another"
    for name in ("targets", "oracles"):
        if len(set(getattr(record, name))) < len(getattr(record, name)):
            yield f"{name} has one of them twice"
    if not set(record.oracles) <= {"numpy", "torch"}:
        yield "the oracles are numpy and torch"
    fitting = _DEVICES.get(record.device, "")
    if not all(target.startswith(fitting) for target in record.targets):
        yield f"device '{record.device}' has no target {', '.join(record.targets)}"
    if record.device == "cuda" and len(record.targets) > 1:
        yield "a GPU has one target"
    if record.subject:
        if record.instantiations or record.digests:
            yield "a subject runs none of our kernels"
    elif not record.instantiations or {name.partition(" ")[0] for name in record.instantiations} != set(record.targets):
        yield f"a {record.verdict} needs an instantiation of our kernels on each of its targets"


def _other_tflops(case_id: str, times: Any) -> Iterator[str]:
    said = getattr(times, "tflops", None)
    if said is None:
        return
    try:
        case = find_case(case_id)
    except HarnessError:
        return  # the case is of another tree
    if not case.is_gemm:
        yield f"tflops is {said}, and the case has no product"
        return
    right = 2e-6 * terms(case) / times.median_us
    if abs(said - right) > 0.06 + right * _LAST_DIGIT / times.median_us:
        yield f"tflops is {said}, and that of the case's products in {times.median_us} us is {right:.1f}"


def _writes_nothing(case_id: str) -> bool:
    """Whether all outputs of a case are empty, as in a group without rows."""
    try:
        return not any(field.nbytes for field in fields_of(find_case(case_id)).values())
    except HarnessError:
        return False


def wrong_times(times: Any) -> str:
    """Say what is wrong with times; empty if nothing is. times: a `records.Times`"""
    return next(_problems_of_times(times), "")


def _problems_of_times(times: Any) -> Iterator[str]:
    q1, median, q3 = np.quantile(times.samples_us, (0.25, 0.5, 0.75))
    followed = {"median_us": median, "q1_us": q1, "q3_us": q3, "min_us": min(times.samples_us)}
    for name, value in followed.items():
        if abs(getattr(times, name) - value) > _LAST_DIGIT:
            yield f"{name} is {getattr(times, name)}, and that of the samples is {value:.3f}"
    if times.rounds != len(times.samples_us):
        yield f"{times.rounds} rounds, and {len(times.samples_us)} samples"
    if times.samples_mhz and len(times.samples_mhz) != len(times.samples_us):
        yield f"{len(times.samples_us)} samples, and the clocks of {len(times.samples_mhz)}"
    if times.exposed > times.rounds:
        yield f"{times.exposed} of {times.rounds} rounds exposed"
    if times.rounds + (times.dropped or 0) > _MOST_ROUNDS:
        yield f"dropped is {times.dropped}, of {times.rounds} more rounds, and a run takes {_MOST_ROUNDS} at most"
    # Samples have three decimals, too, so each quartile may be off by one.
    error, off = ((_RELATIVE_ERROR / median / times.rounds**0.5) * spread for spread in (q3 - q1, 2 * _LAST_DIGIT))
    if abs(times.relative_error - error) > off + 2e-6:
        yield f"relative_error is {times.relative_error}, and that of the samples {error:.6f}"
    if times.samples_mhz and times.mhz is not None and abs(times.mhz - (mhz := np.median(times.samples_mhz))) > 0.11:
        yield f"mhz is {times.mhz}, and that of the samples {mhz:.1f}"
    if times.min_us < _SHORTEST and times.launches != 0:
        yield f"min_us is {times.min_us}, and no launch takes less than {_SHORTEST} us"
    if times.roofline_percent > _MOST_PERCENT:
        yield f"roofline_percent is {times.roofline_percent}, and no cache is faster than {_MOST_PERCENT:g} % of a copy"
    coarse = _LAST_DIGIT / times.median_us + 0.06 / times.roofline_gbps
    gbps = times.bytes / times.median_us / 1e3
    quotients = [("gbps", gbps, 0.06), ("roofline_percent", 100 * gbps / times.roofline_gbps, 0.006)]
    if (times.baseline_us is None) is not (times.baseline_ratio is None):
        yield "baseline_us and baseline_ratio go together"
    elif times.baseline_us is not None:
        coarse += _LAST_DIGIT / times.baseline_us
        quotients.append(("baseline_ratio", times.baseline_us / times.median_us, 0.00006))
    if (times.second_us is None) is not (times.second_ratio is None) or (times.second_us and not times.second):
        yield "second, second_us and second_ratio go together"
    elif times.second_us is not None:
        coarse += _LAST_DIGIT / times.second_us
        quotients.append(("second_ratio", times.second_us / times.median_us, 0.00006))
    if len({each is None for each in (times.energy_uj, times.energy_error_uj, times.celsius)}) > 1:
        yield "energy_uj, energy_error_uj and celsius go together"
    for name, value, last_digit in quotients:
        if abs(getattr(times, name) - value) > coarse * value + last_digit:
            yield f"{name} is {getattr(times, name)}, and follows from the samples as {value:.4g}"


def wrong_comparison(line: Any) -> str:
    """Say what is wrong with a gate's comparison; empty if nothing is. line: a `records.GateCase`"""
    return next(_problems_of_comparison(line), "")


def _problems_of_comparison(line: Any) -> Iterator[str]:
    lengths = {len(series) for series in line.samples_us.values()}
    if line.samples_us and (set(line.samples_us) != {"head", "again", "base"} or len(lengths) > 1):
        yield "head, again and base have a sample in each round"
    if {len(line.mhz)} != (lengths or {0}):
        yield f"there are {max(lengths, default=0)} rounds, and the clocks of {len(line.mhz)}"
    if len(line.mhz) > _MOST_ROUNDS:
        yield f"there are {len(line.mhz)} rounds, and a gate takes {_MOST_ROUNDS} at most"
    if any(us < _LAST_DIGIT_GATE for series in line.samples_us.values() for us in series):
        yield "there is a sample of 0 us"
    if line.verified is None:
        if line.verdict is not Performance.SAME or line.samples_us:
            yield "a case that was not verified is SAME, by its machine code alone, and has no samples"
        if line.reason != UNCHANGED or line.memory or line.copies or line.calls or line.bytes:
            yield f"a case that was not verified was not timed, has no memory, and says so: {UNCHANGED}"
    elif line.verified is not Verdict.PASS:
        if line.verdict is not Performance.NOT_MEASURED or line.samples_us:
            yield f"a case that is {line.verified} is NOT_MEASURED and has no samples, not {line.verdict}"
    elif line.samples_us and line.verdict not in (*_JUDGED, Performance.INVALID):
        yield f"a case that is {line.verdict} has no samples"
    elif line.verdict in _JUDGED and not line.samples_us:
        yield f"a verified case that is {line.verdict} needs samples"
    if line.samples_us:
        yield from _no_copies(line)
    compared = (line.head_us, line.base_us, line.time, line.cycles, line.floor)
    if len({value is None for value in compared}) > 1:
        yield "medians, time, cycles and floor go together"
    elif line.time is None:
        if line.samples_us and line.verdict not in (Performance.INVALID, Performance.AMBIGUOUS):
            yield f"a timed case that is {line.verdict} needs medians, time, cycles and floor"
    elif line.verdict is Performance.INVALID:
        yield "an INVALID has samples, and no times"
    elif not line.samples_us:
        yield "medians without samples"
    else:
        yield from _unlike_samples(line)


def _no_copies(line: Any) -> Iterator[str]:
    if not line.copies or not line.bytes or line.calls < line.copies or line.calls % line.copies:
        said = f"{line.copies} copies of {line.bytes} bytes and {line.calls} calls"
        yield f"there are {said}, and a graph calls each of its copies equally often, once at least"
    if line.copies * line.bytes > _MOST_MEMORY:
        yield f"{line.copies} copies of {line.bytes} bytes are more than the memory of any GPU"


def _unlike_samples(line: Any) -> Iterator[str]:
    if line.time[1] > line.time[2]:
        yield "the interval of the change is upside down"
    for name, said in (("head", line.head_us), ("base", line.base_us)):
        # Only bounds can be checked, because the record does not say which rounds were dropped.
        series = np.sort(line.samples_us[name])
        kept = len(series) - line.dropped
        low = high = float(np.median(series))
        if line.dropped:
            low, high = (float(np.median(part)) for part in (series[: max(kept, 1)], series[-max(kept, 1) :]))
        if not low - _LAST_DIGIT_GATE <= said <= high + _LAST_DIGIT_GATE:
            yield f"{name}_us is {said}, and the median of the samples {low:.4f}"
    ratio = line.head_us / line.base_us
    if abs(line.time[0] - ratio) > 1e-5 + ratio * (_LAST_DIGIT_GATE / line.head_us + _LAST_DIGIT_GATE / line.base_us):
        yield f"the change of the time is {line.time[0]}, and that of the medians {ratio:.5f}"


def unmeasured(times: Mapping[str, Any], header: Mapping[str, Any]) -> str:
    """Why none of this header's runs can have taken the times, or an empty string."""
    run, part = run_of(times, header), part_of(times)
    if run is None:
        return f"its times are of commit {part[0]}, {part[1]}, and no run in its header is; take the file as it was"
    rates = [rate["gbps"] for rate in run["roofline"]]
    if times["roofline_gbps"] in rates:
        return ""
    return (
        f"roofline_gbps is {times['roofline_gbps']}, and the header has measured {', '.join(map(str, rates)) or 'none'}"
    )
