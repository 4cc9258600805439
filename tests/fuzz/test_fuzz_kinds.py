"""One percent of what is hunted through by hand: mutated journals and suites."""

from __future__ import annotations

import random

import pytest

from evidence.fuzz import driver, journals, suites
from evidence.mutated_text import mutated, mutated_json


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [(journals, 1000), (suites, 100)], ids=["journals", "suites"])
def test_one_percent(kind, count: int):
    name = kind.__name__.rpartition(".")[2]
    offence = driver.run(name, 1, 0, count, kind.trial)
    assert offence is None, f"{offence.again}\n{offence.text}"


def test_the_same_numbers_make_the_same_changes():
    for change, data in ((mutated, b"a: 1\nb: [2, 3]\n"), (mutated_json, {"a": [1, {"b": "c"}]})):
        made = [change(data, random.Random(number)) for number in range(50)]
        assert made == [change(data, random.Random(number)) for number in range(50)]
        assert sum(each != data for each in made) > 30


def test_a_reader_that_believes_too_much_is_an_offence(monkeypatch: pytest.MonkeyPatch):
    """The hunt can fail: without the rule about evidence, some trial reads a forged PASS."""
    monkeypatch.setattr("evidence.fuzz.journals.require_possible", lambda *_: None)
    offence = driver.run("journals", 3, 0, 2000, journals.trial)
    assert offence is not None and "claims" in offence.text


def test_a_suite_that_raises_is_an_offence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(suites, "load_suite", lambda path: {}["x"])
    assert "KeyError" in driver.run("suites", 1, 0, 1, suites.trial).text
    monkeypatch.setattr(suites, "refusal", lambda path: "two\nlines")
    assert "is not one sentence" in driver.run("suites", 1, 0, 1, suites.trial).text
