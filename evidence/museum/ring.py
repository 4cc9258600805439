"""Three rings of copies that are right and tricky, and mutants of each with synchronisation dropped or moved.

A ring is a `.cu` file of `rings`, which begins as an exhibit does; `mutants.yaml` beside it has the mutants.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from evidence.museum.exhibit import Kernels, read_kernels
from evidence.museum.run import Finding, compiled, find
from evidence.mutants.places import change_of
from harness.errors import UsageError
from harness.ground.yaml_lines import read
from harness.report.tables import markdown, write_table
from ptx_emulator.races.borne import ALL, NO_INVAL

FOLDER = Path(__file__).parent / "rings"
MUTANTS = "mutants.yaml"
SHARE = 0.95  # share of a ring's mutants that must be caught
NOTHING, HARMLESS = "nothing", "nothing: it is right, too"


class Mutant(BaseModel):
    """A mutant of a ring.

    change: of text that occurs once in the ring (`places.change_of`); harmless: whether what it makes is right, too
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    change: str = Field(min_length=1)
    harmless: bool = False


@dataclass(frozen=True)
class Ring:
    """kernels: the original, which is right"""

    kernels: Kernels
    mutants: Sequence[Mutant]

    def changed(self, mutant: Mutant) -> Kernels:
        """The ring with one mutant, whose other lines keep their numbers. Raises UsageError if it does not fit."""
        source, name = self.kernels.source, self.kernels.name
        right, wrong, _ = change_of(mutant.change)
        if (count := source.count(right)) != 1:
            raise UsageError(f"{name}.cu has what mutant '{mutant.name}' changes {count} times; it must be there once")
        return replace(
            self.kernels, source=source.replace(right, wrong + "\n" * (right.count("\n") - wrong.count("\n")))
        )


@dataclass(frozen=True)
class Tried:
    """The result for a ring or one of its mutants.

    name: the mutant's, empty for the original; right: whether it is right
    """

    ring: str
    name: str
    right: bool
    finding: Finding


@cache
def rings() -> tuple[Ring, ...]:
    """All rings, by name. Raises UsageError or SuiteError for one that cannot be read."""
    document = read(FOLDER / MUTANTS, MUTANTS)
    return tuple(
        Ring(read_kernels(path), tuple(document.each(Mutant, path.stem))) for path in sorted(FOLDER.glob("*.cu"))
    )


def try_all(ring: Ring) -> Iterator[Tried]:
    """Run the original, then each mutant, in several orders of warps.

    What GPUs bear is reported, but for mbarriers that nobody ends, as no ring does.
    """
    strict = ALL - {NO_INVAL}
    yield Tried(ring.kernels.name, "", True, find(ring.kernels, compiled(ring.kernels), strict))
    for mutant in ring.mutants:
        changed = ring.changed(mutant)
        yield Tried(ring.kernels.name, mutant.name, mutant.harmless, find(changed, compiled(changed), strict))


def enough(tried: Sequence[Tried]) -> bool:
    """Whether no original and no harmless mutant is accused, and of each ring's other mutants `SHARE` are caught."""
    found = score(tried)
    return not found["right, but accused"].any() and bool((found["caught"] >= SHARE * found["mutants"]).all())


def table(tried: Sequence[Tried]) -> pd.DataFrame:
    """One row for each mutant. line: the ring's; says: the fault, with the line of the other access"""
    return pd.DataFrame(
        {
            "ring": each.ring,
            "mutant": each.name,
            "caught by": each.finding.check or (HARMLESS if each.right else NOTHING),
            "line": each.finding.where,
            "says": each.finding.sentence.partition("; k, block")[0],
        }
        for each in tried
        if each.name
    )


def score(tried: Sequence[Tried]) -> pd.DataFrame:
    """One row for each ring, which counts its original and harmless changes as right."""
    rows = []
    for ring in dict.fromkeys(each.ring for each in tried):
        right, wrong = (
            [each for each in tried if each.ring == ring and each.right is is_right] for is_right in (True, False)
        )
        accused, caught = (sum(bool(each.finding.check) for each in several) for several in (right, wrong))
        rows.append(
            {"ring": ring, "right": len(right), "right, but accused": accused, "mutants": len(wrong), "caught": caught}
        )
    return pd.DataFrame(rows)


def write(command: str, tried: Sequence[Tried], folder: Path) -> list[Path]:
    """Write rings.md and rings.csv; their paths. command: that made them"""
    rows = table(tried)
    text = [
        "# Rings",
        "Three kernels hand slots of shared memory round between threads and asynchronous copies "
        "([mutants.yaml](../evidence/museum/rings/mutants.yaml)). In each mutant one synchronisation is "
        "dropped or moved; it runs on the emulator in four orders of warps until something is wrong. "
        f"Made by `{command}`; lines are those of the ring.",
        markdown(score(tried)),
        markdown(rows),
    ]
    return write_table(folder, "rings", rows, text)
