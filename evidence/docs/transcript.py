"""Pages that are transcripts: their blocks are run from an empty folder, one after the other.

| block | is |
|---|---|
| `sh`, `sh fails N` | commands of bash; they end with 0, or with N |
| `python` | a program |
| `text` | lines of what the block before it printed, up to an ellipsis |
| `text whole` | all that it printed, which `python -m evidence docs --run` writes |
| `text brief` | the same without the tables and what stands beside them |
| `sh make` | targets of the Makefile, which CI runs |
| `sh gpu` | commands that need a GPU |
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import HarnessError
from harness.files import ROOT
from harness.ground.command_lines import this_harness

BLOCK = re.compile(
    r"^```(?P<kind>sh|sh fails \d+|sh make|sh gpu|python|text|text whole|text brief)\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
SECONDS = 300
_NOT_RUN = ("sh make", "sh gpu")
WRITTEN = re.compile(r"^```text (whole|brief)$", re.MULTILINE)
# pytest's own lines, and its row of dots.
_NOISE = re.compile(
    r"^(=+ test session starts =+|platform |benchmark: |rootdir: |configfile: |plugins: |created: |collected |"
    r"\d+ workers|[-.\w/]* ?[.sFE]+ +\[ *\d+%\]|=+ .* in [\d.]+s.* =+)"
)
# Tables, rules between sections, the list of wrong cases, and the path of the page.
_BESIDE = re.compile(r"^([┌┏┃┡│├└╭╰]|[=_]{3,} |wrong +case$|the first: |[A-Z_]+  \S+/\S+$|results/runs/)")
_STAMP = re.compile(r"\d{8}T\d{6}Z(\.\d+)?")
_TIME = re.compile(r"\d+(\.\d+)? ?s\b|(?<=seconds)[\s│]*[\d.]+")


@dataclass
class Session:
    """A folder in which blocks are run. before: a line of bash that runs before each"""

    folder: Path
    before: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    python: Path = Path(sys.executable)

    def run(self, kind: str, text: str) -> str:
        """Run a block and return what it printed on both streams.

        Raises HarnessError if its exit code is not the one that its kind demands.
        """
        paths = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
        environment = {**os.environ, "COLUMNS": "100", "PYTHONPATH": paths, **self.environment}
        environment = {name: value for name, value in environment.items() if value}
        shell = ["bash", "-ec", f"{self.before}\n{text}"]
        words = [str(self.python), "-c", text] if kind == "python" else shell
        done = subprocess.run(
            words, cwd=self.folder, env=environment, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        code = int(kind.split()[2]) if kind.startswith("sh fails") else 0
        if done.returncode != code:
            raise HarnessError(f"this ended with {done.returncode} and not with {code}:\n{text}\n{done.stdout}")
        return done.stdout


def of_this_checkout(folder: Path) -> Session:
    """A session in which `harness` is this tree's, and `python` the running one."""
    return _OfThisCheckout(folder, f'python() {{ "{sys.executable}" "$@"; }}; harness() {{ python -m harness "$@"; }}')


class _OfThisCheckout(Session):
    """Prints commands that start this harness as `harness`, as they are typed in this shell."""

    def run(self, kind: str, text: str) -> str:
        return super().run(kind, text).replace(f"{shlex.join(this_harness(self.folder))} ", "harness ")


def blocks(text: str) -> list[tuple[str, str]]:
    """The kind and text of each block of a known kind."""
    return [(match["kind"], match["text"]) for match in BLOCK.finditer(text)]


def told_again(text: str, session: Session) -> str:
    """A page with every `text whole` block updated to the present output.

    Raises HarnessError for a block with a wrong exit code.
    """
    printed = ""

    def told(match: re.Match[str]) -> str:
        nonlocal printed
        kind, body = match["kind"], match["text"]
        if WRITTEN.match(f"```{kind}"):
            return f"```{kind}\n{tidy(printed, session.folder, kind)}```"
        if kind not in (*_NOT_RUN, "text"):
            printed = session.run(kind, body)
        return match[0]

    return BLOCK.sub(told, text)


def unlike(text: str, session: Session) -> list[str]:
    """A message for each line of a page's `text` blocks that was not printed, ignoring times."""
    printed, found = "", []
    for kind, body in blocks(text):
        if WRITTEN.match(f"```{kind}"):
            now = tidy(printed, session.folder, kind)
            if structure(now) != structure(body):
                found.append(f"the page shows\n{body}\nand now it is\n{now}\n`python -m evidence docs --run` writes it")
        elif kind == "text":
            lines = [line.strip() for line in printed.splitlines()]
            for shown in body.splitlines():
                beginning, cut, _ = shown.strip().partition("…")
                if not any(line.startswith(beginning) if cut else shown.strip() in line for line in lines):
                    found.append(f"{shown!r} is not in\n{printed}")
        elif kind not in _NOT_RUN:
            printed = session.run(kind, body)
    return found


def tidy(printed: str, folder: Path, kind: str) -> str:
    """A command's output without pytest's own lines and without the folder's path."""
    text = printed.replace(f"{folder}/", "").replace(f"{folder.resolve()}/", "")
    lines = [line.rstrip() for line in text.splitlines() if not _NOISE.match(line)]
    if kind == "text brief":
        lines = [line for line in lines if line and not _BESIDE.match(line)]
    return "\n".join(lines).strip("\n") + "\n"


def structure(text: str) -> list[str]:
    """Lines without times, and without the column widths that depend on them."""
    plain = _TIME.sub("N", _STAMP.sub("T", text))
    return [re.sub(r"[━─]+", "━", " ".join(line.split())) for line in plain.splitlines()]


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
