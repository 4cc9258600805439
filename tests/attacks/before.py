"""Run attacks on the harness of an earlier commit, where they may have worked, and on this one; write the table.

    python tests/attacks/before.py COMMIT [FILE ...] [--into results/ways_to_green.md]

The tests are this tree's, of these files or of all; `harness` is imported from a checkout of COMMIT, so a test that
needs what that harness has not cannot be tried there. An attack that worked on an earlier commit keeps its row, because
a test that has changed since may run there no more. Tests of what must pass have a docstring that begins with
"No way to green", and no row.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
HEAD = """\
# Ways to green

Made by `python tests/attacks/before.py COMMIT`, for each commit below: how each attack ended on the harness of that
commit (`then`), and how it ends on this one. `green`: it worked. `red`: it was refused, as now. `not green`: it did
not work, and ended otherwise than now, for example with another sentence. `cannot be tried`: its test needs
something that the harness of that commit does not have; nothing is known.

| attack | commit | then | now |
|---|---|---|---|
"""
GREEN, RED, NOT_GREEN, UNKNOWN = "green", "red", "not green", "cannot be tried"


def attacks(file: Path) -> set[str]:
    """The tests of a file that attack, `file::test`."""
    tests = [each for each in ast.parse(file.read_text()).body if isinstance(each, ast.FunctionDef)]
    return {
        f"{file.stem}::{test.name}"
        for test in tests
        if test.name.startswith("test_") and not (ast.get_docstring(test) or "").startswith("No way to green")
    }


def outcomes(tree: Path, files: Sequence[Path]) -> dict[str, str]:
    """How each attack of some files ends on the harness of a tree, by `file::test[parameters]`."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "attacks.xml")
        options = ["-n", "auto", "-q", "-p", "no:cacheprovider", "-p", "old_names"]
        command = [sys.executable, "-m", "pytest", *map(str, files), *options]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree), str(HERE)])}
        # Not from this tree's root, whose `harness` would come first.
        subprocess.run([*command, f"--junitxml={report}"], cwd=tree, env=environment, check=False)
        found = {_name(case): _outcome(case) for case in ElementTree.parse(report).iter("testcase")}
    known = set().union(*map(attacks, files))
    return {name: outcome for name, outcome in found.items() if name.partition("[")[0] in known}


def _name(case: ElementTree.Element) -> str:
    # A bar in a name would end its cell.
    name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
    return name.replace("|", "&#124;")


def _outcome(case: ElementTree.Element) -> str:
    found = [case.find(kind) for kind in ("failure", "error", "skipped")]
    messages = [each.get("message", "") for each in found if each is not None]
    if not messages:
        return RED
    if any("StillGreenError" in message for message in messages):
        return GREEN
    checked = all(message.startswith(("AssertionError", "assert ", "Failed: DID NOT")) for message in messages)
    return NOT_GREEN if checked else UNKNOWN


def rows(text: str) -> dict[str, list[str]]:
    """The cells of each attack of a table: commit, then and now."""
    cells = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| test_")
    ]
    return {name: rest for name, *rest in cells}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("commit")
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE")
    parser.add_argument("--into", type=Path)
    options = parser.parse_args()
    files = sorted(file.resolve() for file in options.files or HERE.glob("test_*.py"))
    commit = subprocess.check_output(["git", "rev-parse", "--short=7", options.commit], cwd=ROOT, text=True).strip()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        subprocess.run(["git", "worktree", "add", "--detach", "-q", str(tree), commit], cwd=ROOT, check=True)
        try:
            then = outcomes(tree, files)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    now = outcomes(ROOT, files)
    earlier = rows(options.into.read_text()) if options.into and options.into.exists() else {}
    tried = {file.stem for file in files}
    found = {name: cells for name, cells in earlier.items() if name.partition("::")[0] not in tried}
    for name, outcome in now.items():
        row = [commit, then.get(name, UNKNOWN)]
        if name in earlier and row[1] != GREEN and earlier[name][1] == GREEN:
            row = earlier[name][:2]
        found[name] = [*row, outcome]
    text = HEAD + "".join(f"| {' | '.join([name, *cells])} |\n" for name, cells in sorted(found.items()))
    print(text)
    if options.into:
        options.into.write_text(text)


if __name__ == "__main__":
    main()
