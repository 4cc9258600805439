"""A folder in which the pages' `pip install` installs this checkout, offline, into an environment of its own.

Every other package is taken from the environment that runs: a page says how the harness is installed, and the test of
it must not ask an index.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from harness.files import ROOT
from harness.studies.docs.transcript import Session

CHECKOUT = "nvfp4-harness"


class FromNothing(Session):
    """An empty folder but for the checkout. The environment `venv` is used from when a block has made it."""

    def __init__(self, folder: Path):
        # Without a GPU, so that it prints the same everywhere.
        offline = {
            "CUDA_VISIBLE_DEVICES": "-1",
            "PIP_NO_INDEX": "1",
            "PIP_NO_DEPS": "1",
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_QUIET": "1",
        }
        super().__init__(folder, environment={**offline, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONPATH": ""})
        _copy(folder / CHECKOUT)
        self.before = f'python3() {{ "{sys.executable}" "$@"; }}'

    def run(self, kind: str, text: str) -> str:
        printed = super().run(kind, text)
        made = self.folder / "venv"
        if made.is_dir() and not self.before.startswith("."):
            _link_packages(made)
            self.before, self.python = ". venv/bin/activate", made / "bin" / "python"
        return printed


def _copy(folder: Path) -> None:
    """The files of the checkout, without results."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for name in names:
        if not name.startswith("results/") and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def _link_packages(environment: Path) -> None:
    """Links, because CUDA's libraries are searched for in an environment's own folder."""
    (packages,) = (environment / "lib").glob("python*/site-packages")
    for folder in (Path(path) for path in sys.path if path.endswith(("site-packages", "dist-packages"))):
        for path in folder.iterdir():
            link = packages / path.name
            if path.name.startswith(("pip", "nvfp4_harness", "__editable__")) or path.suffix == ".pth":
                continue
            if link.is_dir() and not link.is_symlink():
                shutil.rmtree(link)
            if not link.exists():
                link.symlink_to(path)
