"""The page of capabilities: every line has a case of a set or a refusal; a wrong row is a sentence with its line."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from harness import files
from harness.check import capabilities
from harness.errors import SuiteError
from harness.suite.suite import load_suites, suite_of


@cache  # made from every set of every suite, which takes seconds: not while tests are collected, by each process
def lines() -> list[capabilities.Line]:
    return list(capabilities.lines())


@pytest.mark.slow
def test_the_page_is_what_the_rows_and_the_suites_make():
    assert capabilities.errors() == []
    assert (files.ROOT / capabilities.PAGE).read_text() == capabilities.page(lines())


def test_every_id_is_a_case_of_a_set_and_every_other_line_a_refusal():
    ids = {case.id for suite in load_suites() for name in suite.sets for case in suite.cases(name)}
    assert {line.case for line in lines() if line.case} <= ids
    assert all(bool(line.case) != bool(line.refusal) for line in lines())
    assert all("Upstream: " in line.refusal for line in lines() if line.refusal)


def test_every_source_has_lines():
    sources = " ".join({line.source for line in lines()})
    assert all(number in sources for number in ("2743", "2931", "2941", "2972", "3045", "3324"))
    assert len({(line.source, line.where, line.does) for line in lines()}) == len(lines())


def test_a_refusal_has_the_reason_of_the_suite():
    reason = suite_of("grouped").refusal({"recipe": "four_over_six"})
    assert reason and any(line.refusal.startswith(reason) for line in lines())


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("{where: w, does: d}", "one of the keys shown and refused"),
        ("{where: w, does: d, shown: row_scaled, refused: row_scaled/rht=true}", "one of the keys shown and refused"),
        ("{where: w, does: d, refused: row_scaled/rht=true}", "says what upstream makes of it"),
        ("{where: w, does: d, refused: row_scaled, upstream: u}", "row_scaled is not refused: a case shows it"),
        ("{where: w, does: d, shown: row_scaled/rht=true}", "no set has a case of row_scaled/rht=true"),
        ("{where: w, does: d, shown: row_scaled, shape: 1x1}", "no set has a case of row_scaled 1x1"),
        ("{where: w, does: d, shown: row_scaled/rot=true}", "row_scaled has no flag 'rot'"),
        ("{where: w, does: d, shown: row_scaled/outputs=all}", "flag outputs has no value 'all'"),
        ("{where: w, does: d, shown: row}", "there is no recipe 'row'"),
    ],
)
def test_a_wrong_row_is_a_sentence_with_its_line(tmp_path: Path, row: str, sentence: str):
    path = tmp_path / "rows.yaml"
    path.write_text(f"source:\n  - {row}\n")
    with pytest.raises(SuiteError, match=rf"rows.yaml:2: .*{sentence}"):
        list(capabilities.lines(path))


def test_a_page_that_is_behind_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lines()  # so that the suites, which name files below the ROOT that is there, are read
    monkeypatch.setattr(files, "ROOT", tmp_path)
    assert capabilities.errors() == []  # nothing outside a checkout
    (tmp_path / "docs").mkdir()
    (tmp_path / capabilities.PAGE).write_text("old\n")
    assert capabilities.errors() == ["docs/capabilities.md: it is out of date; run `harness check --write`"]
