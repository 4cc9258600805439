"""Run every attack on the harness of an earlier commit, where it may have worked, and on this one; write the table.

    python tests/attacks/before.py COMMIT [--into results/ways_to_green.md]

The tests are this tree's; `harness` is imported from a checkout of COMMIT.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def outcomes(tree: Path) -> dict[str, str]:
    """`green`, `red` or `broken` for each attack on the harness of a tree, by `file::test`."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "attacks.xml")
        command = [sys.executable, "-m", "pytest", str(HERE), "-n", "auto", "-q", "-p", "no:cacheprovider"]
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        # Not from this tree's root, whose `harness` would come first.
        subprocess.run([*command, f"--junitxml={report}"], cwd=tree, env=environment, check=False)
        return {_name(case): _outcome(case) for case in ElementTree.parse(report).iter("testcase")}


def _name(case: ElementTree.Element) -> str:
    return f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"


def _outcome(case: ElementTree.Element) -> str:
    found = [case.find(kind) for kind in ("failure", "error")]
    messages = [each.get("message", "") for each in found if each is not None]
    if any("StillGreenError" in message for message in messages):
        return "green"
    return "broken" if messages else "red"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("commit")
    parser.add_argument("--into", type=Path)
    options = parser.parse_args()
    commit = subprocess.check_output(["git", "rev-parse", "--short", options.commit], cwd=ROOT, text=True).strip()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        subprocess.run(["git", "worktree", "add", "--detach", "-q", str(tree), commit], cwd=ROOT, check=True)
        try:
            then = outcomes(tree)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    now = outcomes(ROOT)
    # An attack that ended in an error at that commit, or could not be made there, was not green.
    green = {name: "green" if outcome == "green" else "never" for name, outcome in then.items()}
    lines = [f"| attack | at {commit} | now |", "|---|---|---|"]
    # A bar in a name would end its cell.
    lines += [
        f"| {name.replace('|', '&#124;')} | {green.get(name, 'never')} | {found} |"
        for name, found in sorted(now.items())
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.into:
        options.into.write_text(text)


if __name__ == "__main__":
    main()
