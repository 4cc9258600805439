"""README and the quick start are transcripts of a try from an empty folder, `pip install` included."""

from __future__ import annotations

import pytest

from harness.files import ROOT
from harness.studies.docs.installed import FromNothing
from harness.studies.docs.transcript import WRITTEN, blocks, structure, unlike

PAGES = ("README.md", "docs/quick_start.md")


@pytest.mark.parametrize("page", PAGES)
def test_it_is_what_happens(page, tmp_path):
    text = (ROOT / page).read_text()
    assert unlike(text, FromNothing(tmp_path.resolve())) == []


@pytest.mark.parametrize("page", PAGES)
def test_it_goes_from_nothing_to_a_mistake_that_is_named_and_to_the_api(page):
    text = (ROOT / page).read_text()
    ran = [(kind, body) for kind, body in blocks(text) if not kind.startswith("text")]
    steps = ("pip install", "harness new ", "harness verify --recipe-dir", "sed -i", "--case", "import harness")
    found = [next(i for i, (_, body) in enumerate(ran) if step in body) for step in steps]
    assert found == sorted(found)
    assert [kind for kind, body in ran if "--case" in body][0] == "sh fails 1"
    assert len(WRITTEN.findall(text)) >= 3


def test_times_may_differ_and_words_may_not():
    one = "│ seconds │ 7.2 │\nresults/runs/20261123T175733Z/verify.html\n18 selected"
    assert structure(one) == structure(one.replace("7.2", "17.25").replace("T175733Z", "T000000Z.002"))
    assert structure(one) != structure(one.replace("18", "17"))
