"""Compare subjects' outputs without a GPU, with their Triton kernels emulated, to their outputs on one.

Journals hold a digest of each field that a subject wrote in its first call, right or wrong; inputs do not depend on the
machine, so equal digests are equal bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import pandas as pd

from harness.records.records import Record
from harness.records.run_folder import RunFiles
from harness.report.tables import markdown
from harness.subjects.convention import Convention
from harness.verdict import Verdict

SHOWN = 16  # hexadecimal digits of a digest that a cell shows
LAPTOP, GPU = "laptop", "GPU"


@dataclass(frozen=True)
class Both:
    """One case of one subject, with the records of both machines."""

    subject: str
    laptop: Record
    gpu: Record

    @property
    def differing(self) -> list[str]:
        """The fields whose bytes differ."""
        one, other = self.laptop["written"], self.gpu["written"]
        return [name for name in sorted({*one, *other}) if one.get(name) != other.get(name)]

    @property
    def drawn(self) -> bool:
        """Whether the subject rounds with random bits, which each machine draws anew."""
        said = any(Convention.RANDOM_BITS in record["reason"] for record in (self.laptop, self.gpu))
        return said or "rounding=sr" in self.laptop["case_id"]

    @property
    def why(self) -> str:
        """The oracles' findings on both outputs: the conventions that explain them, or what is wrong."""
        one, other = _judged(self.laptop), _judged(self.gpu)
        said = f"both {one}" if one == other else f"{LAPTOP} {one}; {GPU} {other}"
        return f"each machine draws random bits of its own; {said}" if self.drawn else said


def name_of(run: RunFiles) -> str:
    """The subject of a run as the command line spells it; empty for our own kernels."""
    return run.about["device"].get("subject", "").partition(" (")[0]


def version_of(run: RunFiles) -> str:
    return run.about["device"]["subject"].partition(" (")[2].removesuffix(")")


def pairs(laptop: Iterable[RunFiles], gpu: Iterable[RunFiles]) -> list[Both]:
    """Every case that both machines have a digest of, by subject and in the order of the laptop's journal."""
    there = {(name_of(run), case_id): record for run in gpu for case_id, record in _written(run).items()}
    return [
        Both(name_of(run), record, there[name_of(run), case_id])
        for run in laptop
        for case_id, record in _written(run).items()
        if (name_of(run), case_id) in there
    ]


@dataclass(frozen=True)
class Alone:
    """A case with a digest on only one machine, and its result on the other."""

    subject: str
    case: str
    where: str
    elsewhere: str


def alone(laptop: Sequence[RunFiles], gpu: Sequence[RunFiles]) -> list[Alone]:
    found = []
    for where, here, others in ((LAPTOP, laptop, gpu), (GPU, gpu, laptop)):
        ends = {(name_of(run), record["case_id"]): record for run in others for record in run.records}
        for run in here:
            for case_id in _written(run):
                end = ends.get((name_of(run), case_id))
                if end is None or not end.get("written"):
                    said = f"{end['verdict']}: {end['reason']}" if end else "not run"
                    found.append(Alone(name_of(run), case_id, where, said))
    return found


def _written(run: RunFiles) -> dict[str, Record]:
    return {record["case_id"]: record for record in run.records if record.get("written")}


def summary(found: Sequence[Both], laptop: Sequence[RunFiles], gpu: Sequence[RunFiles]) -> pd.DataFrame:
    only = Counter((each.subject, each.where) for each in alone(laptop, gpu))
    rows = []
    for name in dict.fromkeys(map(name_of, (*laptop, *gpu))):
        cases = [each for each in found if each.subject == name]
        fields = sum(len(each.laptop["written"]) for each in cases)
        rows.append(
            {
                "subject": name,
                "cases on both": len(cases),
                "every byte equal": sum(not each.differing for each in cases),
                "differ, random bits": sum(bool(each.differing) and each.drawn for each in cases),
                "differ otherwise": sum(bool(each.differing) and not each.drawn for each in cases),
                "fields": fields,
                "fields equal": fields - sum(len(each.differing) for each in cases),
                **{f"on the {where} only": only[name, where] for where in (LAPTOP, GPU)},
            }
        )
    return pd.DataFrame(rows)


def table(found: Iterable[Both]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "subject": each.subject,
                "case": each.laptop["case_id"],
                f"bytes on the {LAPTOP}": _shown(each.laptop["written"]),
                f"bytes on the {GPU}": _shown(each.gpu["written"]),
                "equal": "differ" if each.differing else "equal",
                "where and why": f"{', '.join(each.differing)}: {each.why}" if each.differing else "",
            }
            for each in found
        ]
    )


def _shown(written: Mapping[str, str]) -> str:
    """A short digest of all fields, for a cell."""
    return sha256(" ".join(f"{name} {written[name]}" for name in sorted(written)).encode()).hexdigest()[:SHOWN]


def _judged(record: Record) -> str:
    if record["verdict"] == Verdict.PASS:
        return "as the oracles"
    if record["verdict"] == Verdict.CONVENTION:
        return record["reason"]
    return f"{record['verdict']}: {record['reason']}"


def machines(laptop: Sequence[RunFiles], gpu: Sequence[RunFiles], targets: Mapping[str, str]) -> pd.DataFrame:
    """A row for each run: its machine and versions.

    targets: by subject, the architecture that its Triton kernels were emulated as
    """

    def place(run: RunFiles) -> str:
        gpu = run.about["device"].get("gpu")
        target = targets.get(name_of(run))
        return gpu or (f"{LAPTOP}, Triton emulated as {target}" if target else f"{LAPTOP}, operations of torch")

    return pd.DataFrame(
        [
            {
                "subject": name_of(run),
                "on": place(run),
                "versions": version_of(run),
                "sources": run.about["sources"][:16],
                "seconds": f"{sum(record['seconds'] for record in run.records):.0f}",
            }
            for run in (*laptop, *gpu)
        ]
    )


def page(command: str, laptop: Sequence[RunFiles], gpu: Sequence[RunFiles], targets: Mapping[str, str]) -> str:
    """The comparison in Markdown. laptop, gpu: a run for each subject"""
    found = pairs(laptop, gpu)
    parts = [
        "# Subjects on a laptop and on a GPU, byte for byte",
        f"Made by `{command}` from runs of `harness verify --subject`, one for each subject and machine. Without a GPU "
        "a subject's kernels of Triton run on the emulator, with all checks. A digest (SHA-256) is of what the subject "
        "wrote in its first call, padding included, whether or not it is what the oracles expect; a cell has the first "
        f"{SHOWN} digits of one of all fields. Cases whose bytes differ have the fields that do, and what the oracles "
        "found in the bytes of each machine.",
        markdown(summary(found, laptop, gpu)),
        markdown(machines(laptop, gpu, targets)),
        "Seconds are of all cases, each run several times and judged by both oracles, with what Triton compiled.",
        "## Cases",
        markdown(table(found)),
    ]
    only = alone(laptop, gpu)
    if only:
        rows = [
            {"subject": each.subject, "case": each.case, "written on": each.where, "on the other": each.elsewhere}
            for each in only
        ]
        parts += ["## On one of the two", markdown(pd.DataFrame(rows))]
    return "\n\n".join(parts) + "\n"
