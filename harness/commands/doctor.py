from __future__ import annotations

import itertools
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import click
from rich.table import Column, Table

from harness.device.select import select
from harness.errors import Exit, HarnessError, StorageError
from harness.files import INSTALLED, RESULTS
from harness.jit.cache import cache_folder
from harness.jit.nvrtc import nvrtc_version
from harness.report.console import log_console
from harness.suite.suite import load_suites

INSTALL = "python -m pip install" if INSTALLED else "python -m pip install -c constraints.txt"
# Package → what needs it
PACKAGES = {
    "numpy": "the first oracle",
    "ml_dtypes": "bf16 and e4m3 in NumPy",
    "torch": "the second oracle; nothing passes without it",
    "pytest": "the runner",
    "pytest-xdist": "cases side by side",
    "pytest-benchmark": "the recorder of times",
    "cupy-cuda13x": "GPUs",
    "matplotlib": "the pictures of `harness quality`",
    "clang-format": "`make check`",
}

_WIDEST = 76  # columns for what was found, so that a row fits 100 columns


class Finding(NamedTuple):
    """A line of the table. fix: how to fix it, empty if nothing is wrong"""

    what: str
    found: str
    fix: str = ""


@click.command()
def command() -> int:
    """Show what this machine can run, what it cannot, why, and how to fix it. Exits with 4 if it can run nothing."""
    devices = [_device("emulator"), _device("cuda")]
    table = Table("what", Column("found, and how to fix it", overflow="fold", max_width=_WIDEST))
    for finding in (
        Finding("Python", platform.python_version()),
        *_packages(),
        _git(),
        _asked("NVRTC", nvrtc_version, f"{INSTALL} cuda-bindings nvidia-cuda-nvrtc"),
        *_folders(),
        _asked("smoke cases", _smoke_cases, "correct the suite at that line"),
        *itertools.chain(*devices),
    ):
        table.add_row(finding.what, f"{finding.found}\n{finding.fix}" if finding.fix else finding.found)
    log_console().print(table)
    usable = any(not lines[0].fix for lines in devices)
    return Exit.CLEAN if usable else Exit.NO_DEVICE


def _packages() -> Iterator[Finding]:
    for name, purpose in PACKAGES.items():
        try:
            yield Finding(name, metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Finding(name, f"not installed; for {purpose}", f"{INSTALL} {name}")


def _git() -> Finding:
    if shutil.which("git"):
        return Finding("git", "found")
    purpose = "`harness gate --base`, and the commit in every record"
    return Finding("git", f"not installed; for {purpose}", "install git with the system's package manager")


def _asked(what: str, ask: Callable[[], str], fix: str) -> Finding:
    try:
        return Finding(what, ask())
    except HarnessError as error:
        return Finding(what, str(error), fix)


def _folders() -> Iterator[Finding]:
    for what, folder, fix in (
        ("compiled kernels", cache_folder, "set HARNESS_CACHE to a folder that can be written"),
        ("results of runs", lambda: RESULTS, "name another folder with --run-dir"),
    ):
        try:
            path: Path = folder()
            there = next(each for each in (path, *path.parents) if each.exists())
            writable = there.is_dir() and os.access(there, os.W_OK)
            yield Finding(what, str(path) if writable else f"{path} cannot be written", "" if writable else fix)
        except StorageError as error:
            yield Finding(what, str(error).partition(";")[0], fix)
        except OSError as error:
            yield Finding(what, f"{error.filename}: {error.strerror}", fix)


def _smoke_cases() -> str:
    return ", ".join(f"{suite.recipe} {len(suite.cases('smoke'))}" for suite in load_suites())


def _device(name: str) -> list[Finding]:
    try:
        found = select(name)
    except HarnessError as error:
        return [Finding(f"device {name}", str(error), _fix_of_device(str(error)))]
    runs = f"runs {', '.join(found.targets)}; modes {', '.join(sorted(found.modes))}"
    return [Finding(f"device {name}", runs), *(Finding(f"  {key}", value) for key, value in found.identity().items())]


def _fix_of_device(reason: str) -> str:
    if "CPU build" in reason:
        return "install a build of torch with CUDA"
    if "needs CuPy" in reason:
        what = "cupy-cuda13x" if INSTALLED else '".[gpu]"'
        return f"{INSTALL} {what}, on a machine with an NVIDIA GPU"
    return "run on a machine with an NVIDIA GPU whose driver answers `nvidia-smi`"
