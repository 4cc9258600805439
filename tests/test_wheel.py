"""The wheel holds what is read at run time, and verifies from an empty folder where nothing of the checkout is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

from copied_tree import Tree
from processes import LONGEST

from harness.errors import Exit
from harness.files import ROOT
from harness.suite.suite import load_suites

# For those who read the sources, which a wheel is not for.
LEFT_OUT = {"harness/kernels/README.md"}
TREE = "https://tree.example/v1"
CASES = (
    "swizzle/default/48x80/normal/eager",
    "dequantize/default/256x128/file:suites/data/minilm_sample.safetensors#ffn_down.input/eager",
)


def outside() -> dict[str, str]:
    """The environment without what would lead back to the checkout; PYTHONPATH may be what gives this one packages."""
    folders = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each and Path(each) != ROOT]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}


def pip(*words: str | Path) -> None:
    offline = outside() | {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run([sys.executable, "-m", "pip", *words], env=offline, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Installed:
    """The wheel in an environment of its own, which takes every other package from the one that runs this test."""

    def __init__(self, wheel: Path, folder: Path):
        venv.create(folder / "venv", symlinks=True)
        self.python = folder / "venv" / "bin" / "python"
        pip("--python", self.python, "install", wheel)
        (self.packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
        self._link_all_else()
        self.empty = folder / "empty"
        self.empty.mkdir()

    def files(self) -> set[Path]:
        """What the environment holds, compiled Python aside."""
        return {path for path in self.packages.rglob("*") if "__pycache__" not in path.parts}

    def _link_all_else(self) -> None:
        """Link other packages in, because CUDA's libraries are searched for in an environment's own folder."""
        for folder in (Path(path) for path in sys.path if path.endswith(("site-packages", "dist-packages"))):
            for path in folder.iterdir():
                link = self.packages / path.name
                if not (link.exists() or path.suffix == ".pth" or path.name.startswith("nvfp4_harness")):
                    link.symlink_to(path)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`harness WORDS` in the empty folder."""
        command = [self.python.with_name("harness"), *words]
        return subprocess.run(command, cwd=self.empty, env=outside(), capture_output=True, text=True, timeout=LONGEST)


def test_a_wheel_holds_the_harness_and_its_suites_and_verifies_in_an_empty_folder(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("SOURCE_URL", TREE)
    pip("wheel", "--no-build-isolation", "--wheel-dir", tmp_path, Tree(tmp_path / "tree").root)
    (wheel,) = tmp_path.glob("*.whl")
    assert held(wheel) == there() - LEFT_OUT
    assert elsewhere(wheel) == []
    installed = Installed(wheel, tmp_path)
    before = installed.files()
    listed = installed.run("list", "--ids")
    assert listed.stdout.split() == [case.id for suite in load_suites() for case in suite.cases("smoke")], listed.stderr
    verified = installed.run("verify", "--device", "emulator", *(word for case in CASES for word in ("--case", case)))
    assert verified.returncode == Exit.CLEAN, verified.stdout + verified.stderr
    (run,) = (installed.empty / "results" / "runs").iterdir()
    assert {"journal.jsonl", "verify.html"} <= {path.name for path in run.iterdir()}
    assert all(case in (run / "journal.jsonl").read_text() for case in CASES)
    assert installed.files() == before


def held(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def elsewhere(wheel: Path) -> list[str]:
    """The links of README that the page of an index would not find in the released tree."""
    with zipfile.ZipFile(wheel) as files:
        (name,) = (each for each in files.namelist() if each.endswith(".dist-info/METADATA"))
        text = files.read(name).decode()
    assert f"Project-URL: Source, {TREE}" in text
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    return [each for each in found if not (each.startswith(f"{TREE}/") and (ROOT / urlsplit(each).path[4:]).exists())]


def there() -> set[str]:
    """The files of the checkout, as the wheel names them."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "harness", "ptx_emulator", "suites"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return {f"harness/{name}" if name.startswith("suites/") else name for name in names if (ROOT / name).is_file()}
