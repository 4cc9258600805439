"""Tables of steps: what the contract gives, beside what every witness gives, with the first difference marked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from io import StringIO

from rich import box
from rich.console import Console
from rich.table import Table

_WIDTH = 120
_ABSENT = "-"


@dataclass(frozen=True)
class Row:
    """One line of a table. ours: what the steps give; theirs: what each witness gives, as far as it can be asked.

    inside: those of whom it is known that they may differ from the steps as they do
    """

    cells: tuple[str, ...]
    ours: str
    theirs: Mapping[str, str]
    inside: tuple[str, ...] = ()

    @property
    def parts(self) -> list[str]:
        """The witnesses that differ from the steps."""
        return [who for who, said in self.theirs.items() if said != self.ours and who not in self.inside]


@dataclass(frozen=True)
class Section:
    """A table: headings of the cells before `ours`, and its rows."""

    headings: tuple[str, ...]
    rows: list[Row]


def rendered(head: Iterable[str], witnesses: Collection[str], sections: Iterable[Section]) -> str:
    """The lines of `head`, a table for each section with a column for each witness, and where they part first."""
    console = Console(file=StringIO(), width=_WIDTH, force_terminal=False, color_system=None)
    for line in head:
        console.print(line, highlight=False, soft_wrap=True)
    parted = ""
    for section in sections:
        table = Table(*section.headings, "steps", *witnesses, "", box=box.SIMPLE_HEAD, padding=(0, 1))
        for row in section.rows:
            said = [row.theirs.get(who, _ABSENT) for who in witnesses]
            mark = "" if not row.parts else "<-" if parted else "<- first"
            if row.parts and not parted:
                parted = (
                    f"first difference from the steps: {' and '.join(row.parts)} at {' '.join(row.cells[:2]).strip()}"
                )
            table.add_row(*row.cells, row.ours, *said, mark)
        console.print(table, highlight=False)
    console.print(parted or "all agree on this block", highlight=False, soft_wrap=True)
    return console.file.getvalue().rstrip() + "\n"
