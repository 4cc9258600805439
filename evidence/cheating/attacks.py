"""Run every cheat against the harness, and check that it is rejected under its own name.

`python -m evidence attack` prints and keeps the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from evidence.cheating import cheats
from evidence.cheating.cheats import CHEATS, Cheat
from harness.bench.gpu_timer import Clock, pedantic
from harness.device.device import Device
from harness.errors import Exit
from harness.files import write_text
from harness.report.tables import markdown
from harness.subjects.audit.bench import SubjectBench
from harness.subjects.audit.verify import audit
from harness.subjects.device import SubjectDevice, with_subject
from harness.subjects.process import Child
from harness.subjects.subject import Subject, start
from harness.suite.suite import find_case
from harness.verdict import Result, Verdict

FILE = "attacks.md"
CASE = "swizzle/default/1024x2048/normal/{mode}"


@dataclass(frozen=True)
class Attack:
    """One cheat on one machine. where: the machine; result: None if the cheat needs a GPU and there is none"""

    cheat: type[Cheat]
    where: str
    result: Result | None

    @property
    def repelled(self) -> bool:
        """Whether the cheat was named correctly, or the honest subject passed."""
        if self.result is None or self.cheat.violation is None:
            return self.result is None or self.result.verdict is Verdict.PASS
        return self.result.offence == self.cheat.violation

    @property
    def word(self) -> str:
        """Text such as `UNWRITTEN skips_work` or `PASS`, or that it needs a GPU."""
        if self.result is None:
            return "needs a GPU"
        word = f"{self.result.verdict} {self.result.offence}".strip()
        timed = ", timed" if self.result.times else ""
        return f"{word}{timed}" if self.repelled else f"{word}{timed}: NOT CAUGHT"


def attacks(device: Device, clock: Clock | None = None, only: Sequence[type[Cheat]] = CHEATS) -> Iterator[Attack]:
    """Run all cheats on one device, after an honest subject. clock: a GPU's; without one nothing is timed"""
    gpu = device.name == "cuda"
    for cheat in (Cheat, *only):
        where = device.identity().get("gpu", "CPU")
        if not gpu and (cheat.gpu or cheat.timed):
            yield Attack(cheat, where, None)
            continue
        against = with_subject(device, subject_of(cheat))
        yield Attack(cheat, where, run(against, cheat, clock))
        against.child.end()


def subject_of(cheat: type[Cheat]) -> Subject:
    name = f"{cheats.__name__}:{cheat.__name__}"
    return start(name, Child(name))


def run(device: SubjectDevice, cheat: type[Cheat], clock: Clock | None) -> Result:
    case = find_case(CASE.format(mode=cheat.mode))
    result = audit(case, device)
    if clock is None or not result.verdict.right:
        return result
    # A rate beyond any memory, so that no cheat is rejected for an impossible time before it is named.
    return SubjectBench(device, clock, roofline_gbps=1e5).time(case, result, partial(pedantic, clock))


def outcome(found: Sequence[Attack]) -> Exit:
    """Red unless every cheat that was run was caught by its name, and the honest subject was not."""
    return Exit.CLEAN if all(each.repelled for each in found) else Exit.BYTES_DIFFER


def table(found: Sequence[Attack]) -> pd.DataFrame:
    rows: dict[str, dict[str, str]] = {}
    for each in found:
        name = each.cheat.__name__ if each.cheat is not Cheat else "(an honest subject)"
        does = (each.cheat.__doc__ or "").partition("\n")[0] if each.cheat is not Cheat else "does its work"
        row = rows.setdefault(name, {"subject": name, "does": does, "must be": each.cheat.violation or Verdict.PASS})
        row[each.where] = each.word
    return pd.DataFrame(rows.values())


def write(command: str, found: Sequence[Attack], into: Path) -> Path:
    """Write attacks.md, the table and the reason given for each cheat; return its path."""
    reasons = [
        f"- {each.where}, {each.cheat.__name__}, {each.cheat.mode}: {each.result.reason}"
        for each in found
        if each.result is not None and each.result.reason
    ]
    ran = [each for each in found if each.result is not None and each.cheat.violation]
    text = [
        "# Attacks on the measurement",
        f"Made by `{command}`. Subjects that cheat, on `{CASE.format(mode='MODE')}`. "
        f"{sum(each.repelled for each in ran)} of {len(ran)} runs of a cheat were rejected by the name they must be.",
        markdown(table(found)),
        "## What is said of each",
        "\n".join(reasons),
        LIMITS,
    ]
    path = into / FILE
    write_text(path, "\n\n".join(text) + "\n")
    return path


LIMITS = """\
## What this does not promise

A subject runs in a process of its own, with the rights of the user who runs the harness. It may do to that process what
it likes, but nothing holds it from doing to other processes and files of the user what the system lets it: have a user
or a container of its own run what nobody has read. It may contain a copy of an oracle, which is compared with itself
then. Where rows may not change places, timed rounds go round a few sets of data, which it could know by their contents,
and each field that depends on places, such as one of random bits, is compared in a sample of the rounds only."""
