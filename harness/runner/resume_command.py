"""The command lines that a run's last screen shows: how to go on with it, and what lists the combinations refused."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from harness import files
from harness.ground.command_lines import recipe_dir_option, this_harness, this_python
from harness.records.run_folder import shown
from harness.runner.below_supervisor import supervised
from harness.runner.request import named_suites
from harness.runner.selection import Selection

TYPED = "HARNESS_TYPED"  # environment variable: the command that was typed, for the process below the supervisor


def typed(words: Sequence[object]) -> list[str]:
    """The command that was typed. words: those of pytest, for a process without a supervisor, which would know it"""
    # Without a supervisor somebody else has set the variable.
    known = shlex.split(os.environ.get(TYPED, "")) if supervised() else []
    return known or [this_python(Path.cwd()), "-m", "pytest", *map(str, words)]


def going_on(words: Sequence[object], run_dir: Path) -> str:
    """The command that goes on with a run. words: those of pytest"""
    began = typed(words)
    named = any(word.partition("=")[0] == "--run-dir" for word in began)
    own = [] if named else ["--run-dir", shown(run_dir)]
    return shlex.join([*(word for word in began if word != "--resume"), *own, "--resume"])


def gate(words: Sequence[object], folder: Path) -> str:
    """A sentence on pytest's own exit code, with the command whose exit code is a gate.

    words: those of pytest; folder: where they were typed
    """
    recipes, options, skip = [], [], False
    for word in map(str, words):
        suites = [] if word.startswith("-") else named_suites([word], folder)[0]
        if skip or word.partition("=")[0] == "--run-dir" or word in ("--resume", "--bench"):
            skip = word == "--run-dir"
        elif suites:
            whole = Path(folder, word).resolve() == files.SUITES
            recipes += [] if whole else [_named(suite) for suite in suites]
            options += ["--case", word.partition("::")[2]] if "::" in word else []
        else:
            options += [word]
    verb = "bench" if "--bench" in words else "verify"
    found = all(suite.suffix == "" for suite in map(Path, recipes))  # by name; others are in a folder of somebody's
    command = shlex.join([*this_harness(Path.cwd()), verb, *(dict.fromkeys(recipes) if found else ())])
    shown_options = f" {shlex.join(options)}" if found and options else ""
    return (
        f"this exit code is no gate, because pytest's plugins could set it; that of `{command}{shown_options}` is one"
    )


def listing_refused(selection: Selection) -> str:
    """The command that lists the combinations that the suites of a selection refuse."""
    whole = sorted(selection.paths) == sorted(files.SUITES.glob("*.yaml"))
    suites = () if whole else sorted(selection.cases)
    words = [*this_harness(Path.cwd()), "list", *map(_named, suites)]
    words += ["--set", selection.set_name] if selection.set_name != "smoke" else []
    own = [suite.stem for suite in suites if suite.parent == files.recipe_dir(suite.stem)]
    return f"{shlex.join(words)}{''.join(dict.fromkeys(map(recipe_dir_option, own)))} --refused"


def _named(suite: Path) -> str:
    """A suite's recipe, or the suite's path if it is not found by a name."""
    return suite.stem if suite.parent in (files.SUITES, files.recipe_dir(suite.stem)) else shown(suite)
