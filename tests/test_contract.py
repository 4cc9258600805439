"""docs/numerics.md is the contract: whoever cites a section of it, in code, suites, tests or README, finds it there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from harness.files import ROOT
from harness.suite.suite import load_suites

PAGE = ROOT / "docs" / "numerics.md"
FOLDERS = ("harness", "suites", "tests", "docs")
# Where "section 7" and a comment that begins with "2.4" are citations without the word
BARE = (ROOT / "harness" / "oracles", ROOT / "harness" / "kernels")

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


def sections(page: str) -> dict[str, str]:
    """The text below each numbered heading, with its sub-sections, by number."""
    found = [(m[1], m.end()) for m in HEADING.finditer(page)]
    ends = [m.start() for m in HEADING.finditer(page)][1:] + [len(page)]
    own = {number: page[start:end] for (number, start), end in zip(found, ends, strict=True)}
    return {n: "".join(text for m, text in own.items() if f"{m}.".startswith(f"{n}.")) for n in own}


def steps(text: str) -> set[int]:
    return set(map(int, STEP.findall(text)))


SECTIONS = sections(PAGE.read_text(encoding="utf-8"))


def texts() -> Iterator[tuple[Path, str]]:
    for path in [ROOT / "README.md", *(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")))]:
        if path.is_file() and path.suffix in {".py", ".cu", ".cuh", ".yaml", ".json", ".md", ".j2", ".js"}:
            yield path, path.read_text(encoding="utf-8")


def patterns(path: Path) -> list[re.Pattern]:
    if path == PAGE:
        return [CITATION, SECTION]
    if any(folder in path.parents for folder in BARE):
        return [CITATION, SECTION, LEADING]
    return [CITATION, MUTANT] if path.parent.name == "mutants" else [CITATION]


def citations(path: Path, text: str) -> list[tuple[int, str]]:
    """Line and number of every section that is cited."""
    return sorted(
        {
            (text.count("\n", 0, match.start(1) + number.start()) + 1, number[0])
            for pattern in patterns(path)
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
        if number not in SECTIONS
    ]
    for match in STEPS_OF.finditer(text):
        if not {int(step) for step in match.groups()[:2] if step} <= steps(SECTIONS.get(match[3], "")):
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{where}:{line}: {match[0]}: there is no such step in docs/numerics.md")
    return found


def test_every_citation_leads_to_a_section():
    assert [line for path, text in texts() for line in missing(path, text)] == []


def test_there_are_citations_everywhere():
    """A pattern that matched nothing would find nothing missing."""
    found = [path.relative_to(ROOT) for path, text in texts() for _ in citations(path, text)]
    per_folder = {folder: sum(path.parts[0] == folder for path in found) for folder in FOLDERS}
    assert per_folder["harness"] > 100
    assert min(per_folder.values()) >= 10, per_folder


NAME = "NUMER" + "ICS"  # so that this file does not cite what it makes up


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("harness/a.py", f'"""Fine.\n\nAs {NAME} 99 says."""', ["harness/a.py:3"]),
        ("suites/a.yaml", f"recipe: a\ncontract: {NAME} 3, 77, 10", ["suites/a.yaml:2"]),
        ("harness/kernels/a.cuh", f"// {NAME} sections 1\n// and 14.", ["harness/kernels/a.cuh:2"]),
        ("harness/kernels/a.cuh", "// 2.98 or 2.99, and 2.8: a block", ["harness/kernels/a.cuh:1"] * 2),
        (
            "harness/oracles/a.py",
            '"""2.99: nothing."""\n# Section 42',
            ["harness/oracles/a.py:1", "harness/oracles/a.py:2"],
        ),
        ("harness/oracles/a.py", f"steps 2 to {60} of section 3", ["harness/oracles/a.py:1"]),
        ("evidence/mutants/a.yaml", "- {name: a,\n  numerics: 55, cause: b}", ["evidence/mutants/a.yaml:2"]),
        ("README.md", f"all that {NAME} 12 and 13.9 tell of", ["README.md:1"]),
        ("harness/kernels/a.cuh", f"// {NAME} 10.2 and 10.3; 2.4 ~ 2.5\n// 2.5 * x = 1.5 sections", []),
    ],
)
def test_a_made_up_citation_is_found(name, text, lines):
    assert [line.partition(": ")[0] for line in missing(ROOT / name, text)] == lines


@pytest.mark.parametrize("suite", load_suites(), ids=lambda suite: suite.recipe)
def test_the_contract_of_a_suite_is_a_section(suite):
    numbers = re.fullmatch(rf"NUMERICS ({_NUMBERS})", suite.file.contract)
    assert numbers, suite.file.contract
    assert set(re.findall(r"\d+(?:\.\d+)*", numbers[1])) <= SECTIONS.keys()


@pytest.mark.parametrize("suite", [s for s in load_suites() if not s.file.pipeline], ids=lambda suite: suite.recipe)
def test_an_oracle_has_the_steps_of_its_section(suite):
    """One numbering: step 4 of the docstring is step 4 of the page. Section 1 is about formats and has none."""
    section = suite.file.contract.removeprefix("NUMERICS ")
    docstring = import_module(f"harness.oracles.{suite.recipe}").__doc__
    if section != "1":
        assert steps(docstring) == steps(SECTIONS[section])


def test_sections_are_numbered_in_order():
    numbers = [tuple(map(int, number.split("."))) for number in SECTIONS]
    assert numbers == sorted(set(numbers))
    assert [number for number in numbers if len(number) == 1] == [(n,) for n in range(14)]


@pytest.mark.parametrize("path", [ROOT / "README.md", PAGE], ids=lambda path: path.name)
def test_every_link_into_the_page_has_its_heading(path):
    page = PAGE.read_text(encoding="utf-8")
    titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    links = re.findall(r"\]\((?:docs/numerics\.md)?#([^)]+)\)", path.read_text(encoding="utf-8"))
    assert (links or path != PAGE) and set(links) <= anchors
