"""Whether the sections and steps of docs/numerics.md, the contract, that a text cites are there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from harness.files import PACKAGE, ROOT

PAGE = ROOT / "docs" / "numerics.md"
# Where "section 7" and a comment that begins with "2.4" are citations without the word
BARE = (PACKAGE / "oracles", PACKAGE / "kernels")

HEADING = re.compile(r"^#{2,4} (\d+(?:\.\d+)*)\.? (.*)$", re.MULTILINE)
STEP = re.compile(r"^ *(\d+)\. ", re.MULTILINE)

_GAP = r"\s+(?:(?://|#)\s*)?"  # a citation may go on in the next line of a comment
_NUMBERS = rf"\d+(?:\.\d+)*(?:(?:,|,?{_GAP}(?:and|or|to)){_GAP}\d+(?:\.\d+)*)*"
CITATION = re.compile(rf"NUMERICS(?:{_GAP}sections?)?{_GAP}({_NUMBERS})")
SECTION = re.compile(rf"\b[Ss]ections?{_GAP}({_NUMBERS})")
LEADING = re.compile(
    rf'(?:"""|//|#|[Ss]teps?) *((?:2|10)\.\d+(?:(?:,|,?{_GAP}(?:and|or|to)){_GAP}\d+(?:\.\d+)*)*)(?! *[*^/])\b'
)
STEPS_OF = re.compile(rf"steps? (\d+)(?: to (\d+))? of{_GAP}section (\d+(?:\.\d+)*)")
MUTANT = re.compile(r"[{,]\s+numerics: (\d+),")
CONTRACT = re.compile(rf"NUMERICS ({_NUMBERS})")  # of a suite


@cache
def sections() -> dict[str, str]:
    """The text below each numbered heading, with its sub-sections, by number."""
    page = PAGE.read_text(encoding="utf-8")
    found = [(m[1], m.end()) for m in HEADING.finditer(page)]
    ends = [m.start() for m in HEADING.finditer(page)][1:] + [len(page)]
    own = {number: page[start:end] for (number, start), end in zip(found, ends, strict=True)}
    return {n: "".join(text for m, text in own.items() if f"{m}.".startswith(f"{n}.")) for n in own}


def steps(text: str) -> set[int]:
    """The numbers of the steps that a text lists."""
    return set(map(int, STEP.findall(text)))


def citations(path: Path, text: str) -> list[tuple[int, str]]:
    """Line and number of every section that is cited."""
    return sorted(
        {
            (text.count("\n", 0, match.start(1) + number.start()) + 1, number[0])
            for pattern in _patterns(path)
            for match in pattern.finditer(text)
            for number in re.finditer(r"\d+(?:\.\d+)*", match[1])
        }
    )


def missing(path: Path, text: str) -> list[str]:
    """`file:line: what is not there` of every citation that leads nowhere."""
    where = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    found = [
        f"{where}:{line}: NUMERICS {number} is no section of docs/numerics.md"
        for line, number in citations(path, text)
        if number not in sections()
    ]
    for match in STEPS_OF.finditer(text):
        if not {int(step) for step in match.groups()[:2] if step} <= steps(sections().get(match[3], "")):
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{where}:{line}: {match[0]}: there is no such step in docs/numerics.md")
    return found


def _patterns(path: Path) -> list[re.Pattern]:
    if path == PAGE:
        return [CITATION, SECTION]
    if any(folder in path.parents for folder in BARE):
        return [CITATION, SECTION, LEADING]
    return [CITATION, MUTANT] if path.parent.name == "mutants" else [CITATION]
