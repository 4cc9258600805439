"""The table `results/mutants.md` and `.csv`: which case caught each mutant, and the cause that was diagnosed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from evidence.mutants.catalogue import Mutant
from evidence.mutants.hunt import FULL, SMOKE, Catch
from harness.report.tables import markdown, write_table
from harness.verify.diagnosis.classify import PARTIAL, REARRANGED, REPLAYED

_LEAST_BY_SMOKE, _LEAST_NAMED = 0.95, 0.75


class Counts(NamedTuple):
    """Counts of mutants: caught by the smoke sets, caught at all, and how their cause was told.

    named: with the right one, among others that fit, too; left_open: with none; by_fact: with something else that the
    mistake does, as a race or what was not written; misnamed: with a wrong one
    """

    mutants: int
    by_smoke: int
    caught: int
    named: int
    left_open: int
    by_fact: int
    misnamed: int

    @classmethod
    def of(cls, hunted: Sequence[tuple[Mutant, Catch]]) -> Counts:
        return cls(
            len(hunted),
            sum(catch.of_set == SMOKE for _, catch in hunted),
            sum(bool(catch.by) for _, catch in hunted),
            *(sum(told(mutant, catch) == way for mutant, catch in hunted) for way in _WAYS),
        )

    @property
    def enough(self) -> bool:
        """Whether all were caught, enough by the smoke sets; enough have the right cause, and none a wrong one."""
        return (
            self.caught == self.mutants
            and self.by_smoke >= _LEAST_BY_SMOKE * self.mutants
            and self.named >= _LEAST_NAMED * self.mutants
            and not self.misnamed
        )

    def __str__(self) -> str:
        share = f"{100 * self.by_smoke / self.mutants:.1f} %", f"{100 * self.named / self.mutants:.1f} %"
        return (
            f"{self.caught} of {self.mutants} mutants are caught, {self.by_smoke} ({share[0]}) by the smoke sets; "
            f"the right cause is on the screen of {self.named} ({share[1]}), {self.left_open} leave it open, "
            f"{self.by_fact} show something else that the mistake does, and {self.misnamed} name a wrong one"
        )


def told(mutant: Mutant, catch: Catch) -> str:
    """How the cause of a mutant was told: right, as the only one or among those that fit; not at all; by a fact that is
    no cause, as the emulator's findings are; or wrong.
    """
    if catch.by and mutant.cause in catch.cause.split(", "):
        return "right"
    if catch.left_open or not catch.cause:
        return "open"
    return "wrong" if catch.cause in _CAUSES else "fact"


_WAYS = ("right", "open", "fact", "wrong")
_CAUSES = {each.name for each in (*REPLAYED, *REARRANGED, *PARTIAL)}


def write(hunted: Sequence[tuple[Mutant, Catch]], stem: Path, command: str, beside: Sequence[str] = ()) -> list[Path]:
    """Write the table. beside: paragraphs to write after the catalogue's"""
    table = pd.DataFrame([_row(mutant, catch) for mutant, catch in hunted])
    beyond = [(mutant, catch) for mutant, catch in hunted if catch.of_set != SMOKE]
    others = [(mutant, catch) for mutant, catch in hunted if told(mutant, catch) != "right"]
    text = [
        "# Mutants",
        "One line of a kernel or of an oracle is made wrong at a time "
        "([evidence/mutants](../evidence/mutants)), and the suites run on the emulator until a case is "
        "not green: the smoke sets, then what fits it of the full sets. "
        f"`{command}` makes this table. {Counts.of(hunted)}.",
        _by_file(hunted),
    ]
    if beyond:
        text += ["## Not caught by the smoke sets", markdown(pd.DataFrame([_missed_by_smoke(*one) for one in beyond]))]
    if others:
        text += [
            "## Cause left open, another fact, or a wrong cause",
            markdown(pd.DataFrame([_otherwise(*one) for one in others])),
        ]
    text += ["## All", markdown(table.drop(columns=["reason", "set"]))]
    return write_table(stem.parent, stem.name, table, [*text, *beside])


def _by_file(hunted: Sequence[tuple[Mutant, Catch]]) -> str:
    themes = dict.fromkeys(mutant.theme for mutant, _ in hunted)
    groups = {theme: [one for one in hunted if one[0].theme == theme] for theme in themes}
    rows = [{"about": theme, **Counts.of(found)._asdict()} for theme, found in groups.items()]
    names = {"by_smoke": "caught by smoke", "named": "right cause", "left_open": "left open"}
    names |= {"by_fact": "another fact", "misnamed": "wrong cause"}
    return markdown(pd.DataFrame(rows).rename(columns=names))


def _row(mutant: Mutant, catch: Catch) -> dict[str, object]:
    return {
        "mutant": mutant.name,
        "story": mutant.story + (f" (NUMERICS {mutant.numerics})" if mutant.numerics else ""),
        "file": mutant.file,
        "caught by": catch.by or "nobody",
        "set": catch.of_set or "-",
        "verdict": catch.verdict or "-",
        "wrong bytes": catch.wrong_bytes or "-",
        "seconds": catch.seconds,
        "cause": catch.cause or "-",
        "told": told(mutant, catch),
        "reason": catch.reason,
    }


def _missed_by_smoke(mutant: Mutant, catch: Catch) -> dict[str, object]:
    by = f"{catch.by}, of the {FULL} set" if catch.by else f"nobody, of {catch.cases} cases"
    return {"mutant": mutant.name, "file": mutant.file, "caught by": by, "verdict": catch.verdict or "-"}


def _otherwise(mutant: Mutant, catch: Catch) -> dict[str, object]:
    way = {"told": told(mutant, catch), "on the screen": catch.cause or "-", "verdict": catch.verdict or "-"}
    return {"mutant": mutant.name, "is": mutant.cause, **way}
