"""Fuzz: a trial is named by seed and number, and nothing that it does ends the hunt unnoticed."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from evidence.fuzz import driver


def run(trial, **options):
    return driver.run("toys", 7, options.pop("start", 0), options.pop("count", 20), trial, **options)


def test_a_trial_depends_on_seed_and_number_alone():
    drawn = []
    assert run(lambda rng: drawn.append(rng.random()) or "") is None
    again = []
    assert run(lambda rng: again.append(rng.random()) or "", start=15, count=5) is None
    assert again == drawn[15:] and len(set(drawn)) == 20


def test_the_first_offence_ends_the_hunt_and_names_the_command_that_repeats_it():
    tried = []
    found = run(lambda rng: tried.append(1) or ("wrong" if len(tried) == 3 else ""))
    assert (found.number, found.text, len(tried)) == (2, "wrong", 3)
    assert found.again == "python -m evidence fuzz toys --seed 7 --from 2 --count 1"


def _hang(rng: random.Random) -> str:
    try:
        while True:
            pass
    except Exception:
        return ""


@pytest.mark.parametrize(
    ("trial", "said"),
    [
        (lambda rng: {}["x"], "KeyError"),
        (lambda rng: str(np.zeros(1 << 35, np.uint8)[0] or ""), "MemoryError|Unable to allocate"),
        (_hang, r"OutOfTime: no end after [\d.]+ s"),
        (lambda rng: re.fullmatch(r"(a+)+b", "a" * 40) and "", "OutOfTime"),
    ],
    ids=["traceback", "gigabytes", "hang", "backtracking"],
)
def test_what_a_trial_may_not_do_is_an_offence(trial, said, monkeypatch):
    monkeypatch.setattr(driver, "LONGEST", 0.2)
    assert re.search(said, run(trial).text)


def test_an_interrupted_hunt_says_how_it_is_resumed():
    def interrupted(rng):
        if len(tried) == 4:
            raise KeyboardInterrupt
        tried.append(1)
        return ""

    tried, said = [], []
    with pytest.raises(KeyboardInterrupt):
        run(interrupted, start=100, say=said.append)
    assert said == ["4 of 20 trials; the rest: python -m evidence fuzz toys --seed 7 --from 104 --count 16"]
