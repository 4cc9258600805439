"""The outcomes that were seen at each comparison."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

BELOW, EQUAL, ABOVE, UNORDERED = 1, 2, 4, 8
EDGE = 16  # equal values were seen, or integers next to equality for which the relation changes

# The outcomes in which a relation holds, and in which it does not. In PTX, a relation in `u` also holds for a NaN.
_SIDES = {
    "lt": (BELOW, EQUAL | ABOVE | UNORDERED),
    "le": (BELOW | EQUAL, ABOVE | UNORDERED),
    "gt": (ABOVE, BELOW | EQUAL | UNORDERED),
    "ge": (ABOVE | EQUAL, BELOW | UNORDERED),
    "eq": (EQUAL, BELOW | ABOVE | UNORDERED),
    "ne": (BELOW | ABOVE | UNORDERED, EQUAL),
    "clamp": (BELOW, ABOVE),
}
_SIDES |= {
    f"{name}u": (holds | UNORDERED, fails & ~UNORDERED) for name, (holds, fails) in _SIDES.items() if name != "clamp"
}


SAME_FOR_ALL = "the same for all"  # stands for the constant if the operand has one value for all threads of a launch
NEXT = {"lt": -1, "ge": -1, "le": 1, "gt": 1}  # a - b of the integers next to equality for which the relation changes


# The opposite of a relation, because a compiler may emit either.
_OPPOSITES = {"ge": "lt", "gt": "le", "ne": "eq"}


class Site(NamedTuple):
    """A comparison. text: the source line; relation: of `_SIDES`; constant: as written, or `SAME_FOR_ALL`"""

    file: str
    line: int
    text: str
    relation: str
    constant: str


@dataclass(frozen=True)
class Missing:
    """A site of which the cases miss an outcome. what: `reached`, `true`, `false` or `edge`"""

    site: Site
    what: str


def missing(site: Site, seen: int) -> list[Missing]:
    """The outcomes that were not seen at a site although a case could show them."""
    if not seen:
        return [Missing(site, "reached")]
    holds, fails = _SIDES[site.relation]
    found = [Missing(site, what) for what, side in (("true", holds), ("false", fails)) if not seen & side]
    if not found and site.relation in ("lt", "le", "gt", "ge") and not seen & EDGE:
        found.append(Missing(site, "edge"))
    return found


def canonical(site: Site, seen: int) -> tuple[Site, int]:
    """The comparison rewritten as `lt`, `le` or `eq` (`lt` or `eq` for integers), with the outcomes seen."""
    relation, unordered = site.relation.removesuffix("u"), site.relation.endswith("u")
    if relation in _OPPOSITES:
        relation, unordered = _OPPOSITES[relation], not unordered
    if relation == "clamp":
        return site, seen
    if re.fullmatch(r"-?\d+", site.constant):
        if relation == "le":
            after = BELOW * bool(seen & (BELOW | EQUAL)) | seen & (ABOVE | EDGE)
            return site._replace(relation="lt", constant=str(int(site.constant) + 1)), after
        unordered = False
    unordered &= site.constant != SAME_FOR_ALL
    return site._replace(relation=relation + "u" * unordered), seen


class Outcomes:
    """The outcomes seen, by site."""

    def __init__(self) -> None:
        self.seen: dict[Site, int] = {}
        self._complete: set[Site] = set()

    def expect(self, site: Site) -> None:
        """Register a site, whether or not it is reached."""
        self.seen.setdefault(site, 0)

    def note(self, site: Site, sides: int) -> None:
        before = self.seen.get(site, 0)
        self.seen[site] = before | sides
        if self.seen[site] != before and not missing(*canonical(site, self.seen[site])):
            self._complete.add(site)

    def complete(self, site: Site) -> bool:
        """Whether no outcome is missing, so that there is nothing more to see."""
        return site in self._complete

    def clear(self) -> None:
        self.seen.clear()
        self._complete.clear()

    def merge(self, seen: dict[Site, int]) -> None:
        for site, sides in seen.items():
            self.note(site, sides)

    def united(self) -> dict[Site, int]:
        """The outcomes seen, with equivalent forms of one comparison merged."""
        united = Outcomes()
        for site, sides in self.seen.items():
            united.note(*canonical(site, sides))
        return united.seen

    def missing(self) -> list[Missing]:
        """All missing outcomes, in the order of files and lines."""
        united = self.united()
        return [each for site in sorted(united) for each in missing(site, united[site])]


OUTCOMES = Outcomes()  # the outcomes of this process
