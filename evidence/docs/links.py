"""The links of a Markdown page: their targets, and which ones are broken."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.files import ROOT

_FENCE = re.compile(r"^```.*?^```|^    .*?$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?P<head>\]\()(?P<target>[^)\s]+)(?P<tail>\))")
_HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)
_ELSEWHERE = re.compile(r"[a-z][a-z+.-]*:")


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as both the repository host and the site generate them."""
    titles = _HEADING.findall(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(page: Path, text: str) -> Iterator[tuple[Path, str]]:
    """The file that each link leads to, and the heading in it or ""; without links to other hosts."""
    for match in _LINK.finditer(_FENCE.sub("", text)):
        if not _ELSEWHERE.match(match["target"]):
            yield place(page, match["target"])


def place(page: Path, target: str) -> tuple[Path, str]:
    """The file and the heading of a link of a page. A folder is its README.md or its __init__.py."""
    path, _, anchor = target.partition("#")
    found = Path(os.path.normpath(page.parent / path)) if path else page
    inside = [found / name for name in ("README.md", "__init__.py")] if found.is_dir() else []
    return next((each for each in inside if each.is_file()), found), anchor


def relinked(text: str, new: Callable[[str], str]) -> str:
    """The text with each link that stays on this host rewritten. new: old target → new target"""
    kept = {match.span() for match in _FENCE.finditer(text)}

    def link(match: re.Match[str]) -> str:
        inside = any(start <= match.start() < end for start, end in kept)
        if inside or _ELSEWHERE.match(match["target"]):
            return match[0]
        return f"{match['head']}{new(match['target'])}{match['tail']}"

    return _LINK.sub(link, text)


def broken(page: Path, text: str) -> list[str]:
    """A sentence for each link that leads nowhere."""
    found = []
    for path, anchor in links(page, text):
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        if path.is_dir():
            found.append(f"{name} is a folder without README.md; link a file in it")
        elif not path.is_file():
            found.append(f"there is no {name}")
        elif anchor and anchor not in anchors(path.read_text(encoding="utf-8")):
            found.append(f"{name} has no heading #{anchor}")
    return found
