"""MkDocs's hooks for building the site: README is the first page, and everything that pages link to is included.

A page of `results/` is a page here, a source is shown with its colours, anything else is copied. The site needs
no address of a repository, and a link that leads nowhere ends the build.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from evidence.docs.links import broken, links, place, relinked
from harness.files import ROOT

_SHOWN = {".py": "python", ".cu": "cpp", ".cuh": "cpp", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".js": "js"}
_PLAIN = ("LICENSE", "Makefile")
_CELL = re.compile(r"<t[dh][ >].*?</t[dh]>", re.DOTALL)
_TEXT = re.compile(r"(?<=>)[^<]+")
_BREAK = re.compile(r"(?<=\w[/,=_+|])(?=\w)|(?<=\w)(?=\()")
_KIND = re.compile(r"^```(sh|text) (?:fails \d+|make|gpu|whole|brief)$|^```screen$", re.MULTILINE)


def address(path: Path) -> str:
    """The site's path for a file of the repository."""
    if path == ROOT / "README.md":
        return "index.md"
    inside = path.relative_to(ROOT / "docs" if path.is_relative_to(ROOT / "docs") else ROOT)
    # MkDocs would use a README as its folder's first page, and it skips names that begin with a dot.
    parts = [part.removeprefix(".") for part in inside.parts]
    name = "/".join(parts).removesuffix("README.md") + ("overview.md" if parts[-1] == "README.md" else "")
    return f"{name}.md" if path.suffix in _SHOWN or path.name in _PLAIN else name


def wanted() -> dict[Path, str]:
    """Every file of the site and its text, "" for a copied file: README, docs/ and everything they link to.

    Raises PluginError with every broken link.
    """
    found: dict[Path, str] = {}
    waiting = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    lost = []
    while waiting:
        page = waiting.pop()
        if page in found:
            continue
        found[page] = text = _text(page)
        if page.suffix == ".md":
            lost += [f"{page.relative_to(ROOT)}: {sentence}" for sentence in broken(page, text)]
            waiting += [path for path, _ in links(page, text) if path.is_file()]
    if lost:
        raise PluginError("; ".join(lost))
    return found


def _text(path: Path) -> str:
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    if path.suffix in _SHOWN or path.name in _PLAIN:
        source = path.read_text(encoding="utf-8").rstrip()
        head = f"---\nsearch:\n  exclude: true\n---\n\n# {path.relative_to(ROOT)}\n\n"
        return f"{head}`````{_SHOWN.get(path.suffix, 'text')}\n{source}\n`````\n"
    return ""


def on_files(files: Files, config: Any) -> Files:
    """MkDocs's hook for the list of files."""
    for old in list(files):
        if old.src_uri.endswith(".md"):
            files.remove(old)
    for path, text in wanted().items():
        if text:
            files.append(File.generated(config, address(path), content=_page(path, text)))
        else:
            files.append(File.generated(config, address(path), abs_src_path=str(path)))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """MkDocs's hook for a page's HTML: words in the cells of tables, as a case id, may go on in the next line."""
    return _CELL.sub(lambda cell: _TEXT.sub(lambda text: _BREAK.sub("<wbr>", text[0]), cell[0]), html)


def _page(path: Path, text: str) -> str:
    """A page with its links rewritten to the site's paths, and its code fences reduced to one word."""
    folder = Path(address(path)).parent

    def link(target: str) -> str:
        found, anchor = place(path, target)
        where = os.path.relpath(address(found), folder)
        return f"{where}#{anchor}" if anchor else where

    linked = relinked(text, link) if path.suffix == ".md" else text
    return _KIND.sub(lambda match: f"```{match[1] or 'text'}", linked)
