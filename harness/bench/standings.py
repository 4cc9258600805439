"""How far the timed cases of a run are from their targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.bench.roofline import TWO_KERNELS
from harness.bench.targets import Target, Targets, load
from harness.errors import UsageError
from harness.files import recipe_dir
from harness.records.records import Record
from harness.records.run_folder import EVENTS, Header
from harness.records.times import unsteady, waited
from harness.suite.suite import find_case


def two_kernels_us(header: Header) -> float:
    """The time of two empty kernels in a graph, without the events around them; 0 if the run did not measure it.

    Unlike the time of a graph, the floor holds what the events around it take, which differs between hosts.
    """
    floors = header["floors_us"]
    known = floors.get(TWO_KERNELS) and floors.get(EVENTS)
    return max(0.0, floors[TWO_KERNELS] - floors[EVENTS]) if known else 0.0


@dataclass(frozen=True)
class Standing:
    """How far a case is from its target. measured: in its unit; share: the part that is reached"""

    case_id: str
    microseconds: float
    target: Target
    measured: float

    @property
    def share(self) -> float:
        return self.target.share(self.measured)

    def row(self) -> dict[str, str]:
        """The cells of a row in a table."""
        return {
            "case": self.case_id, "us": f"{self.microseconds:,.1f}", "must": self.target.required,
            "is": self.target.shown(self.measured), "% of that": f"{100 * self.share:.0f}",
        }  # fmt: skip


def furthest(
    header: Header, records: Sequence[Record], count: int = 10, targets: Targets | None = None
) -> list[Standing]:
    """The timed cases of a run that reach the smallest part of their targets, the smallest first.

    Nothing counts as measured in a run whose machine did not hold its copy roofline, or where the GPU waited for the
    host. Cases that this checkout does not have are left out.
    """
    if not header or unsteady(header):
        return []
    gpu = header["machine"].get("gpu", "")
    try:
        targets = (targets or load()).of(gpu)
    except UsageError:
        return []
    ruled = {recipe for rule in targets.rules for recipe in rule.recipes}
    ruled |= {case.partition("/")[0] for line in targets.lines for case in line.cases}
    floor_us, found = two_kernels_us(header), []
    for record in records:
        times = record.get("times")
        recipe = record["recipe"]
        if not times or recipe not in ruled or recipe_dir(recipe) or record.get("subject") or waited(times):
            continue
        try:
            target = targets.target_of(find_case(record["case_id"]), times["bytes"])
        except UsageError:
            continue
        measured = target.measured(times, floor_us) if isinstance(target, Target) else None
        if isinstance(target, Target) and measured is not None:
            found.append(Standing(record["case_id"], times["median_us"], target, measured))
    return sorted(found, key=lambda one: (one.share, one.case_id))[:count]
