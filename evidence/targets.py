"""The targets of `targets.yaml`, and which of them a run reaches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from harness.bench.roofline import TWO_KERNELS
from harness.errors import SuiteError, UsageError
from harness.files import PACKAGE
from harness.ground.yaml_lines import read
from harness.records.records import Record
from harness.records.run_folder import EVENTS, Header
from harness.records.times import unsteady, waited
from harness.suite.suite import find_case

PATH = PACKAGE / "bench" / "targets.yaml"
INPUT_AND_MODE = "normal/graph"


class Line(BaseModel):
    """A target for some cases.

    cases: recipe, flags and shape of each; `*` is the shape of the table
    percent: of the copy, at least; launches: times two empty kernels, at most. One of the two is given
    limit: the exhausted resource where it falls short
    gpus: the GPUs that it is for, as in `NVIDIA H200`; empty for all
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kernel: str = Field(min_length=1)
    cases: tuple[str, ...] = Field(min_length=1)
    percent: float | None = Field(None, gt=0)
    launches: float | None = Field(None, gt=0)
    limit: str = ""
    gpus: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_of_both(self) -> Line:
        if (self.percent is None) == (self.launches is None):
            raise ValueError("give one of percent and launches")
        return self


class Targets(BaseModel):
    """All of `targets.yaml`. shape: replaces `*` in a case"""

    model_config = ConfigDict(extra="forbid", frozen=True)

    shape: str
    lines: tuple[Line, ...] = Field(min_length=1)

    def of(self, gpu: str) -> Targets:
        """The lines for a GPU. Raises UsageError if there are none."""
        if lines := tuple(line for line in self.lines if not line.gpus or gpu in line.gpus):
            return self.model_copy(update={"lines": lines})
        named = ", ".join(sorted({name for line in self.lines for name in line.gpus}))
        raise UsageError(f"no line of {PATH.name} is for {gpu}; all are for {named}")

    def case_ids(self, line: Line) -> list[str]:
        return [f"{case.replace('/*', f'/{self.shape}')}/{INPUT_AND_MODE}" for case in line.cases]


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
        return f"{self.line.launches:g} x two kernels" if self.line.percent is None else f"{self.line.percent:g} %"

    @property
    def reached(self) -> str:
        if self.measured is None:
            return f"no time: {self.why_not}"
        return f"{self.measured:.2f} x two kernels" if self.line.percent is None else f"{self.measured:.1f} %"

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


def load(path: Path = PATH) -> Targets:
    """Read the table. Raises SuiteError with the line of the first mistake."""
    document = read(path, path.name)
    try:
        return Targets.model_validate(document.data)
    except ValidationError as error:
        first = error.errors()[0]
        route = tuple(first["loc"])
        raise SuiteError(document.where(*route), f"{'.'.join(map(str, route))}: {first['msg'].lower()}") from None


def reached(targets: Targets, header: Header, records: Sequence[Record]) -> Iterator[TargetResult]:
    """Every case of every line for the run's GPU. Raises UsageError without the floors that a line of launches needs.

    Nothing counts as measured in a run whose machine did not hold its copy roofline, or where the GPU waited for the
    host.
    """
    targets = targets.of(header["machine"].get("gpu", ""))
    by_id = {record["case_id"]: record for record in records}
    floors = header["floors_us"]
    # Unlike the time of a graph, the floor holds what the events around it take, which differs between hosts.
    missing = [name for name in (TWO_KERNELS, EVENTS) if not floors.get(name)]
    floor = floors.get(TWO_KERNELS, 0.0) - floors.get(EVENTS, 0.0)
    if (missing or floor <= 0) and any(line.launches for line in targets.lines):
        name = missing[0] if missing else TWO_KERNELS
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
    measured = times["roofline_percent"] if line.percent is not None else median / floor
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
