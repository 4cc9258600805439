"""What makes times worthless, whatever they are compared with: an unsteady machine, or a host that came late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
