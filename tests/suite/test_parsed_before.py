"""Parsed suites are kept by their text: the second read gives the same, and nothing else is believed."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import SuiteError
from harness.files import SUITES
from harness.suite import parsed_before, yaml_lines
from harness.suite.yaml_lines import read

TEXT = "recipe: mine\naxes:\n  rht: [false, true]\n  alpha: [1, 0.75, -2]\nsets: {smoke: [{shapes: [16x16]}]}\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "yaml"


@pytest.fixture
def parses(monkeypatch) -> list[str]:
    """The name of each file that is parsed and not found."""
    names, parse = [], yaml_lines._parse
    monkeypatch.setattr(yaml_lines, "_parse", lambda text, name, key: names.append(name) or parse(text, name, key))
    return names


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


def test_the_second_read_gives_the_same_and_parses_nothing(tmp_path: Path, parses: list[str]):
    path = written(tmp_path, TEXT)
    first, second = read(path, "one"), read(path, "other")
    assert parses == ["one"]
    assert (second.data, second.lines, second.name) == (first.data, first.lines, "other")
    assert [type(value) for value in second.data["axes"]["alpha"]] == [int, float, int]
    assert second.where("axes", "rht", 1) == "other:3"


def test_every_suite_is_kept_as_it_is(cache: Path):
    for path in sorted(SUITES.glob("*.yaml")):
        first, second = read(path, path.name), read(path, path.name)
        assert (second.data, second.lines) == (first.data, first.lines)
    assert len(list(cache.iterdir())) == len(list(SUITES.glob("*.yaml"))) + 1  # and the key


def test_another_text_or_another_parser_is_parsed(tmp_path: Path, parses: list[str], monkeypatch):
    path = written(tmp_path, TEXT)
    read(path, "first")
    assert read(written(tmp_path, TEXT.replace("0.75", "0.5")), "text").data["axes"]["alpha"][1] == 0.5
    other = written(tmp_path / "cache", "# another parser")
    monkeypatch.setattr(parsed_before, "_PARSER", other)
    read(written(tmp_path, TEXT), "parser")
    assert parses == ["first", "text", "parser"]


@pytest.mark.parametrize("text", ["day: 2026-01-01\n", "x: .nan\n", "x: &a [*a]\n"])
def test_what_json_does_not_give_back_is_not_kept(tmp_path: Path, parses: list[str], text: str):
    path = written(tmp_path, text)
    for name in ("first", "second"):
        try:
            read(path, name)
        except SuiteError:
            assert "*a" in text
    assert parses == ["first", "second"]


def test_a_mistake_is_told_each_time(tmp_path: Path, cache: Path):
    path = written(tmp_path, "recipe: mine\nrecipe: mine\n")
    for name in ("first", "second"):
        with pytest.raises(SuiteError, match=f"{name}:2: key 'recipe' appears twice"):
            read(path, name)
    assert not cache.exists()


def test_a_file_that_another_wrote_is_not_believed(tmp_path: Path, cache: Path, parses: list[str]):
    path = written(tmp_path, TEXT)
    expected = read(path, "first").data
    (kept,) = (each for each in cache.iterdir() if each.name != ".key")
    kept.write_bytes(kept.read_bytes().replace(b"0.75", b"9.75"))
    assert read(path, "second").data == expected
    assert parses == ["first", "second"]


def test_without_a_cache_each_read_parses(tmp_path: Path, parses: list[str], monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(written(tmp_path, TEXT)))  # a file, in which nothing can be kept
    for name in ("first", "second"):
        assert read(tmp_path / "mine.yaml", name).data["recipe"] == "mine"
    assert parses == ["first", "second"]
