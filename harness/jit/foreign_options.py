"""The options that a card's `.cu` may have: those by which NVRTC reads and writes no file, because a card may come from
a stranger.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_YES_NO = re.compile("true|false")
_MACRO = re.compile(r"[A-Za-z_]\w*(\([\w, .]*\))?(=(?!.*[\r\n])(?!.*\s-).*)?")
_VALUES = {
    "D": _MACRO, "define-macro": _MACRO, "U": re.compile(r"[A-Za-z_]\w*"),
    "undefine-macro": re.compile(r"[A-Za-z_]\w*"),
    "std": re.compile(r"c\+\+\d\d"), "maxrregcount": re.compile(r"\d{1,4}"), "dopt": re.compile("on"),
    "ftz": _YES_NO, "prec-div": _YES_NO, "prec-sqrt": _YES_NO, "fmad": _YES_NO,
}  # fmt: skip
_BARE = {
    "use_fast_math", "restrict", "lineinfo", "generate-line-info", "extra-device-vectorization", "default-device",
    "device-int128",
}  # fmt: skip
_FOLDERS = {"I", "include-path"}
_ONE_LETTER = "DUI"
ALLOWED = (
    "-D, -U, -I (a folder in the card's own), -std, --use_fast_math, -ftz, -prec-div, -prec-sqrt, -fmad, "
    "-maxrregcount, --restrict, -lineinfo, --extra-device-vectorization, -default-device, -dopt=on, --device-int128"
)


def refused_option(options: Sequence[str], beside: Path, folders: Sequence[Path]) -> str:
    """A sentence on the first option that a card may not have; empty if there is none.

    beside: the card's folder; folders: others that -I may name
    """
    words = iter(options)
    for word in words:
        name, value = _split(word)
        if name in _BARE and value is None:
            continue
        if name in _VALUES or name in _FOLDERS:
            value = next(words, "") if value is None else value
            if name in _VALUES and _VALUES[name].fullmatch(value):
                continue
            if (
                name in _FOLDERS
                and value
                and not re.search(r"\s-", value)
                and _is_below(beside / value, (beside, *folders))
            ):
                continue
            return (
                f"option {' '.join(dict.fromkeys([word, value]))!r} is none that a card may have; it may have {ALLOWED}"
            )
        return f"option {word!r} is none that a card may have; it may have {ALLOWED}"
    return ""


def words_and_folders(options: Sequence[str], beside: Path) -> tuple[list[str], list[Path]]:
    """Checked options without those that name folders, and these folders, which NVRTC would look for elsewhere."""
    words, kept, found = iter(options), [], []
    for word in words:
        name, value = _split(word)
        if name in _FOLDERS:
            found.append(beside / (next(words) if value is None else value))
        else:
            kept += [word] if value is not None or name in _BARE else [word, next(words)]
    return kept, found


def _split(word: str) -> tuple[str, str | None]:
    """An option's name without dashes, and its value if the word has one."""
    if re.match(rf"-[{_ONE_LETTER}](?!$)", word):
        return word[1], word[2:].removeprefix("=").strip()
    name, equals, value = word.partition("=")
    dashes = len(name) - len(name.lstrip("-"))
    return (name[dashes:] if dashes in (1, 2) else word), (value if equals else None)


def _is_below(path: Path, folders: Sequence[Path]) -> bool:
    try:
        return any(path.resolve().is_relative_to(folder.resolve()) for folder in folders)
    except (OSError, RuntimeError, ValueError):
        return False
