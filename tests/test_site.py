"""The site has every page of docs/, and what they lead to, and cannot be built with a link that leads nowhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from copied_tree import Tree

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
    return subprocess.run(words, cwd=tree, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="the extra [docs] is not installed; CI's job `docs` builds the site")
    return Tree(tmp_path_factory.mktemp("tree")).root


def test_it_is_built(tree: Path, tmp_path: Path):
    done = build(tree, tmp_path / "site")
    assert done.returncode == 0, done.stdout + done.stderr
    front = (tmp_path / "site" / "index.html").read_text()
    assert 'href="harness/kernels/per_tensor.cu.html"' in front and 'href="numerics.html#3-per_tensor"' in front
    assert 'id="3-per_tensor"' in (tmp_path / "site" / "numerics.html").read_text()
    assert (tmp_path / "site" / "results" / "mutants.html").exists()
    assert "```" not in re.sub(
        r"<code.*?</code>", "", (tmp_path / "site" / "quick_start.html").read_text(), flags=re.DOTALL
    )


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
