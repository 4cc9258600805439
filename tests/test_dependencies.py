"""docs/dependencies.md has a line for each package that pyproject.toml names, and each has a pin."""

from __future__ import annotations

import re
import tomllib

from harness.files import ROOT

PAGE = (ROOT / "docs" / "dependencies.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def name_of(requirement: str) -> str:
    return re.match(r"[\w.-]+", requirement)[0]


def rows(title: str) -> list[list[str]]:
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_each_package_has_a_line_that_says_why():
    assert [name for name, _ in rows("Always installed")] == [name_of(each) for each in PROJECT["dependencies"]]
    extras = [(name_of(each), f"`{extra}`") for extra, of in PROJECT["optional-dependencies"].items() for each in of]
    assert [(name, extra) for name, extra, _ in rows("Extras")] == extras
    assert all(row[-1] for title in ("Always installed", "Extras") for row in rows(title))


def test_each_package_has_a_pin():
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    named = {row[0].lower() for title in ("Always installed", "Extras") for row in rows(title)}
    assert named - pinned == set()
