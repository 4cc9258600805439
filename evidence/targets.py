"""Which targets of the lines of `targets.yaml` a run reaches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.bench.roofline import TWO_KERNELS
from harness.bench.standings import two_kernels_us
from harness.bench.targets import Line, Targets
from harness.errors import UsageError
from harness.records.records import Record
from harness.records.run_folder import EVENTS, Header
from harness.records.times import unsteady, waited
from harness.suite.suite import find_case


@dataclass(frozen=True)
class TargetResult:
    """One case and its target.

    measured: in the unit of its line; None without a time, because of `why_not`
    energy: `0.41 ± 0.02` nanojoules an element, or an empty text if it was not measured
    """

    line: Line
    case_id: str
    measured: float | None
    microseconds: float | None = None
    why_not: str = ""
    energy: str = ""

    @property
    def holds(self) -> bool:
        return self.measured is not None and self._short <= 0

    @property
    def required(self) -> str:
        return self.line.target.required

    @property
    def reached(self) -> str:
        return f"no time: {self.why_not}" if self.measured is None else self.line.target.shown(self.measured)

    @property
    def verdict(self) -> str:
        """`holds`, or by how much it falls short."""
        if self.holds:
            return "holds"
        if self.measured is None:
            return "not measured"
        by = f"over by {self._short:.2f}" if self.line.percent is None else f"short by {self._short:.1f} points"
        return f"{by}: {self.line.limit}" if self.line.limit else by

    @property
    def _short(self) -> float:
        measured, percent = self.measured or 0.0, self.line.percent
        return measured - (self.line.launches or 0.0) if percent is None else percent - measured


def reached(targets: Targets, header: Header, records: Sequence[Record]) -> Iterator[TargetResult]:
    """Every case of every line for the run's GPU. Raises UsageError without the floors that a line of launches needs.

    Nothing counts as measured in a run whose machine did not hold its copy roofline, or where the GPU waited for the
    host.
    """
    targets = targets.of(header["machine"].get("gpu", ""))
    by_id = {record["case_id"]: record for record in records}
    floor = two_kernels_us(header)
    if not floor and any(line.launches for line in targets.lines):
        name = next((name for name in (TWO_KERNELS, EVENTS) if not header["floors_us"].get(name)), TWO_KERNELS)
        raise UsageError(f"the run has no floor of {name!r}; make its times again with `make roofline`")
    why = unsteady(header)
    for line in targets.lines:
        for case_id in targets.case_ids(line):
            yield _result(line, case_id, by_id.get(case_id), floor, why and f"the run {why}")


def _result(line: Line, case_id: str, record: Mapping[str, Any] | None, floor: float, why_not: str) -> TargetResult:
    if record is None:
        return TargetResult(line, case_id, None, why_not="it was not run")
    times = record.get("times")
    if not times:
        return TargetResult(line, case_id, None, why_not=f"{record['verdict']} {record['reason']}")
    median = times["median_us"]
    if why_not := why_not or waited(times):
        return TargetResult(line, case_id, None, median, why_not)
    measured = line.target.measured(times, floor)
    return TargetResult(line, case_id, measured, median, energy=_energy(case_id, times))


def _energy(case_id: str, times: Mapping[str, Any]) -> str:
    """Text with the whole GPU's energy, idle power included, per element of the case's input."""
    if times.get("no_energy"):
        return times["no_energy"]
    if not times.get("energy_uj"):
        return ""
    elements = find_case(case_id).elements
    energy, error = (1e3 * times[name] / elements for name in ("energy_uj", "energy_error_uj"))
    return f"{energy:.4g} ± {error:.1g} at {times['celsius']} °C"
