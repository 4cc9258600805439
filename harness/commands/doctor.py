"""`harness doctor`"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import metadata

import click
from rich.console import Console
from rich.table import Table

from harness import device
from harness.compile import cache_folder, nvrtc_version
from harness.errors import Exit, HarnessError
from harness.suite import load_suites

PACKAGES = ("torch", "cupy-cuda13x", "ml_dtypes", "numpy", "pytest", "pytest-benchmark", "pytest-xdist")


@click.command()
def command() -> int:
    """Show what this machine can run, and what keeps it from more. Exits with 4 if it can run nothing."""
    table = Table("what", "found")
    for what, found in (("Python", platform.python_version()), *_packages(), *_compiler(), *_suites()):
        table.add_row(what, found)
    usable = 0
    for name in ("emulator", "cuda"):
        try:
            found = device.select(name)
            table.add_row(f"device {name}", f"runs {', '.join(found.targets)}; modes {', '.join(sorted(found.modes))}")
            for key, value in found.identity().items():
                table.add_row(f"  {key}", value)
            usable += 1
        except HarnessError as error:
            table.add_row(f"device {name}", str(error))
    Console(highlight=False).print(table)
    return Exit.CLEAN if usable else Exit.NO_DEVICE


def _packages() -> Iterator[tuple[str, str]]:
    for name in PACKAGES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            yield name, "not installed"


def _compiler() -> Iterator[tuple[str, str]]:
    try:
        yield "NVRTC", nvrtc_version()
    except HarnessError as error:
        yield "NVRTC", str(error)
    yield "compiled kernels", str(cache_folder())


def _suites() -> Iterator[tuple[str, str]]:
    try:
        suites = load_suites()
        yield "suites", ", ".join(f"{suite.recipe} ({len(suite.cases('smoke'))} smoke cases)" for suite in suites)
    except HarnessError as error:
        yield "suites", str(error)
