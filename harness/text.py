"""Text for a terminal: names that others chose are shown as they are written and never act; near ones are offered."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

# Control characters except tab and newline, invisible and direction marks, and lone surrogates.
_ACTS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def acts(text: str) -> bool:
    """Whether a terminal or an editor would do anything but show each character of the text."""
    return _ACTS.search(text) is not None


def printable(text: str) -> str:
    r"""The text with such characters spelled out: `\x1b`. Lines and tabs stay."""
    return _ACTS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """The printable text on one line."""
    return printable(" ".join(text.split()) if "\n" in text or "\t" in text else text)


def spell(value: object) -> str:
    """A flag's value as it is written in YAML and in a case id."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def nearest(word: object, choices: Iterable[object]) -> str:
    """`; did you mean X?` if a choice is close to the word, else `; choose a, b or c`; empty without choices."""
    spelled = [spell(choice) for choice in choices]
    close = difflib.get_close_matches(spell(word), spelled, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{close[0]}'?"
    if not spelled:
        return ""
    return "; choose " + (" or ".join([", ".join(spelled[:-1]), spelled[-1]]) if len(spelled) > 1 else spelled[0])


def console(**options: Any) -> Console:
    """A rich console that prints `[red]` and `:heart:` literally."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False, **options)
