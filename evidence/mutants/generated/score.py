"""The score of generated mutants, by operator and by file, and the survivors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from evidence.mutants.catalogue import Mutant
from evidence.mutants.generated.change import CONCURRENCY, OPERATORS
from evidence.mutants.hunt import SMOKE, Catch
from harness.report.tables import markdown

HEADING = "# Generated mutants"
LEAST_BY_SMOKE, LEAST_CAUGHT, LEAST_CONCURRENCY = 0.90, 0.95, 0.95


class Score(NamedTuple):
    """Counts of mutants: drawn, discarded, and of the rest, caught by the smoke sets and caught at all."""

    drawn: int
    discarded: int
    by_smoke: int
    caught: int

    @classmethod
    def of(cls, table: pd.DataFrame) -> Score:
        return cls(
            len(table),
            int((table["discarded"] != "").sum()),
            int((table["set"] == SMOKE).sum()),
            int((table["caught by"] != "").sum()),
        )

    @property
    def mutants(self) -> int:
        """The mutants that change behaviour, as far as is known."""
        return self.drawn - self.discarded

    def share(self, count: int) -> float:
        return count / self.mutants if self.mutants else 1.0

    def row(self) -> dict[str, object]:
        shares = [f"{100 * self.share(count):.1f} %" if self.mutants else "-" for count in (self.by_smoke, self.caught)]
        return {
            "drawn": self.drawn,
            "discarded": self.discarded,
            "mutants": self.mutants,
            "caught by smoke": self.by_smoke,
            "caught": self.caught,
            "score of smoke": shares[0],
            "score": shares[1],
        }

    def __str__(self) -> str:
        return (
            f"{self.drawn} were drawn and {self.discarded} discarded; of the other {self.mutants}, {self.by_smoke} "
            f"({100 * self.share(self.by_smoke):.1f} %) are caught by the smoke sets, and {self.caught} "
            f"({100 * self.share(self.caught):.1f} %) at all"
        )


def table_of(hunted: Sequence[tuple[Mutant, Catch]], command: str) -> pd.DataFrame:
    """A row for each mutant. command: the one that makes the table"""
    return pd.DataFrame([_row(mutant, catch) for mutant, catch in hunted]).assign(command=command)


def enough(table: pd.DataFrame) -> bool:
    """Whether enough mutants are caught, overall and of the concurrency operators."""
    score, concurrency = Score.of(table), Score.of(table[table["operator"].isin(CONCURRENCY)])
    return (
        score.share(score.by_smoke) >= LEAST_BY_SMOKE
        and score.share(score.caught) >= LEAST_CAUGHT
        and concurrency.share(concurrency.by_smoke) >= LEAST_CONCURRENCY
    )


def read(path: Path) -> pd.DataFrame | None:
    """Read a table of `table_of` from its CSV; None if there is no such file."""
    return pd.read_csv(path, keep_default_na=False) if path.is_file() else None


def section(table: pd.DataFrame) -> list[str]:
    """Paragraphs and tables, as Markdown."""
    concurrency = table[table["operator"].isin(CONCURRENCY)]
    sequential = table[~table["operator"].isin(CONCURRENCY)]
    parts = {"sequential": sequential, "concurrency": concurrency, "all": table}
    others = sorted(set(table["operator"]) - set(OPERATORS))
    operators = {name: table[table["operator"] == name] for name in (*OPERATORS, *others)}
    files = {name: table[table["file"] == name] for name in sorted(set(table["file"]))}
    text = [
        HEADING,
        "One mistake of a kind at a place, over all kernels and oracles, drawn by a seed: every file and every "
        "operator is met. What an oracle only refuses, or tells the diagnosis alone, is no place: no case that passes "
        "shows it. None else is left out because it is hard to catch. Discarded are those that do not compile, "
        "those whose code is the same in every instantiation, and those proved equivalent in "
        "[equivalent.yaml](../evidence/mutants/generated/equivalent.yaml). "
        f"`{table['command'].iloc[0]}` makes these tables. {Score.of(table)}.",
        _scores("about", parts),
        "## By operator",
        _scores("operator", operators),
        "## By file",
        _scores("file", files),
    ]
    for title, rows in (("Survivors", _survivors(table)), ("Discarded", _discarded(table))):
        if len(rows):
            text += [f"## {title}", markdown(rows)]
    return text


def _scores(title: str, parts: dict[str, pd.DataFrame]) -> str:
    rows = [{title: name, **Score.of(part).row()} for name, part in parts.items() if len(part)]
    return markdown(pd.DataFrame(rows))


def _survivors(table: pd.DataFrame) -> pd.DataFrame:
    left = table[(table["discarded"] == "") & (table["set"] != SMOKE)]
    return left[["operator", "place", "right", "wrong", "caught by", "reason"]]


def _discarded(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["discarded"] != ""][["operator", "place", "right", "wrong", "discarded"]]


def _row(mutant: Mutant, catch: Catch) -> dict[str, object]:
    line, right, wrong = difference(mutant)
    return {
        "mutant": mutant.name,
        "operator": mutant.theme,
        "file": mutant.file,
        "place": f"{mutant.file}:{line}",
        "right": right,
        "wrong": wrong,
        "discarded": catch.discarded,
        "caught by": catch.by,
        "set": catch.of_set,
        "verdict": catch.verdict,
        "cause": catch.cause,
        "cases": catch.cases,
        "cpu": catch.cpu,
        "reason": catch.reason,
    }


def difference(mutant: Mutant) -> tuple[int, str, str]:
    """The number of the first differing line, and the expression there, right and wrong, each in one line."""
    edit = mutant.edit
    line = mutant.index.sources[edit.file].text.count("\n", 0, edit.start) + 1
    return line, " ".join(mutant.right.split()), " ".join(mutant.wrong.split())
