"""The command lines that a run's last screen shows: how to go on with it, and what lists the combinations refused."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from harness import files
from harness.records.run_folder import shown
from harness.runner.selection import Selection
from harness.suite.command_lines import recipe_dir_option, this_harness, this_python

TYPED = "HARNESS_TYPED"  # environment variable: the command that was typed, for the process below the supervisor


def going_on(words: Sequence[str], run_dir: Path) -> str:
    """The command that goes on with a run.

    words: those of pytest, for a process without a supervisor, which would know what was typed
    """
    typed = shlex.split(os.environ.get(TYPED, "")) or [this_python(Path.cwd()), "-m", "pytest", *words]
    named = any(word.partition("=")[0] == "--run-dir" for word in typed)
    own = [] if named else ["--run-dir", shown(run_dir)]
    return shlex.join([*(word for word in typed if word != "--resume"), *own, "--resume"])


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
