"""The cards of docs/cards, whose code is not ours and not here: they are of recipes and flags that there are."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.files import ROOT
from harness.subjects.card.card import read_card
from harness.suite.suite import suite_of

CARDS = sorted((ROOT / "docs/cards").glob("*/*.yaml"))
PTX = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry _Z1aILb0EEv(.param .u32 a_0) { ret; }
.visible .entry _Z1aILb1EEv(.param .u32 a_0) { ret; }
"""
CARD = 'code: own.ptx\nrecipe: swizzle\nlaunches:\n  - kernel: "{kernel}"\n    arguments: [{{i32: rows}}]\n'


@pytest.mark.parametrize("card", CARDS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_card_is_for_cases_that_there_are(card: Path, tmp_path: Path) -> None:
    here = tmp_path / card.name
    shutil.copy(card, here)
    read = read_card(str(here))
    read._check_flags()
    cases = [case for each in suite_of(read.file.recipe).sets for case in suite_of(read.file.recipe).cases(each)]
    assert any(not read.refuses(case) for case in cases)
    with pytest.raises(UsageError, match=rf"{card.name}:2: {read.file.code}: there is no such file"):
        read.check(cases[:1])


def test_every_card_has_its_line_in_the_table() -> None:
    table = (ROOT / "results/vendors.md").read_text()
    assert CARDS
    for card in CARDS:
        assert f"{card.parent.name}/{card.stem} " in table


@pytest.mark.parametrize(
    ("kernel", "found"),
    [("*1aILb0E*", "_Z1aILb0EEv"), ("_Z1aILb1EEv", "_Z1aILb1EEv"), ("*1aILb2E*", None), ("*1aI*", None)],
)
def test_a_star_stands_for_the_rest_of_one_name(kernel: str, found: str | None, tmp_path: Path) -> None:
    (tmp_path / "own.ptx").write_text(PTX)
    (tmp_path / "card.yaml").write_text(CARD.format(kernel=kernel))
    card = read_card(str(tmp_path / "card.yaml"))
    if found:
        assert card.code.symbol(kernel) == found
        return
    sentence = "has 2 entries that" if kernel == "*1aI*" else "has no entry"
    with pytest.raises(UsageError, match=re.escape(f"card.yaml:4: own.ptx {sentence}")):
        card.check([])
