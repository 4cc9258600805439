"""docs/numerics.md is the contract: whoever cites a section of it, in code, suites, tests or README, finds it there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.check.citations import PAGE, citations, missing, sections
from harness.files import ROOT

FOLDERS = ("harness", "suites", "tests", "docs")


def texts() -> Iterator[tuple[Path, str]]:
    for path in [ROOT / "README.md", *(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")))]:
        if path.is_file() and path.suffix in {".py", ".cu", ".cuh", ".yaml", ".json", ".md", ".j2", ".js"}:
            yield path, path.read_text(encoding="utf-8")


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


def test_sections_are_numbered_in_order():
    numbers = [tuple(map(int, number.split("."))) for number in sections()]
    assert numbers == sorted(set(numbers))
    assert [number for number in numbers if len(number) == 1] == [(n,) for n in range(14)]


@pytest.mark.parametrize("path", [ROOT / "README.md", PAGE], ids=lambda path: path.name)
def test_every_link_into_the_page_has_its_heading(path):
    page = PAGE.read_text(encoding="utf-8")
    titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    links = re.findall(r"\]\((?:docs/numerics\.md)?#([^)]+)\)", path.read_text(encoding="utf-8"))
    assert (links or path != PAGE) and set(links) <= anchors
