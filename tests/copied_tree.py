"""A copy of the tree that a test may spoil or extend, and commands that run in it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from processes import LONGEST

from harness.files import ROOT


class Tree:
    """All files of the checkout but those git ignores, and the committed results, which are only linked."""

    def __init__(self, root: Path):
        self.root = root
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
        for name in names:
            if not name.startswith("results/") and (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)
        # With their times, by which Python tells whether bytecode is of the file as it is: of one that is changed, it
        # is not, and compiling all others again would take each command seconds.
        compiled = [
            path for tree in ("harness", "ptx_emulator", "evidence") for path in (ROOT / tree).rglob("__pycache__")
        ]
        for folder in (path for path in compiled if (root / path.relative_to(ROOT)).parent.is_dir()):
            shutil.copytree(folder, root / folder.relative_to(ROOT), ignore=shutil.ignore_patterns("*-pytest-*"))
        (root / "results").symlink_to(ROOT / "results")

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """`python -m command` in the copy."""
        return self.python("-m", *command)

    def python(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Python in the copy, which leaves no bytecode that a changed file could be taken for."""
        command = [sys.executable, "-B", *arguments]
        return subprocess.run(command, cwd=self.root, input=stdin, capture_output=True, text=True, timeout=LONGEST)
