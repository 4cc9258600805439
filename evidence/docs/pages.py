"""Pages with rendered parts: what stands between `<!-- rendered NAME -->` and `<!-- end -->` is written by a function.

A part is made from committed results alone, so a page with a different figure is noticed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from evidence.docs.figures import RENDERERS
from harness.errors import UsageError
from harness.files import ROOT
from harness.text import nearest

_PART = re.compile(r"(?P<head><!-- rendered (?P<name>\w+) -->\n)(?P<body>.*?)(?P<tail><!-- end -->)", re.DOTALL)

# Renders Markdown, given the prefix from a page to the root, such as `../`.
Renderer = Callable[[str], str]


def all_pages() -> list[Path]:
    """README and the pages of `docs/`."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def parts(text: str) -> list[str]:
    """The names of a page's rendered parts, in order."""
    return [match["name"] for match in _PART.finditer(text)]


def without_rendered(text: str) -> str:
    """A page without its rendered parts."""
    return _PART.sub(lambda match: match["head"] + match["tail"], text)


def rendered(page: Path, text: str, renderers: Mapping[str, Renderer] = RENDERERS, root: Path = ROOT) -> str:
    """The text of a page with every part rendered again. Raises UsageError for an unknown or unclosed part."""
    up = os.path.relpath(root, page.parent)
    prefix = "" if up == "." else f"{up}/"
    opened = len(re.findall(r"<!-- rendered ", text))
    if not opened == len(parts(text)) == len(re.findall(r"<!-- end -->", text)):
        raise UsageError(
            f"{page}: {opened} rendered parts begin and {len(re.findall('<!-- end -->', text))} end; "
            "a part reads <!-- rendered NAME -->, its lines, <!-- end -->"
        )

    def part(match: re.Match[str]) -> str:
        if match["name"] not in renderers:
            raise UsageError(f"{page}: nothing renders '{match['name']}'{nearest(match['name'], list(renderers))}")
        return f"{match['head']}{renderers[match['name']](prefix).strip()}\n{match['tail']}"

    return _PART.sub(part, text)


def stale(page: Path, root: Path = ROOT) -> list[str]:
    """A message for each line of a page that differs from its renderer's output."""
    text = page.read_text(encoding="utf-8")
    before, after = (set(each.splitlines()) for each in (text, rendered(page, text, root=root)))
    name = page.relative_to(root)
    return [
        *(f"{name} says: {line}" for line in text.splitlines() if line not in after),
        *(f"{name} should say: {line}" for line in sorted(after - before)),
    ]
