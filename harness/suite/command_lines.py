"""The command lines that results print. Pasted into a shell in the same folder, they repeat a case."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from harness import files
from harness.inputs import tensor_file

_PLAIN = re.compile(r"[\w/=,+*.:#@-]*", re.ASCII)  # what make hands to a shell as it is


def quoted(case_id: str) -> str:
    """A case id as a word of shell, always in quotes, because ids have commas and stars in them."""
    return "'" + case_id.replace("'", "'\"'\"'") + "'"


def recipe_dir_option(case_id: str) -> str:
    """` --recipe-dir DIR` for a case of an own recipe, for commands that are shown; empty for ours."""
    folder = files.recipe_dir(case_id.partition("/")[0])
    if folder is None:
        return ""
    here = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    return f" --recipe-dir {shlex.quote(str(here))}"


def verify_command(case_id: str, verb: str = "verify", subject: str = "", device: str = "") -> str:
    """The command line that verifies one case again, or that does what `verb` says.

    subject: what ran in place of our kernels, as `--subject` takes it
    device: the one that it takes, where `auto` is another

    It is make's only where make runs: in the root of a checkout, for a case and a subject of the repository.
    """
    own = recipe_dir_option(case_id)
    card = subject.endswith((".yaml", ".yml"))  # a card is the user's, as the folder is that it lies in
    theirs = own or card or f"/{tensor_file.PREFIX}/" in case_id
    if theirs or files.INSTALLED or Path.cwd() != files.ROOT or not _PLAIN.fullmatch(case_id + subject):
        recipe = f" {case_id.partition('/')[0]}" if card else ""  # or all that the card does not run are refused
        named = f" --subject {shlex.quote(subject)}" if subject else ""
        chosen = f" --device {device}" if device else ""
        return f"harness {verb}{recipe}{own}{named}{chosen} --case {quoted(case_id)}"
    named = f" ARGS='--subject {subject}'" if subject else ""
    return f"make {verb} CASE='{case_id}'{named}{f' DEVICE={device}' if device else ''}"


def without_commands(story: str, commands: str = "trace|reproduce") -> str:
    """A story without the commands that trace and reproduce it, where they would see other bytes."""
    return re.sub(rf"^ *(?:{commands}):? .*\n?", "", story, flags=re.MULTILINE).rstrip()
