"""docs/green.md: every sentence that it lists names the tests that hold it, and they are there."""

from __future__ import annotations

import ast
import re

import pytest

from harness.files import ROOT

PAGE = ROOT / "docs" / "green.md"
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def sentences() -> list[str]:
    """The items of the page's lists, each in one line."""
    items = re.findall(r"^- (.*?)(?=^- |^\n|\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [" ".join(item.split()) for item in items]


@pytest.mark.parametrize("sentence", sentences())
def test_a_sentence_has_its_tests(sentence: str):
    named = TEST.findall(sentence)
    assert named and sentence.endswith("`"), "no test is named behind it"
    for file, name in named:
        functions = [
            node.name for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)
        ]
        assert name in functions, f"{file} has no {name}"


def test_the_page_has_sentences():
    assert len(sentences()) > 15


def test_forty_ways_to_green_were_open_and_are_shut():
    rows = [line.split("|")[1:4] for line in (ROOT / "results" / "ways_to_green.md").read_text().splitlines()]
    found = [[cell.strip() for cell in row] for row in rows if len(row) == 3 and "::" in row[0]]
    assert all(now == "red" for _, _, now in found)
    assert sum(then == "green" for _, then, _ in found) >= 40
    files = {path.stem for path in (ROOT / "tests" / "attacks").glob("test_*.py")}
    assert {name.partition("::")[0] for name, _, _ in found} == files
