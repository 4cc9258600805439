from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import click
from rich.table import Column, Table

from harness.commands import _shared
from harness.device.select import select
from harness.errors import Exit, HarnessError
from harness.files import ROOT
from harness.jit.compile import cache_folder, nvrtc_version
from harness.suite.suite import load_suites

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
# Program → what needs it
PROGRAMS = {"git": "`harness gate --base`, and the commit in every record"}


class Finding(NamedTuple):
    """A line of the table. mend: how to mend it, empty if nothing is wrong"""

    what: str
    found: str
    mend: str = ""


@click.command()
def command() -> int:
    """Show what this machine can run, what it cannot, why, and what mends it. Exits with 4 if it can run nothing."""
    devices = [_device("emulator"), _device("cuda")]
    table = Table("what", Column("found", overflow="fold"), Column("to mend it", overflow="fold"))
    for finding in (
        Finding("Python", platform.python_version()),
        *_packages(), *_programs(), _compiler(), *_folders(), _suites(), *(line for lines in devices for line in lines),
    ):  # fmt: skip
        table.add_row(*finding)
    _shared.log_console().print(table)
    usable = any(not lines[0].mend for lines in devices)
    return Exit.CLEAN if usable else Exit.NO_DEVICE


def _packages() -> Iterator[Finding]:
    for name, purpose in PACKAGES.items():
        try:
            yield Finding(name, metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Finding(name, f"not installed; for {purpose}", f"python -m pip install -c constraints.txt {name}")


def _programs() -> Iterator[Finding]:
    for name, purpose in PROGRAMS.items():
        if shutil.which(name):
            yield Finding(name, "found")
        else:
            yield Finding(name, f"not installed; for {purpose}", f"install {name} with the system's package manager")


def _compiler() -> Finding:
    try:
        return Finding("NVRTC", nvrtc_version())
    except HarnessError as error:
        packages = "cuda-bindings nvidia-cuda-nvrtc"
        return Finding("NVRTC", str(error), f"python -m pip install -c constraints.txt {packages}")


def _folders() -> Iterator[Finding]:
    for what, folder, mend in (
        ("compiled kernels", cache_folder, "set HARNESS_CACHE to a folder that can be written"),
        ("results of runs", lambda: ROOT / "results", "name another folder with --run-dir"),
    ):
        try:
            path: Path = folder()
            writable = os.access(path, os.W_OK)
            yield Finding(what, str(path) if writable else f"{path} cannot be written", "" if writable else mend)
        except OSError as error:
            yield Finding(what, f"{error.filename}: {error.strerror}", mend)


def _suites() -> Finding:
    try:
        counts = ", ".join(f"{suite.recipe} {len(suite.cases('smoke'))}" for suite in load_suites())
        return Finding("smoke cases", counts)
    except HarnessError as error:
        return Finding("smoke cases", str(error), "mend the suite at that line")


def _device(name: str) -> list[Finding]:
    try:
        found = select(name)
    except HarnessError as error:
        return [Finding(f"device {name}", str(error), _mend_of_device(str(error)))]
    runs = f"runs {', '.join(found.targets)}; modes {', '.join(sorted(found.modes))}"
    return [Finding(f"device {name}", runs), *(Finding(f"  {key}", value) for key, value in found.identity().items())]


def _mend_of_device(reason: str) -> str:
    if "CPU build" in reason:
        return "install a build of torch with CUDA"
    if "needs CuPy" in reason:
        return 'python -m pip install -c constraints.txt ".[gpu]", on a machine with an NVIDIA GPU'
    return "run on a machine with an NVIDIA GPU whose driver answers `nvidia-smi`"
