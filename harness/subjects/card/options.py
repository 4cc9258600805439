"""What a card's `.cu` may ask of the compiler: options that write and read no file, and includes from named folders.

NVRTC opens whatever file an `#include` names, and quotes its lines where they are no C++; some of its options write
files. A card may come from a stranger, so both are checked before NVRTC sees them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.errors import UsageError

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
_GAP = r"(?:[^\S\n]|/\*.*?\*/)*"
_DIRECTIVE = re.compile(rf"(?:\#|%:){_GAP}(?:include_next|include|import|embed)\b(?P<target>[^\n]*)", re.DOTALL)
_ASKED = re.compile(r"\b__has_(?:include_next|include|embed)\s*(?P<target>\([^\n]*)")
_TARGET = re.compile(rf"\(?{_GAP}(?P<mark>[\"<])(?P<name>[^\">\n]+)[\">]", re.DOTALL)


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


def refuse_foreign_files(path: Path, own: Sequence[Path], trusted: Sequence[Path]) -> None:
    """Raise UsageError if a `.cu`, or a file of these folders that it includes, names a file outside of them.

    own: folders whose files are read, too; trusted: folders of the harness and of CUDA toolkits
    Also for a name that a macro spells, because it is not known before NVRTC opens it.
    """
    seen, waiting = set(), [path]
    while waiting:
        current = waiting.pop()
        if current.resolve() in seen:
            continue
        seen.add(current.resolve())
        text = current.read_text(encoding="utf-8", errors="replace")
        for number, target in _targets(text):
            where = f"{current.name}:{number}"
            named = _TARGET.match(target.strip())
            if not named:
                raise UsageError(f'{where}: an include of a card names its file by "…" or <…>, and by no macro')
            name = named["name"]
            for there in (folder / name for folder in (current.parent, *own, *trusted, Path.cwd())):
                if not there.is_file():
                    continue
                if not _is_below(there, (*own, *trusted)):
                    raise UsageError(f"{where}: the include of {name!r} leads out of the card's folder and CUDA's")
                if not _is_below(there, trusted):
                    waiting.append(there)


def _split(word: str) -> tuple[str, str | None]:
    """An option's name without dashes, and its value if the word has one."""
    if re.match(rf"-[{_ONE_LETTER}](?!$)", word):
        return word[1], word[2:].removeprefix("=").strip()
    name, equals, value = word.partition("=")
    dashes = len(name) - len(name.lstrip("-"))
    return (name[dashes:] if dashes in (1, 2) else word), (value if equals else None)


def _targets(text: str) -> Iterator[tuple[int, str]]:
    """Line and rest of each directive that opens a file, in the text and in the text with its lines joined.

    Also of those in strings and block comments: what is skipped could be made to look like these.
    """
    for each in (text, re.sub(r"\\[^\S\n]*\r?\n", "", text)):
        for pattern in (_DIRECTIVE, _ASKED):
            for found in pattern.finditer(each):
                line = each[each.rfind("\n", 0, found.start()) + 1 : found.start()].strip()
                if not (line.startswith("//") and "*/" not in line):
                    yield each.count("\n", 0, found.start()) + 1, found["target"]


def _is_below(path: Path, folders: Sequence[Path]) -> bool:
    try:
        return any(path.resolve().is_relative_to(folder.resolve()) for folder in folders)
    except (OSError, RuntimeError, ValueError):
        return False
