"""The page of capabilities: every line has a case of a set or a refusal; a wrong row is a sentence with its line."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import yaml

from harness import files
from harness.check import capabilities, upstream
from harness.errors import SuiteError
from harness.suite.suite import load_suites, suite_of


@cache  # made from every set of every suite, which takes seconds: `make check` does it for every change, too
def lines() -> list[capabilities.Line]:
    return list(capabilities.lines())


@pytest.mark.slow
def test_the_page_is_what_the_rows_and_the_suites_make():
    assert capabilities.errors() == []
    assert (files.ROOT / capabilities.PAGE).read_text() == capabilities.page(lines())


@pytest.mark.slow
def test_every_id_is_a_case_of_a_set_and_every_other_line_a_refusal():
    ids = {case.id for suite in load_suites() for name in suite.sets for case in suite.cases(name)}
    assert {line.case for line in lines() if line.case} <= ids
    assert all(bool(line.case) != bool(line.refusal) for line in lines())
    assert all("Upstream: " in line.refusal for line in lines() if line.refusal)


@pytest.mark.slow
def test_every_source_has_lines():
    sources = " ".join({line.source for line in lines()})
    assert all(number in sources for number in ("2743", "2931", "2941", "2972", "3045", "3324"))
    assert len({(line.source, line.where, line.does) for line in lines()}) == len(lines())


@pytest.mark.slow
def test_a_refusal_has_the_reason_of_the_suite():
    reason = suite_of("grouped").refusal({"recipe": "four_over_six", "rht": True})
    assert reason and any(line.refusal.startswith(reason) for line in lines())


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("{where: w, does: d}", "one of the keys shown and refused"),
        (
            "{where: w, does: d, shown: row_scaled, refused: row_scaled/rht=true, upstream: u}",
            "one of the keys shown and refused",
        ),
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
    monkeypatch.setattr(capabilities, "lines", lambda: iter(()))  # those of the suites take seconds
    monkeypatch.setattr(files, "ROOT", tmp_path)
    assert capabilities.errors() == []  # nothing outside a checkout
    (tmp_path / "docs").mkdir()
    (tmp_path / capabilities.PAGE).write_text(capabilities.page([]))
    assert capabilities.errors() == []
    (tmp_path / capabilities.PAGE).write_text("old\n")
    assert capabilities.errors() == ["docs/capabilities.md: it is out of date; run `harness check --write`"]


# Their tests, our cases


def test_every_test_of_theirs_has_cases_of_the_set_or_a_reason():
    rows = yaml.safe_load(upstream.FILE.read_text())["tests"]
    named = upstream.cases_of_tests(load_suites())
    assert {row["test"] for row in rows} >= set(named) and len({row["test"] for row in rows}) == len(rows)
    assert all(named.get(row["test"]) or row.get("without") for row in rows)
    in_the_set = {case.id for suite in load_suites() if "upstream" in suite.sets for case in suite.cases("upstream")}
    assert {case_id for cases in named.values() for case_id in cases} == in_the_set


def rows_of(tmp_path: Path, tests: str) -> Path:
    path = tmp_path / "upstream.yaml"
    path.write_text(f"tests: {tests}\nlater: []\n")
    return path


OF_ONE = "test_nvfp4_group_quantize.py::test_rht_split_quantize_matches_per_tensor_reference"


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("parametrised: 4", "4 of 4 runs have a case of their own .* have 3 cases"),
        ("parametrised: 2", "2 of 2 runs .* have 3 cases"),
        ("parametrised: 3, same: [{count: 1, because: b}]", "2 of 3 runs .* have 3 cases"),
        ("parametrised: 3, without: [{count: 1}]", "one of the keys because and refused"),
        ("parametrised: 4, without: [{count: 1, refused: row_scaled/rht=true}]", "says what upstream makes of it"),
        ("parametrised: 4, without: [{count: 1, refused: row_scaled, upstream: u}]", "row_scaled is not refused"),
    ],
)
def test_a_wrong_number_of_cases_is_a_sentence_with_its_line(tmp_path: Path, row: str, sentence: str):
    path = rows_of(tmp_path, f"[{{test: '{OF_ONE}', {row}}}]")
    with pytest.raises(SuiteError, match=rf"upstream.yaml:1: .*{sentence}"):
        upstream.section([suite_of("grouped")], capabilities.reason, path)


def test_a_block_of_no_test_is_a_sentence_with_the_line_of_the_block(tmp_path: Path):
    path = rows_of(tmp_path, f"[{{test: '{OF_ONE}', parametrised: 3}}]")
    with pytest.raises(SuiteError, match=r"suites/grouped.yaml:\d+: .*/upstream.yaml has no test '\w+\.py::test_\w+'"):
        upstream.section([suite_of("grouped")], capabilities.reason, path)


def test_a_case_that_is_removed_from_the_set_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    suite = suite_of("grouped")
    named = suite.cases_of_tests("upstream")
    one = next(iter(named[OF_ONE]))
    left = {OF_ONE: {case_id: case for case_id, case in named[OF_ONE].items() if case_id != one}}
    monkeypatch.setattr(upstream, "cases_of_tests", lambda suites: left)
    path = rows_of(tmp_path, f"[{{test: '{OF_ONE}', parametrised: 3}}]")
    with pytest.raises(SuiteError, match="3 of 3 runs .* have 2 cases of it"):
        upstream.section([suite], capabilities.reason, path)
