"""The command lines that results print. Pasted into a shell in the same folder, they repeat a case.

A result has no words of a shell: only here, where it is known who asked and from which folder, they are made.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from harness import files
from harness.ground.strictness import strict_option
from harness.text import one_line

_CHOOSE = ("VENV", "PYTHON")  # variables of the Makefile that choose the environment
_MADE = {"VENV": ".venv", "PYTHON": "python3"}  # their values in the Makefile
UNNAMED = "?"  # stands in commands for what a file names and the command line does not
_EXECUTES_NOTHING = re.compile(r"(?<!\S)(?:--strict(?:-ptx)?|--case-timeout \d+(?:\.\d+)?)(?!\S)", re.ASCII)
_TENSOR_FILE = "/file:/"  # in a case id: the absolute path of a user's tensor
_PLAIN = re.compile(r"[\w/=,+*.:#@-]*", re.ASCII)  # text that make passes to a shell unchanged


@dataclass(frozen=True)
class Asked:
    """The origin of a run: what a command that repeats one of its cases needs beside the case. Kept in the journal.

    folder: where they asked, absolute; subject: what ran in place of our kernels, as they spelled it there
    recipe_dirs: a user's recipe → its folder, absolute
    options: others that a verdict may depend on, as words: the longest time of a case, a cluster, --strict
    unnamed: of a run in a file: its folder, which has what this command line does not name; else empty
    include_dirs: the folders whose headers a card may include, absolute
    """

    folder: str
    subject: str = ""
    recipe_dirs: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    unnamed: str = ""
    include_dirs: tuple[str, ...] = ()

    @classmethod
    def here(cls, subject: str = "", options: Sequence[str] = ()) -> Asked:
        """The request of this process, made in the current folder."""
        folders = {recipe: str(folder) for recipe, folder in files.RECIPE_DIRS.items()}
        include_dirs = tuple(map(str, files.INCLUDE_DIRS))
        return cls(str(Path.cwd()), subject, folders, (*options, *strict_option()), include_dirs=include_dirs)

    @classmethod
    def from_header(cls, about: Mapping[str, Any], run: Path, subject: str = "") -> Asked | None:
        """The origin of a run in a file; None if its journal keeps none, because then its stories have the commands.

        about: the first line of the journal in the folder `run`; subject: as this command line names it
        A file does not say what to execute: of the subject and the folders it keeps, only those stay that this command
        line names, too, and of other options the ones that execute nothing.
        """
        if not about.get("asked"):
            return None
        words, own = " ".join(map(str, about["asked"].get("options", ()))), cls.here(subject)
        options = [word for found in _EXECUTES_NOTHING.findall(words) for word in found.split()]
        meant = subject_of(about)
        named = subject if own.same_subject(meant) else UNNAMED
        left_out = not own.has_includes_of(meant)
        include_dirs = (*own.include_dirs, *([UNNAMED] if left_out else []))
        return cls(own.folder, named, own.recipe_dirs, tuple(options), str(run), include_dirs)

    def to_header(self) -> dict[str, Any]:
        return {
            **{name: value for name, value in asdict(self).items() if name != "unnamed"},
            "options": list(self.options),
            "include_dirs": list(self.include_dirs),
        }

    def same_subject(self, other: Asked) -> bool:
        """Whether both name the same subject, a card from whatever folder."""
        return self._subject() == other._subject()

    def has_includes_of(self, other: Asked) -> bool:
        """Whether this names all folders of headers that the other does."""
        return set(other.include_dirs) <= set(self.include_dirs)

    def subject_words(self) -> list[str]:
        """The words `--subject NAME`, and `--include DIR` for what a card may include; none without a subject."""
        folders = self.include_dirs if self.subject else ()
        words = [word for each in folders for word in ("--include", _below(each, self.folder))]
        return [*(["--subject", self.subject] if self.subject else []), *words]

    def _subject(self) -> str:
        return str(Path(self.folder, self.subject).resolve()) if is_card(self.subject) else self.subject

    def recipe_dir_words(self, case_id: str) -> list[str]:
        """The words `--recipe-dir DIR` for a case of a user's recipe; a pipeline may have stages of all of them."""
        recipe = case_id.partition("/")[0]
        own = self.recipe_dirs.get(recipe)
        if own is None:
            return ["--recipe-dir", UNNAMED] if self.unnamed and not (files.SUITES / f"{recipe}.yaml").is_file() else []
        whole = (Path(own) / f"{recipe}.cu").is_file()
        folders = [own] if whole else dict.fromkeys([own, *self.recipe_dirs.values()])
        return [word for each in folders for word in ("--recipe-dir", _below(each, self.folder))]


def is_card(subject: str) -> bool:
    """Whether a subject on the command line is a card, a file of launches."""
    return subject.endswith((".yaml", ".yml"))


def is_guest(subject: str) -> bool:
    """Whether a subject on the command line is a function, which may do whatever its user may."""
    return bool(subject) and not is_card(subject)


def subject_of(about: Mapping[str, Any]) -> Asked:
    """The subject that a journal's first line names, and the folder in which it was named."""
    asked = about.get("asked") or {}
    label = str(about.get("device", {}).get("subject", ""))
    subject = str(asked.get("subject", "")) or label.rpartition(" (")[0] or label
    return Asked(str(asked.get("folder", "")), subject, include_dirs=tuple(map(str, asked.get("include_dirs", ()))))


def quoted(case_id: str) -> str:
    """A case id as a shell word, always quoted, because ids contain commas and stars."""
    return "'" + case_id.replace("'", "'\"'\"'") + "'"


def this_python(folder: Path) -> str:
    """The word that starts this interpreter in a folder: `python` if it is found as that, or else its path."""
    own, found = Path(sys.executable), shutil.which("python")
    if found and Path(found).parent == own.parent and own.exists() and Path(found).samefile(own):
        return "python"
    return _below(str(own), str(folder))


def this_harness(folder: Path) -> list[str]:
    """The words that start this harness in a folder: `harness` if it is found as that, or else the script's path.

    Of a tree that this Python runs and that is not installed in its environment, the script would start another one.
    """
    script = Path(sys.executable).with_name("harness")
    if not (script.is_file() and _installed()):
        return [this_python(folder), "-m", "harness"]
    found = shutil.which("harness")
    return ["harness" if found and Path(found).absolute() == script else _below(str(script), str(folder))]


def _installed() -> bool:
    """Whether the environment's harness is this one: its wheel, or a checkout that was installed to be edited."""
    if files.INSTALLED:
        return files.PACKAGE.is_relative_to(Path(sys.prefix).resolve())
    # All of them, because a checkout in which this was started has one, too, that says nothing.
    origins = (found.read_text("direct_url.json") for found in metadata.distributions(name="nvfp4-harness"))
    return any(json.loads(each or "{}").get("url", "") == files.ROOT.as_uri() for each in origins)


def recipe_dir_option(case_id: str) -> str:
    """The text ` --recipe-dir DIR` in shown commands for a case of a user's recipe; empty for ours."""
    return "".join(f" {shlex.quote(word)}" for word in Asked.here().recipe_dir_words(case_id))


def recipe_dir_options() -> list[str]:
    """The words `--recipe-dir DIR` for each folder of the user's recipes that is in use, for another process."""
    return [word for folder in dict.fromkeys(files.RECIPE_DIRS.values()) for word in ("--recipe-dir", str(folder))]


def include_options() -> list[str]:
    """The words `--include DIR` for each folder whose headers a card may include, for another process."""
    return [word for folder in files.INCLUDE_DIRS for word in ("--include", str(folder))]


def verify_command(case_id: str, verb: str = "verify", asked: Asked | None = None, device: str = "") -> str:
    """The command line that verifies one case again, or runs another command, `verb`, on it.

    asked: who asked, if it was not this process; device: named if `auto` would choose another one

    It is a make command only if make started this in the root of a checkout, for a case and a subject of the
    repository, and make would use this very environment.
    """
    asked = asked or Asked.here()
    own, subject = asked.recipe_dir_words(case_id), asked.subject
    card = is_card(subject)  # a card is a user's file
    theirs = own or card or _TENSOR_FILE in case_id
    plain = _PLAIN.fullmatch(case_id + subject + "".join(asked.options))
    if plain and not theirs and asked.folder == str(Path.cwd()) and _asked_by_make():
        more = [*(["--subject", subject] if subject else []), *asked.options]
        given = f" ARGS='{' '.join(more)}'" if more else ""
        return f"make {verb} CASE='{case_id}'{given}{f' DEVICE={device}' if device else ''}{_environment_of_make()}"
    words = [verb]
    words += [case_id.partition("/")[0]] if card else []  # because the card would refuse other recipes
    words += own
    words += asked.subject_words()
    words += [*asked.options, *(["--device", device] if device else [])]
    return _line(asked, words, case_id, bool(own or subject))


def trace_command(case_id: str, options: Iterable[str], asked: Asked | None = None, device: str = "") -> str:
    """The command line that shows one block of a case step by step. options: which one, and for which target"""
    asked = asked or Asked.here()
    own = asked.recipe_dir_words(case_id)
    after = [*options, *(["--device", device] if device else [])]
    return f"{_line(asked, ['trace', *own], case_id, bool(own), '')} {shlex.join(after)}".rstrip()


def handshake_command(pair: str, name: str, device: str = "") -> str:
    """The command line that repeats one case of a pair. pair: as it was spelled; name: SHAPE/INPUT"""
    asked = Asked.here()
    folders = [_below(each, asked.folder) for each in dict.fromkeys(asked.recipe_dirs.values())]
    words = ["handshake", pair, *(word for each in folders for word in ("--recipe-dir", each))]
    words += [word for each in asked.include_dirs for word in ("--include", _below(each, asked.folder))]
    return _line(asked, [*words, *(["--device", device] if device else [])], name, False)


def _line(asked: Asked, words: Sequence[str], case: str, of_folder: bool, option: str = "--case ") -> str:
    """The line for the current folder. of_folder: whether words are spelled for the one in which they were asked"""
    elsewhere = of_folder and asked.folder != str(Path.cwd())
    start = this_harness(Path(asked.folder) if elsewhere else Path.cwd())
    first = f"cd {shlex.quote(asked.folder)} && " if elsewhere else ""
    # A shell takes the end of the line for a comment, and the harness refuses the sign.
    end = f"  # {UNNAMED}: as {shlex.quote(one_line(asked.unnamed))} was made" if UNNAMED in words else ""
    return f"{first}{shlex.join([*start, *words])} {option}{quoted(case)}{end}"


def _below(path: str, folder: str) -> str:
    """A path for commands that are typed in a folder: relative to it if it lies below, or else absolute."""
    own = Path(path)
    return str(own.relative_to(folder)) if own.is_relative_to(folder) else path


def _asked_by_make() -> bool:
    """Whether this was started by a make in the root of a checkout that would use this Python again."""
    if not os.environ.get("MAKELEVEL") or files.INSTALLED or Path.cwd() != files.ROOT:
        return False
    chosen = _MADE | _given_to_make()
    if chosen["VENV"].strip():
        return Path(sys.prefix).resolve() == (files.ROOT / chosen["VENV"].strip()).resolve()
    found = shutil.which(chosen["PYTHON"])
    return bool(found) and Path(found).absolute() == Path(sys.executable).absolute()


def _given_to_make() -> dict[str, str]:
    """VENV= and PYTHON= that make was called with, as it hands them on."""
    words = re.findall(r"(?:\\.|\S)+", os.environ.get("MAKEFLAGS", ""))  # make puts a backslash before a space
    words = [re.sub(r"\\(.)", r"\1", word) for word in words]
    given = (word.partition("=") for word in (words[words.index("--") + 1 :] if "--" in words else ()))
    return {name: value for name, _, value in given if name in _CHOOSE}


def _environment_of_make() -> str:
    return "".join(f" {name}={shlex.quote(value) if value else ''}" for name, value in _given_to_make().items())
