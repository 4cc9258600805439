"""Tables of steps: the contract's values beside every witness's, with the first difference marked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from io import StringIO

from rich import box
from rich.table import Table

from harness import text

_WIDTH = 120
_ABSENT = "-"


@dataclass(frozen=True)
class StepRow:
    """One line of a table. ours: the steps' value; theirs: the value of each witness that has one.

    inside: witnesses whose value is inside its interval, so that it may differ
    """

    cells: tuple[str, ...]
    ours: str
    theirs: Mapping[str, str]
    inside: tuple[str, ...] = ()

    @property
    def differing(self) -> list[str]:
        """Witnesses that differ from the steps although they must agree."""
        return [who for who, text in self.theirs.items() if text != self.ours and who not in self.inside]


@dataclass(frozen=True)
class Section:
    """A table: headings of the cells before `ours`, and its rows."""

    headings: tuple[str, ...]
    rows: list[StepRow]


def rendered(head: Iterable[str], witnesses: Collection[str], sections: Iterable[Section], reference: str = "") -> str:
    """The lines of `head`, a table for each section with a column for each witness, and the first difference.

    reference: the witness that the others are compared with where no steps are known; it then has no second column
    """
    console = text.console(file=StringIO(), width=_WIDTH, force_terminal=False, color_system=None)
    for line in head:
        console.print(line, highlight=False, soft_wrap=True)
    first, steps = "", () if reference else ("steps",)
    for section in sections:
        table = Table(*section.headings, *steps, *witnesses, "", box=box.SIMPLE_HEAD, padding=(0, 1))
        for row in section.rows:
            mark = "" if not row.differing else "<-" if first else "<- first"
            if row.differing and not first:
                who, where = " and ".join(row.differing), " ".join(row.cells[:2]).strip()
                first = f"first difference from {reference or 'the steps'}: {who} at {where}"
            ours = () if reference else (row.ours,)
            table.add_row(*row.cells, *ours, *(row.theirs.get(who, _ABSENT) for who in witnesses), mark)
        console.print(table, highlight=False)
    console.print(first or "all agree on this block", highlight=False, soft_wrap=True)
    return console.file.getvalue().rstrip() + "\n"
