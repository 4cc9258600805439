"""Whether times of two runs can be compared at all, and what to allow for where their hosts differ.

An eager time is taken between two events, and what those alone take is 1.3 us on some hosts and 2.9 us on others with
the same GPU and driver (H200, 2026-11-27). Each run measures it, and eager times are compared as if it were the
baseline's. A time of a graph holds no such constant: its events stand around many calls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

from harness.errors import UsageError
from harness.records.parts import part_of, run_of
from harness.records.records import Record
from harness.records.run_folder import EVENTS, Header
from harness.records.steady import DRIFT, unsteady
from harness.verdict import Judgement

EVENTS_APART_US = 2.5  # us; the largest allowance for events; measured hosts take 1.3 to 2.9 us

_MACHINE_KEYS = ("gpu", "multiprocessors", "l2_bytes", "power_limit_w", "subject", "driver", "runtime", "nvrtc")
_HEADER_KEYS = ("compile_flags", "clock", "method")


@dataclass(frozen=True)
class Beside:
    """A run beside the one that measured a part of the baseline.

    refused: why they cannot be compared; then_us, now_us: in each run, the time between two events with nothing between
    them, 0 if not measured
    """

    refused: str = ""
    then_us: float = 0.0
    now_us: float = 0.0

    @property
    def eager_refused(self) -> str:
        """Why their eager times cannot be compared although others may be, or an empty string."""
        for whose, events_us in (("the baseline", self.then_us), ("this run", self.now_us)):
            if not events_us:
                # Without this check a run's header could hide how much slower the run is.
                return (
                    f"the header of {whose} has no time of two events with nothing between them ('{EVENTS}' in "
                    "floors_us), which its eager times hold; time its suites again"
                )
        if abs(self.shift_us) > EVENTS_APART_US:
            return (
                f"two events with nothing between them took {self.then_us:.2f} us in the baseline and "
                f"{self.now_us:.2f} in this run, more than {EVENTS_APART_US} us apart, which hosts are not; time its "
                "suites again"
            )
        return ""

    @property
    def shift_us(self) -> float:
        """The microseconds to add to an eager time of this run, so that its events count as long as the baseline's."""
        return self.then_us - self.now_us

    def said(self, judgement: Judgement) -> Judgement:
        """Add to an eager case's judgement what was allowed for events."""
        if abs(self.shift_us) < 0.0005 or judgement.change is None:
            return judgement
        said = f"; two events took {self.then_us:.2f} us then and {self.now_us:.2f} now, which is allowed for"
        return replace(judgement, reason=judgement.reason + said)


def beside(new: Header, stored: Header) -> Beside:
    """Compare the headers of a run and of the run that measured a part of the baseline."""
    return Beside(incomparable(new, stored), *(header["floors_us"].get(EVENTS, 0.0) for header in (stored, new)))


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


def incomparable(new: Header, stored: Header) -> str:
    """The reason why times of two runs cannot be compared, or an empty string."""
    others = differing(new, stored)
    if others:
        return f"not comparable with the baseline: {', '.join(others)}"
    for name, header in (("this run", new), ("the baseline", stored)):
        problem = unsteady(header)
        if problem:
            return f"{name} {problem}"
    now, then = roofline(new), roofline(stored)
    if abs(now / then - 1) > DRIFT:
        return f"the copy roofline is {now / then - 1:+.1%} off the baseline's ({then:,.0f} then, {now:,.0f} GB/s now)"
    return ""


def differing(new: Header, stored: Header) -> list[str]:
    """The facts that two runs must share to be compared and that differ: `driver (13000 then, 12080 now)`."""
    found = [
        f"{key} ({stored['machine'].get(key)} then, {new['machine'].get(key)} now)"
        for key in _MACHINE_KEYS
        if new["machine"].get(key) != stored["machine"].get(key)
    ]
    return found + [
        f"{key} ({stored[key]!r} then, {new[key]!r} now)" for key in _HEADER_KEYS if new[key] != stored[key]
    ]


def roofline(header: Header) -> float:
    """The copy roofline of a run, GB/s, over all its measurements."""
    return median(entry["gbps"] for entry in header["roofline"])
