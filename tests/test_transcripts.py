"""Pages are transcripts: what they show is what their commands print, from an empty folder, one after the other.

README and the quick start begin with `pip install`; the other pages take the harness of this checkout.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from evidence.docs.pages import all_pages
from evidence.docs.transcript import WRITTEN, FromNothing, blocks, of_this_checkout, structure, unlike
from harness.errors import HarnessError
from harness.files import ROOT

FROM_NOTHING = ("README.md", "docs/quick_start.md")
OF_TRITON = ("docs/own_triton.md",)
# Pages of `.ci/run`, which installs a wheel in test_wheel.py. CI's job `test` has all.
IN_THE_GATE = ("docs/concepts.md", "docs/emulator_checks.md")
NOT_RUN = ("sh make", "sh gpu", "text", "text whole", "text brief")
NAMES = [
    name
    for name, text in {str(page.relative_to(ROOT)): page.read_text() for page in all_pages()}.items()
    if name not in FROM_NOTHING and any(kind not in NOT_RUN for kind, _ in blocks(text))
]


def marked(names: Iterable[str]) -> list[ParameterSet]:
    return [pytest.param(name, marks=[pytest.mark.page] if name in IN_THE_GATE else []) for name in names]


@pytest.mark.slow
@pytest.mark.parametrize("page", marked(FROM_NOTHING))
def test_it_is_what_happens_after_an_install(page: str, tmp_path: Path):
    assert unlike((ROOT / page).read_text(), FromNothing(tmp_path.resolve())) == []


@pytest.mark.slow
@pytest.mark.parametrize("page", marked(NAMES))
def test_it_is_what_happens(page: str, tmp_path: Path):
    if page in OF_TRITON:
        pytest.importorskip("triton", "3.6", reason="Triton 3.6 or newer is not installed; the extra [triton] has it")
    text = (ROOT / page).read_text()
    assert not WRITTEN.search(text), (
        "`python -m evidence docs --run` writes README and the quick start; show lines, in `text`"
    )
    assert unlike(text, of_this_checkout(tmp_path)) == []


def test_there_are_transcripts():
    assert len(NAMES) >= 6 and {*IN_THE_GATE} <= {*FROM_NOTHING, *NAMES}


@pytest.mark.parametrize("page", FROM_NOTHING)
def test_it_goes_from_nothing_to_a_mistake_that_is_named_and_to_the_api(page: str):
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


def test_what_is_shown_and_not_printed_is_found(tmp_path):
    page = "```sh\necho one two; echo three\n```\n\n```text\ntwo\nthr…\n{}```\n"
    assert unlike(page.format(""), of_this_checkout(tmp_path)) == []
    assert unlike(page.format("four\n"), of_this_checkout(tmp_path)) == ["'four' is not in\none two\nthree\n"]
    assert unlike("```sh\necho a 1.0 s\n```\n```text whole\na 2.0 s\n```", of_this_checkout(tmp_path)) == []
    assert unlike("```sh\necho a 1.0 s\n```\n```text whole\nb 1.0 s\n```", of_this_checkout(tmp_path)) != []
    with pytest.raises(HarnessError, match="this ended with 3 and not with 0"):
        unlike("```sh\nexit 3\n```", of_this_checkout(tmp_path))
    with pytest.raises(HarnessError, match="this ended with 0 and not with 1"):
        unlike("```sh fails 1\ntrue\n```", of_this_checkout(tmp_path))
