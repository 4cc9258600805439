"""The site has every page of docs/, and what they lead to, and cannot be built with a link that leads nowhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from browser import Browser, find_browser
from copied_tree import Tree
from processes import LONGEST

from harness.files import ROOT
from harness.ground.yaml_lines import read


def named(nav: list) -> list[str]:
    """The pages of a navigation, in order."""
    return [
        page
        for entry in nav
        for value in entry.values()
        for page in (named(value) if isinstance(value, list) else [value])
    ]


def test_every_page_is_in_the_navigation_once():
    settings = read(ROOT / "mkdocs.yml", "mkdocs.yml").data
    assert sorted(named(settings["nav"])) == sorted(["index.md", *(page.name for page in (ROOT / "docs").glob("*.md"))])
    assert settings["strict"] is True


def build(tree: Path, site: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    return subprocess.run(words, cwd=tree, capture_output=True, text=True, timeout=LONGEST)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="the extra [docs] is not installed; CI's job `docs` builds the site")
    return Tree(tmp_path_factory.mktemp("tree")).root


@pytest.fixture(scope="module")
def site(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("built") / "site"
    done = build(tree, site)
    assert done.returncode == 0, done.stdout + done.stderr
    return site


@pytest.mark.slow  # `.ci/run` builds it by `make docs`
def test_it_is_built(site: Path):
    front = (site / "index.html").read_text()
    assert 'href="harness/kernels/per_tensor.cu.html"' in front and 'href="numerics.html#3-per_tensor"' in front
    assert 'id="3-per_tensor"' in (site / "numerics.html").read_text()
    assert (site / "results" / "mutants.html").exists()
    assert "```" not in re.sub(r"<code.*?</code>", "", (site / "quick_start.html").read_text(), flags=re.DOTALL)


@pytest.mark.skipif(find_browser() is None, reason="no Chromium is installed, so no page is opened")
def test_every_table_is_whole_at_1280_pixels(site: Path):
    browser = Browser(find_browser())
    wide = "[...document.querySelectorAll('.md-typeset table')].filter(each => each.getBoundingClientRect().right > "
    wide += "document.documentElement.clientWidth || each.closest('.md-typeset__scrollwrap')?.scrollWidth > "
    wide += "each.closest('.md-typeset__scrollwrap').clientWidth).map(each => each.textContent.trim().slice(0, 60))"
    try:
        for page in (page for page in site.rglob("*.html") if "<table>" in page.read_text()):
            browser.open(page, 1280)
            assert (page.name, browser.value(wide)) == (page.name, [])
    finally:
        browser.close()


def test_words_in_cells_break_and_others_do_not():
    pytest.importorskip("mkdocs", reason="the extra [docs] is not installed; CI's job `docs` builds the site")
    from evidence.docs.site import on_page_content

    cell = '<td><a href="a/b"><code>casts/a=b,c_d</code></a> 1 / 2</td>'
    broken = '<td><a href="a/b"><code>casts/<wbr>a=<wbr>b,<wbr>c_<wbr>d</code></a> 1 / 2</td>'
    assert on_page_content(f"<p>a/b</p>{cell}") == f"<p>a/b</p>{broken}"


@pytest.mark.parametrize(
    ("page", "text", "says"),
    [
        ("README.md", "[a](docs/nothing.md)", "README.md: there is no docs/nothing.md"),
        ("docs/api.md", "[a](tour.md#nowhere)", "docs/api.md: docs/tour.md has no heading #nowhere"),
        ("CONTRIBUTING.md", "[a](nothing.txt)", "CONTRIBUTING.md: there is no nothing.txt"),
    ],
)
def test_a_link_to_nothing_ends_the_build(tree: Path, tmp_path: Path, page: str, text: str, says: str):
    path = tree / page
    before = path.read_text()
    path.write_text(f"{before}\n{text}\n")
    try:
        done = build(tree, tmp_path / "site")
    finally:
        path.write_text(before)
    assert done.returncode == 1 and says in done.stdout + done.stderr
