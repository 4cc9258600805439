"""The command lines that results print. Pasted into a shell in the same folder, they repeat a case."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from harness import files
from harness.inputs import tensor_file
from harness.suite.strictness import strict, strict_option

_CHOOSE = ("VENV", "PYTHON")  # variables of the Makefile that choose the environment
_PLAIN = re.compile(r"[\w/=,+*.:#@-]*", re.ASCII)  # text that make passes to a shell unchanged


def quoted(case_id: str) -> str:
    """A case id as a shell word, always quoted, because ids contain commas and stars."""
    return "'" + case_id.replace("'", "'\"'\"'") + "'"


def recipe_dir_option(case_id: str) -> str:
    """The text ` --recipe-dir DIR` in shown commands for a case of a user's recipe; empty for ours."""
    folder = files.recipe_dir(case_id.partition("/")[0])
    if folder is None:
        return ""
    here = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    return f" --recipe-dir {shlex.quote(str(here))}"


def recipe_dir_options() -> list[str]:
    """The words `--recipe-dir DIR` for each folder of the user's recipes that is in use, for another process."""
    return [word for folder in dict.fromkeys(files.RECIPE_DIRS.values()) for word in ("--recipe-dir", str(folder))]


def verify_command(case_id: str, verb: str = "verify", subject: str = "", device: str = "") -> str:
    """The command line that verifies one case again, or runs another command, `verb`, on it.

    subject: what ran in place of our kernels, as `--subject` takes it
    device: named if `auto` would choose another one

    It is a make command only in the root of a checkout, for a case and a subject of the repository.
    """
    own = recipe_dir_option(case_id)
    card = subject.endswith((".yaml", ".yml"))  # a card is a user's file
    theirs = own or card or f"/{tensor_file.PREFIX}/" in case_id
    if theirs or strict() or files.INSTALLED or Path.cwd() != files.ROOT or not _PLAIN.fullmatch(case_id + subject):
        recipe = f" {case_id.partition('/')[0]}" if card else ""  # because the card would refuse other recipes
        named = f" --subject {shlex.quote(subject)}" if subject else ""
        chosen = f" --device {device}" if device else ""
        chosen += "".join(f" {word}" for word in strict_option() if verb == "verify")
        return f"harness {verb}{recipe}{own}{named}{chosen} --case {quoted(case_id)}"
    named = f" ARGS='--subject {subject}'" if subject else ""
    return f"make {verb} CASE='{case_id}'{named}{f' DEVICE={device}' if device else ''}{_environment_of_make()}"


def _environment_of_make() -> str:
    """The words VENV= and PYTHON= that make was called with, which choose the environment, as it hands them on."""
    words = re.findall(r"(?:\\.|\S)+", os.environ.get("MAKEFLAGS", ""))  # make puts a backslash before a space
    words = [re.sub(r"\\(.)", r"\1", word) for word in words]
    given = (word.partition("=") for word in (words[words.index("--") + 1 :] if "--" in words else ()))
    return "".join(f" {name}={shlex.quote(value) if value else ''}" for name, _, value in given if name in _CHOOSE)


def without_commands(story: str, commands: str = "trace|reproduce") -> str:
    """A story without the commands to trace and reproduce it, for cases where these would see other bytes."""
    return re.sub(rf"^ *(?:{commands}):? .*\n?", "", story, flags=re.MULTILINE).rstrip()
