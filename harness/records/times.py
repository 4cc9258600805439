"""The times of a file: the run that each is of, by its commit and date, and what makes times worthless."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.files import SUITES, is_file

LOOP = "loop"  # begins the name of a second opponent that is a loop over the tensors of a group
Key = tuple[str | None, str | None]


def part_of(named: Mapping[str, Any]) -> Key:
    """Commit and date in a run's header, or of the run that times name; None for both if they name none."""
    return named.get("commit"), named.get("date")


def parts_of(header: Mapping[str, Any]) -> dict[Key, dict[str, Any]]:
    """The entries for each run in the header of a file of times; empty if the file is of one run."""
    return {part_of(part): part for part in header.get("parts", ())}


def run_of(times: Mapping[str, Any], header: Mapping[str, Any]) -> dict[str, Any] | None:
    """The header of the run that took these times, taken from the file's header; None if it has no such run."""
    parts, part = parts_of(header), part_of(times)
    if part in parts:
        return {**header, **parts[part]}
    return None if parts or part not in ((None, None), part_of(header)) else dict(header)


def of_the_user(record: Mapping[str, Any], part: Mapping[str, Any], about: Mapping[str, Any]) -> bool:
    """Whether a record's recipe is not in the suites and its run used recipes from another folder.

    part: the run's entry in the header of times, or the header of a file of one run; about: the first line of its
        journal, empty without one
    """
    recipe = record["recipe"]
    if is_file(SUITES / f"{recipe}.yaml"):
        return False
    sealed = {Path(name).name for name in about.get("sealed", ()) if not name.startswith(("harness/", "suites/"))}
    words = {word.partition("=")[0] for word in part.get("command", "").split()}
    of_recipe = {f"{recipe}.yaml", f"{recipe}.py"}  # a pipeline has the first alone
    return bool(of_recipe & sealed) or "--recipe-dir" in words


DRIFT = 0.05  # largest change of the copy roofline, within a run or between two, under which times are comparable
EXPOSED = 0.25  # largest share of rounds in which the GPU may have waited for the host
ONE_HOST_US = 0.1  # what two events take differs by less on one host, by 1.7 between hosts (H200, results/NOTES.md)


def unsteady(header: Mapping[str, Any]) -> str:
    """The reason why the times of one run are not comparable among themselves, or an empty string."""
    entries = header["roofline"]
    if not entries or entries[-1]["point"] != "end":
        return "did not come to its end, so nothing shows that the machine held its copy roofline"
    rates = [entry["gbps"] for entry in entries]
    if max(rates) / min(rates) - 1 > DRIFT:
        return f"saw its own copy roofline move from {min(rates):,.0f} to {max(rates):,.0f} GB/s"
    return ""


def waited(times: Mapping[str, Any]) -> str:
    """The reason why a case's times hold its host's latency, or an empty string."""
    if times["exposed"] > EXPOSED * times["rounds"]:
        return f"the GPU waited for the host in {times['exposed']} of {times['rounds']} rounds"
    return ""
