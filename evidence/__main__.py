"""`python -m evidence NAME` runs `command` of `evidence/commands/NAME.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import click

from evidence import commands
from harness import cli as harness
from harness.__main__ import main as run  # refuses a Python, or a current folder, in which nothing can run


@click.group(cls=harness.Commands, package=commands, rest="Evidence")
def cli() -> None:
    """Make the evidence about the harness itself: mutants, peers, tables."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one verb, as the harness runs a command."""
    run(arguments, cli, "python -m evidence")


if __name__ == "__main__":
    main()
