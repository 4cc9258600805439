"""The console script: `harness NAME` runs `command` of `harness/commands/NAME.py`.

A new command is a new file there. Its module is imported only when it is run; the help reads its docstring from the
file, because to import them all takes seconds. The help has the six first that a kernel's author needs. What makes
evidence about the harness itself is `python -m evidence NAME`, which has this class, too.
"""

from __future__ import annotations

import ast
import importlib
import io
import os
import pkgutil
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import click

from harness import commands
from harness.errors import Exit, HarnessError
from harness.files import ROOT
from harness.ground.ending import interrupt_by_signals
from harness.text import nearest, one_line, printable

GROUPS = {
    "First": ("new", "verify", "trace", "shrink", "bench", "gate"),
    "Cases and runs": ("list", "run", "report", "merge", "doctor"),
    "Other implementations": ("card", "handshake", "vectors"),
    "Recipes": ("recipes", "quality", "sr"),
}
_COMPLETION = (
    'Completion in a shell: eval "$(_HARNESS_COMPLETE=bash_source harness)", in zsh zsh_source; in fish\n'
    "_HARNESS_COMPLETE=fish_source harness | source"
)


class Commands(click.Group):
    """The modules of a package as commands. groups: title in the help → names; rest: the title of all others"""

    def __init__(
        self, *words: Any, package: ModuleType, groups: Mapping[str, Sequence[str]] | None = None, rest: str,
        **options: Any,
    ):  # fmt: skip
        settings = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
        super().__init__(*words, context_settings=settings, **options)
        self._package, self._groups, self._rest = package, groups or {}, rest

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Whole first sentences, in groups."""
        grouped = [name for names in self._groups.values() for name in names]
        others = [name for name in self.list_commands(context) if name not in grouped]
        for title, names in (*self._groups.items(), (self._rest, others)):
            if names:
                with formatter.section(title):
                    formatter.write_dl([(name, self.sentence(name)) for name in names])

    def list_commands(self, context: click.Context) -> list[str]:
        names = (module.name for module in pkgutil.iter_modules(self._package.__path__))
        return sorted(name for name in names if not name.startswith("_"))

    def sentence(self, name: str) -> str:
        """The first sentence of a command's help, whole, from its file."""
        tree = ast.parse(Path(self._package.__path__[0], f"{name}.py").read_text(encoding="utf-8"))
        command = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "command")
        return re.split(r"(?<=\w\.)\s", " ".join((ast.get_docstring(command) or "").split()))[0]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(context):
            return None
        return importlib.import_module(f"{self._package.__name__}.{name}").command

    def make_context(self, *words: Any, **options: Any) -> click.Context:
        """Read the words, and print the help if they ask for it."""
        with _ended_by_sigpipe():
            return super().make_context(*words, **options)

    def invoke(self, context: click.Context) -> Any:
        """Run the command."""
        with _ended_by_sigpipe():
            return super().invoke(context)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Refuse an unknown command with the nearest name."""
        if args and not args[0].startswith("-") and args[0] not in self.list_commands(context):
            hint = nearest(args[0], self.list_commands(context))
            if re.fullmatch(r"[a-z]+", args[0]) and (ROOT / "evidence" / "commands" / f"{args[0]}.py").is_file():
                hint = f"; `python -m evidence {args[0]}` is one"
            raise click.UsageError(f"there is no command '{args[0]}'{hint}")
        return super().resolve_command(context, args)


@click.group(
    cls=Commands,
    package=commands,
    groups=GROUPS,
    rest="For changing suites",
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    epilog=f"\b\n{_COMPLETION}",
)
@click.version_option(package_name="nvfp4-harness", prog_name="harness")
@click.pass_context
def cli(context: click.Context) -> None:
    """Verify and time NVFP4 kernels, byte for byte."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(Exit.USAGE)


def main(arguments: Sequence[str] | None = None, group: click.Group = cli, name: str = "harness") -> NoReturn:
    """Run one command. An error is one sentence and an exit code; HARNESS_DEBUG=1 shows where it was raised."""
    _have_outputs()
    interrupt_by_signals()
    try:
        code = group.main(arguments, prog_name=name, standalone_mode=False)
    except click.ClickException as error:
        _tell(f"error: {one_line(error.format_message())}")
        code = Exit.USAGE
    except (click.Abort, KeyboardInterrupt):
        code = Exit.INTERRUPTED
    except RuntimeError as error:
        if not isinstance(error.__cause__, KeyboardInterrupt):  # Python 3.11 wraps one that comes in `__set_name__`
            raise
        code = Exit.INTERRUPTED
    except MemoryError:
        _tell("error: this machine has not enough memory for that; choose less at a time")
        code = Exit.USAGE
    except (HarnessError, OSError) as error:
        if os.environ.get("HARNESS_DEBUG") == "1":
            raise
        text, code = error, getattr(error, "exit_code", Exit.USAGE)
        if isinstance(error, OSError):
            text = f"{error.filename or 'the output'}: {error.strerror or error}"
            _close_output()
        _tell(f"error: {printable(str(text))}")
    sys.exit(int(code) if isinstance(code, int) else 0)


@contextmanager
def _ended_by_sigpipe() -> Iterator[None]:
    """Where the reader, such as `head`, has read enough, end as other programs do, by SIGPIPE.

    click would end with 1, by which a byte differs, and so would rich, which makes a SystemExit of the error.
    """
    try:
        yield
    except (BrokenPipeError, SystemExit) as error:
        if not isinstance(error, BrokenPipeError) and not isinstance(error.__context__, BrokenPipeError):
            raise
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
        raise


def _tell(text: str) -> None:
    with suppress(OSError):  # the disk of a log may be full; the exit code is all that is left to tell
        print(text, file=sys.stderr)


def _have_outputs() -> None:
    # A shell may close them with `>&-`; then neither Python nor any process started from here has them.
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8"))
        elif isinstance(getattr(sys, name), io.TextIOWrapper):
            # A locale may lack a table's line characters; that must not end with 1, which means that a byte differs.
            getattr(sys, name).reconfigure(errors="backslashreplace")


def _close_output() -> None:
    # Python would fail again when it flushes at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
