"""The console script: `harness NAME` runs `command` of `harness/commands/NAME.py`.

Adding a command is adding a file; its module is imported only when it is used or described.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from harness import commands
from harness.errors import Exit, HarnessError
from harness.suite.schema import nearest


class Commands(click.Group):
    """Finds commands by the names of the modules in `harness.commands`."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Every command there is."""
        return sorted(module.name for module in pkgutil.iter_modules(commands.__path__))

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """One command, or None if it does not exist."""
        if name not in self.list_commands(context):
            return None
        return importlib.import_module(f"harness.commands.{name}").command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, but an unknown command names the nearest."""
        if args and not args[0].startswith("-") and args[0] not in self.list_commands(context):
            raise click.UsageError(f"there is no command '{args[0]}'{nearest(args[0], self.list_commands(context))}")
        return super().resolve_command(context, args)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="nvfp4-harness", prog_name="harness")
def cli() -> None:
    """Verify and time NVFP4 kernels, byte for byte."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command. An error is one sentence and its exit code; HARNESS_DEBUG=1 shows where it was raised."""
    try:
        code = cli.main(arguments, prog_name="harness", standalone_mode=False)
    except click.ClickException as error:
        print(f"error: {error.format_message()}", file=sys.stderr)
        code = Exit.USAGE
    except click.Abort:
        code = Exit.INTERRUPTED
    except HarnessError as error:
        if os.environ.get("HARNESS_DEBUG") == "1":
            raise
        print(f"error: {error}", file=sys.stderr)
        code = error.exit_code
    except BrokenPipeError:
        _write_no_more()  # the reader, `head` for one, has seen enough
        code = Exit.CLEAN
    except OSError as error:
        if os.environ.get("HARNESS_DEBUG") == "1":
            raise
        print(f"error: {error.filename or 'the output'}: {error.strerror or error}", file=sys.stderr)
        _write_no_more()
        code = Exit.USAGE
    sys.exit(int(code) if isinstance(code, int) else 0)


def _write_no_more() -> None:
    # Python would complain again when it flushes on exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
