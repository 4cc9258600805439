"""A folder in which the pages' `pip install` installs this checkout, offline, into a new environment.

All other packages come from the running environment, because the test of a page must not ask a package index.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from evidence.docs.transcript import Session
from harness.files import ROOT

CHECKOUT = "nvfp4-harness"


class FromNothing(Session):
    """A session in an empty folder with the checkout.

    Once a block has made the environment `venv`, later blocks use it.
    """

    def __init__(self, folder: Path):
        # The GPU is hidden, so that blocks print the same everywhere.
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
    """Link installed packages into the environment, because CUDA's libraries are searched for in its own folder."""
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
