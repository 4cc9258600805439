"""The table `results/mutants.md` and `.csv`: which case caught each mutant, and the cause that was diagnosed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from harness.report.tables import markdown, write_table
from harness.studies.mutants.catalogue import Mutant
from harness.studies.mutants.hunt import FULL, SMOKE, Catch

_LEAST_BY_SMOKE, _LEAST_NAMED = 0.95, 0.80


class Counts(NamedTuple):
    """Counts of mutants: caught by the smoke sets, caught at all, and with the right cause."""

    mutants: int
    by_smoke: int
    caught: int
    named: int

    @classmethod
    def of(cls, hunted: Sequence[tuple[Mutant, Catch]]) -> Counts:
        return cls(
            len(hunted),
            sum(catch.of_set == SMOKE for _, catch in hunted),
            sum(bool(catch.by) for _, catch in hunted),
            sum(is_named(mutant, catch) for mutant, catch in hunted),
        )

    @property
    def enough(self) -> bool:
        """Whether all were caught, enough of them by the smoke sets and with the right cause."""
        return (
            self.caught == self.mutants
            and self.by_smoke >= _LEAST_BY_SMOKE * self.mutants
            and self.named >= _LEAST_NAMED * self.mutants
        )

    def __str__(self) -> str:
        share = f"{100 * self.by_smoke / self.mutants:.1f} %", f"{100 * self.named / self.mutants:.1f} %"
        return (
            f"{self.caught} of {self.mutants} mutants are caught, {self.by_smoke} ({share[0]}) by the smoke sets; "
            f"the cause that is named is the right one for {self.named} ({share[1]})"
        )


def is_named(mutant: Mutant, catch: Catch) -> bool:
    """Whether the mutant's cause is the one that was named, or one of those that were said to fit."""
    return bool(catch.by) and mutant.cause in catch.cause.split(", ")


def write(hunted: Sequence[tuple[Mutant, Catch]], stem: Path, command: str, beside: Sequence[str] = ()) -> list[Path]:
    """Write the table. beside: paragraphs to write after the catalogue's"""
    table = pd.DataFrame([_row(mutant, catch) for mutant, catch in hunted])
    beyond = [(mutant, catch) for mutant, catch in hunted if catch.of_set != SMOKE]
    misnamed = [(mutant, catch) for mutant, catch in hunted if not is_named(mutant, catch)]
    text = [
        "# Mutants",
        "One line of a kernel or of an oracle is made wrong at a time "
        "([harness/studies/mutants](../harness/studies/mutants)), and the suites run on the emulator until a case is "
        "not green: the smoke sets, then what fits it of the full sets. "
        f"`{command}` makes this table. {Counts.of(hunted)}.",
        _by_file(hunted),
    ]
    if beyond:
        text += ["## Not caught by the smoke sets", markdown(pd.DataFrame([_missed_by_smoke(*one) for one in beyond]))]
    if misnamed:
        text += ["## Called something else", markdown(pd.DataFrame([_misnamed(*one) for one in misnamed]))]
    text += ["## All", markdown(table.drop(columns=["reason", "set"]))]
    return write_table(stem.parent, stem.name, table, [*text, *beside])


def _by_file(hunted: Sequence[tuple[Mutant, Catch]]) -> str:
    themes = dict.fromkeys(mutant.theme for mutant, _ in hunted)
    groups = {theme: [one for one in hunted if one[0].theme == theme] for theme in themes}
    rows = [{"about": theme, **Counts.of(found)._asdict()} for theme, found in groups.items()]
    return markdown(pd.DataFrame(rows).rename(columns={"by_smoke": "caught by smoke", "named": "cause named"}))


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
        "named": "yes" if is_named(mutant, catch) else "no",
        "reason": catch.reason,
    }


def _missed_by_smoke(mutant: Mutant, catch: Catch) -> dict[str, object]:
    by = f"{catch.by}, of the {FULL} set" if catch.by else f"nobody, of {catch.cases} cases"
    return {"mutant": mutant.name, "file": mutant.file, "caught by": by, "verdict": catch.verdict or "-"}


def _misnamed(mutant: Mutant, catch: Catch) -> dict[str, object]:
    called = catch.cause or "-"
    return {"mutant": mutant.name, "is": mutant.cause, "was called": called, "verdict": catch.verdict or "-"}
