"""What several commands share: options, the width of a log, and the command line that a result says it was made by."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from harness.device.select import NAMES
from harness.errors import UsageError
from harness.files import INSTALLED, RECIPE_DIRS, require_place, use_include_dir
from harness.ground.command_lines import include_options, recipe_dir_option
from harness.suite.suite_file import use_recipe_dir


class Number(click.FloatRange):
    """A number in a range, and not NaN: NaN passes click's comparisons, and then every comparison with it is false."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number


class NamedPath(click.Path):
    """A non-empty `Path`. An empty text, as from an unset shell variable, would mean the current folder."""

    def __init__(self, **options: bool):
        super().__init__(path_type=Path, **options)

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty", parameter, context)
        return super().convert(value, parameter, context)


class Text(click.ParamType):
    """A text that is not empty, as one from an unset shell variable is: it would stand for all cases."""

    name = "text"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> str:
        return value or self.fail("it is empty", parameter, context)


class WrittenPath(NamedPath):
    """A folder that a command will write to; it is refused before any work if nothing can be written there."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        folder = super().convert(value, parameter, context)
        require_place(folder / "file")
        return folder


def require_checkout(command: str) -> None:
    """Raise UsageError in an installed wheel, whose files are pip's."""
    if INSTALLED:
        raise UsageError(f"`harness {command}` is for a checkout, and this is an installed wheel")


PATH = NamedPath()
FOLDER, NEW_FOLDER = NamedPath(file_okay=False), WrittenPath(file_okay=False)
FILE = NamedPath(dir_okay=False)


def _refuse_recipe_option(context: click.Context, parameter: click.Parameter, names: Sequence[str]) -> None:
    if names:
        line = shlex.join([*context.command_path.split(), *names])
        raise UsageError(f"recipes are words, without --recipe, for every command: `{line}`")


def with_words(argument: Callable) -> Callable:
    """An argument that takes recipes; --recipe, which some commands had for them, is refused."""
    hidden = {"multiple": True, "hidden": True, "expose_value": False, "callback": _refuse_recipe_option}
    refused = click.option("--recipe", "-R", "recipe_option", **hidden)
    return lambda command: argument(refused(command))


recipes = with_words(click.argument("recipes", nargs=-1, metavar="[RECIPE]..."))
sets = click.option("--set", "sets", multiple=True, metavar="NAME", help="only what this set runs (all sets)")
jobs = click.option(
    "--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True, help="compile this many at a time"
)


flags = click.option(
    "--flag", "flags", multiple=True, metavar="NAME=VALUE", help="a flag of the cases, as in rounding=sr"
)
shape = click.option(
    "--shape",
    type=Text(),
    metavar="RxC",
    help="their shape, as in 48x80, 8*1024x2048 or 64x512x128 (MxKxN)",
)


def out(text: str = "(results/runs/<UTC>)", name: str = "--out") -> Callable:
    """The option --out DIR, or another one that names the folder to write to."""
    return click.option(name, type=NEW_FOLDER, metavar="DIR", help=text)


def _used_folders(name: str, use: Callable[[Path], object], text: str) -> Callable:
    """An option that names folders, which are used before the command runs."""

    def callback(context: click.Context, parameter: click.Parameter, folders: tuple[Path, ...]) -> None:
        for folder in folders:
            use(folder)

    return click.option(
        name, multiple=True, type=PATH, metavar="DIR", is_eager=True, expose_value=False, callback=callback, help=text
    )


recipe_dir = _used_folders("--recipe-dir", use_recipe_dir, "a folder with recipes of yours: S.cu, S.py, S.yaml")
include = _used_folders("--include", use_include_dir, "a folder whose headers a card's .cu may include")
subject = click.option(
    "--subject", default="", metavar="NAME", help="what the run was made with; a file never says what to execute"
)


def device(text: str = "where the kernel runs (auto)") -> Callable:
    return click.option("--device", "device_name", type=click.Choice(NAMES), default="auto", help=text)


def extents(shape: str, form: str, example: str) -> list[int]:
    """The extents of a --shape that reads as `form`, `MxKxN`. Raises UsageError."""
    if not re.fullmatch("x".join([r"[1-9]\d*"] * (form.count("x") + 1)), shape):
        raise UsageError(f"--shape '{shape}' is not a shape; one reads {form}, as in {example}")
    return list(map(int, shape.split("x")))


def made_by(*left_out: str) -> str:
    """The running command as a line of shell, its options by their long names. left_out: parameters not to repeat"""
    context = click.get_current_context()
    house, *_, verb = context.command.callback.__module__.split(".")
    words = [*(["python", "-m"] if house != "harness" else []), house, verb]
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
        if not given or parameter.name in left_out:
            continue
        if parameter.name == "recipe_dir":  # its callback has used the folders, and no command gets them
            words += shlex.split("".join(dict.fromkeys(map(recipe_dir_option, RECIPE_DIRS))))
            continue
        if parameter.name == "include":
            words += include_options()
            continue
        value = context.params[parameter.name]
        values = value if isinstance(value, tuple) else (value,)
        if isinstance(parameter, click.Argument):
            words += map(str, values)
        elif parameter.is_flag:
            words.append(parameter.opts[0])
        else:
            for each in values:
                alone = each == parameter.flag_value  # the option was given without a value
                words += [parameter.opts[0]] if alone else [parameter.opts[0], str(each)]
    return shlex.join(words)
