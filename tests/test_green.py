"""docs/green.md: every sentence that it lists names the tests that hold it, and they are there."""

from __future__ import annotations

import ast
import re

import pytest
from attacks.before import GREEN, NOT_GREEN, RED, UNKNOWN, attacks, rows

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


def test_ways_to_green_were_open_and_are_shut():
    found = rows((ROOT / "results" / "ways_to_green.md").read_text())
    then = {name: outcome for name, (_, outcome, _) in found.items()}
    assert {now for *_, now in found.values()} == {RED}
    assert {*then.values()} <= {GREEN, RED, NOT_GREEN, UNKNOWN}
    assert sum(outcome == GREEN for outcome in then.values()) >= 300
    files = [*(ROOT / "tests" / "attacks").glob("test_*.py")]
    assert {name.partition("::")[0] for name, outcome in then.items() if outcome == GREEN} == {f.stem for f in files}
    tried = {name.partition("[")[0] for name in found}
    assert tried == set().union(*map(attacks, files)), "tests/attacks/before.py COMMIT FILE --into the table adds rows"
