"""Every link of a committed page leads to a file that git has, and to a heading that is there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from evidence.docs.links import anchors, broken, links, relinked
from harness.files import ROOT

_LIST = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
FILES = {
    ROOT / name
    for name in subprocess.run(_LIST, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
}
PAGES = sorted(path for path in FILES if path.suffix == ".md" and path.is_file())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_its_links_lead_somewhere(page: Path):
    text = page.read_text()
    assert broken(page, text) == []
    assert [str(path) for path, _ in links(page, text) if path not in FILES] == []


def test_every_page_of_docs_is_linked_from_the_readme():
    linked = {path for path, _ in links(ROOT / "README.md", (ROOT / "README.md").read_text())}
    assert {page for page in PAGES if page.parent == ROOT / "docs"} <= linked


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[a](docs/nothing.md)", "there is no "),
        ("[a](docs/tour.md#nowhere)", "tour.md has no heading #nowhere"),
        ("[a](#nowhere)", "README.md has no heading #nowhere"),
        ("[a](tests)", "tests is a folder without README.md; link a file in it"),
        ("[a](docs/numerics.md#3-per_tensor) [b](https://c) ![c](results/quality/snr.svg) [d](harness/kernels)", ""),
        ("`[a](nothing)`\n```\n[a](nothing)\n```", ""),
    ],
)
def test_a_link_to_nothing_is_found(text: str, says: str):
    found = broken(ROOT / "README.md", text)
    assert len(found) == bool(says) and all(says in each for each in found), found


def test_a_heading_has_the_name_that_pages_link():
    assert anchors("# A b\n## 3. per_tensor\n```\n# no\n```\n") == {"a-b", "3-per_tensor"}


def test_only_links_of_sentences_are_written_anew():
    text = "[a](b.md#c) `[a](b)` [d](https://e)\n```\n[a](b)\n```\n"
    assert relinked(text, lambda target: f"x/{target}") == text.replace("(b.md#c)", "(x/b.md#c)")
