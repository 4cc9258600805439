"""The files that a card's `.cu` includes, read here, so that NVRTC opens none but a CUDA toolkit's.

NVRTC opens whatever an `#include` names, and quotes its lines where they are no C++. So it gets the text of every file
of the card's own folders, with each include rewritten to the name of such a text, of a toolkit's header, or to an
`#error`, which speaks up only where the preprocessor comes to it. Of options it gets those by which it reads and writes
no file, because a card may come from a stranger.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from operator import itemgetter
from pathlib import Path

from harness.errors import UsageError
from harness.files import INCLUDE_DIRS, KERNELS, is_file
from harness.jit import cuda_headers
from harness.jit.plain_text import plain

_FOREIGN = "this include leads out of the folder of the card, of CUDA and of those named by --include"
_NO_MACRO = "an include of a card names its file by quotes or angle brackets, and by no macro"
_NONE = "a card has no directive for files but #include"
_REFUSED = re.compile(
    rf"(?P<file>[^\n]+)\((?P<line>\d+)\): [^\n]*#error directive: (?P<why>{_FOREIGN}|{_NO_MACRO}|{_NONE})"
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:([<"])([^>"\n]+)[>"]|([A-Za-z_]\w*))', re.MULTILINE)
_IN_A_NAME = re.compile(r"[^*\"\\?\n]+")  # characters that NVRTC takes for the name and for nothing else
# Thrust names headers of its two systems by macros; these are their values where nobody changes them.
_OF_THRUST = r"#\s*define\s+{}\s+<__THRUST_(?P<side>HOST|DEVICE)_SYSTEM_ROOT(?P<path>[\w/.]+)>"
_SYSTEMS = {"HOST": "thrust/system/cpp", "DEVICE": "thrust/system/cuda"}
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


def trusted_folders() -> tuple[Path, ...]:
    """The folders whose headers NVRTC may read by itself: the harness's own, and those of CUDA toolkits."""
    return (KERNELS, *cuda_headers.candidates())


def sources_of(path: Path, options: Sequence[str], folders: Sequence[Path] = ()) -> Sources:
    """All sources of a card's `.cu`. options: the card's; folders: others of the card, beside the file's own

    Raises UsageError for an option that a card may not have, OSError if the file cannot be read.
    """
    beside, more = path.parent, (*folders, *INCLUDE_DIRS)
    if refused := refused_option(options, beside, (*more, *trusted_folders())):
        raise UsageError(refused)
    return Sources(path, [beside, *words_and_folders(options, beside)[1], *more], trusted_folders())


class Sources:
    """texts: for NVRTC, by name; main: the name of the card's file; files: those that were read of the folders `own`"""

    def __init__(self, path: Path, own: Sequence[Path], trusted: Sequence[Path]):
        """own: the folders in which includes are looked for first; trusted: those that NVRTC may read by itself"""
        self._card, self._own, self._trusted = path, tuple(dict.fromkeys(own)), tuple(trusted)
        self._resolved = cache(Path.resolve)  # of this object alone, because links may change
        self._allowed = [self._resolved(folder) for folder in (*own, *trusted)]
        self._known: dict[tuple[Path | None, str], tuple[Path | None, Path | None]] = {}
        # NVRTC would also look in the folder of this name, so it has one that cannot be; messages have the file's own.
        self.main = f"{os.devnull}/{path.name}"
        self._waiting = [(self.main, path)]
        self.texts: dict[str, str] = {}
        self.files: list[Path] = []
        while self._waiting:
            name, current = self._waiting.pop()
            if name not in self.texts:
                self.texts[name] = self._plain(current)
        self.texts[self.main] = f"#line 1 {json.dumps(path.name, ensure_ascii=False)}\n{self.texts[self.main]}"

    def _plain(self, current: Path) -> str:
        if not self._is_trusted(current):
            self.files.append(self._resolved(current))
        text = current.read_text(encoding="utf-8", errors="replace")

        def rewrite(directive: str, target: str) -> str:
            if directive != "include":
                return f"#error {_NONE} "
            if not target.startswith(("<", '"')):
                of_thrust = re.search(_OF_THRUST.format(target), text) if target else None
                if not of_thrust:
                    return f"#error {_NO_MACRO} "
                target = f"<{_SYSTEMS[of_thrust['side']]}{of_thrust['path']}>"
            return f"#{self._include(current, target)} "

        return plain(text, rewrite, lambda target: self._find(current, target)[1] is not None)

    def _include(self, current: Path, target: str) -> str:
        """The directive in place of `include <file>` or `include "file"`."""
        name = target[1:-1]
        folder, there = self._find(current, target)
        plainly = not name.startswith("/") and ".." not in Path(name).parts  # leads nowhere from the current folder
        if there is None:
            if folder is not None:
                return f"error {_FOREIGN}"
            return f"include <{name}>" if plainly and _IN_A_NAME.fullmatch(name) else _cannot_open(name)
        if self._is_trusted(there):
            # Its own includes are looked for beside it, so a link in the card's folder must not stand for it.
            spelled = f"<{name}>" if plainly and folder in self._trusted else f'"{self._resolved(there)}"'
            self._waiting += _by_macros(there, spelled[1:-1], self._trusted)
        else:
            registered = self._named(there)
            self._waiting.append((registered, there))
            spelled = f'"{registered}"'
        return f"include {spelled}" if _IN_A_NAME.fullmatch(spelled[1:-1]) else _cannot_open(name)

    def _find(self, current: Path, target: str) -> tuple[Path | None, Path | None]:
        """The folder in which an include's file was found, and the file; no file if it is foreign, neither if none."""
        beside = current.parent if target[0] == '"' else None
        if (beside, target) not in self._known:
            self._known[beside, target] = self._look(beside, target[1:-1])
        return self._known[beside, target]

    def _look(self, beside: Path | None, name: str) -> tuple[Path | None, Path | None]:
        foreign = None
        for folder in (*([beside] if beside else []), *self._own, *self._trusted):
            there = folder / name
            if is_file(there) and os.access(there, os.R_OK):
                if any(self._resolved(there).is_relative_to(each) for each in self._allowed):
                    return folder, there
                foreign = foreign or folder
        return foreign, None

    def _is_trusted(self, path: Path) -> bool:
        return any(self._resolved(path).is_relative_to(self._resolved(folder)) for folder in self._trusted)

    def _named(self, path: Path) -> str:
        """A file's name for NVRTC: from the card's folder if it is below, or else absolute.

        It begins with a dot, because NVRTC takes it before a file of that name that a toolkit's header includes.
        """
        whole, folder = self._resolved(path), self._resolved(self._card.parent)
        return f"./{whole.relative_to(folder)}" if whole.is_relative_to(folder) else str(whole)


def refusal(log: str) -> str:
    """The sentence of NVRTC's log on an include that a card may not have; empty if there is none."""
    refused = _REFUSED.search(log)
    return f"{refused['file'].removeprefix('./')}:{refused['line']}: {refused['why']}" if refused else ""


def _cannot_open(name: str) -> str:
    kept = re.sub(r"[^\w./ +=@~-]", "", name, flags=re.ASCII)
    return f'error cannot open source file "{kept}"'


@lru_cache(maxsize=256)
def _by_macros(header: Path, spelled: str, folders: tuple[Path, ...]) -> tuple[tuple[str, Path], ...]:
    """Spelling and path of each file that has an include by a macro, which a card could define before, among a header
    of a toolkit and what it includes, directly or not.
    """
    includes: dict[Path, list[tuple[str, str, str]]] = {}
    found, waiting = {}, [(spelled, header)]
    while waiting:
        spelled, path = waiting.pop()
        if path not in includes:
            includes[path] = _INCLUDE.findall(path.read_text(encoding="utf-8", errors="replace"))
            for mark, name, _ in filter(itemgetter(1), includes[path]):
                beside = [path.parent] if mark == '"' else []
                there = next((each / name for each in (*beside, *folders) if is_file(each / name)), None)
                waiting += [(name, there)] if there else []
        if any(macro for _, _, macro in includes[path]):
            found[spelled] = path
    return tuple(found.items())


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
            one_folder = name in _FOLDERS and value and not re.search(r"\s-", value)
            if one_folder and _is_below(beside / value, (beside, *folders)):
                continue
            word = " ".join(dict.fromkeys([word, value]))
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
