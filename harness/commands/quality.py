from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.progress import Progress

from harness.commands import _shared
from harness.contract.dtypes import DTYPES
from harness.errors import UsageError
from harness.quality import measure, tables, tensors, variants
from harness.quality.compare import SCOPES, Comparison
from harness.quality.tables import Results
from harness.quality.tensors import Tensor
from harness.records.run_folder import new_folder
from harness.report.console import log_console
from harness.suite.suite_file import is_recipe


@click.command()
@_shared.with_words(click.argument("words", nargs=-1, metavar="[FILE] [RECIPE[/K=V,...]]..."))
@click.option("--tensor", "-t", "patterns", multiple=True, metavar="NAME", help="only this tensor of FILE, or 'NA*ME'")
@click.option("--input", "-i", "names", multiple=True, metavar="NAME", help="this distribution, as suites name it")
@click.option("--scope", "scopes", multiple=True, type=click.Choice(SCOPES), help="which of FILE take four_over_six")
@click.option("--dtype", type=click.Choice(tuple(DTYPES)), default="bf16", help="what recipes are given (bf16)")
@click.option("--shape", default="256x256", metavar="RxC", help="shape of the distributions (256x256)")
@_shared.out()
@click.option("--pictures/--no-pictures", "drawn", default=True, help="draw, or write tables only")
def command(
    words: Sequence[str],
    patterns: Sequence[str],
    names: Sequence[str],
    scopes: Sequence[str],
    dtype: str,
    shape: str,
    out: Path | None,
    drawn: bool,
) -> None:
    """Show the error that each recipe makes, or each RECIPE or variant named, on real tensors and on distributions.

    FILE is a .safetensors or .npy of yours. Without it and without --input, the tensors are the committed real ones
    and a few distributions. --scope sums up the tensors of FILE, some of them under four_over_six: none, the weights,
    the activations or all; the others are under per_tensor.
    """
    path, specs = _file_and_recipes(words)
    measure.require()
    if drawn:
        tables.require_matplotlib()
    chosen, undefined = variants.parse(specs, dtype)
    comparison = Comparison(chosen)
    stored, unfit = _stored(path, patterns, names, dtype)
    made = _made(names or (() if path or patterns else tensors.DISTRIBUTIONS), dtype, shape)
    if scopes and not stored:
        raise UsageError("--scope sums up the tensors of a file, and --input alone names none")
    with Progress(transient=True, disable=not sys.stdout.isatty()) as bar:
        for tensor in bar.track([*stored, *made], description="tensors"):
            comparison.add(tensor)
    if not comparison.measured:
        raise UsageError(f"no recipe takes any of these tensors: {comparison.left_out[0]}")
    results = Results(
        command=_shared.made_by("drawn"),
        measured=comparison.measured,
        totals=[comparison.total(name, stored) for name in scopes],
        notes=[f"{tensor.name} is {tensor.note}" for tensor in stored if tensor.note],
        left_out=[f"left out: {sentence}" for sentence in (*undefined, *unfit, *comparison.left_out)],
    )
    tables.show(results, log_console())
    folder = out or new_folder()
    drawings = []
    if drawn:
        drawings = tables.draw(tables.frame(results.measured), *comparison.maps(stored or made), folder)
    for written in (*tables.write(results, folder, drawings), *drawings):
        click.echo(written)


def _file_and_recipes(words: Sequence[str]) -> tuple[Path | None, list[str]]:
    """Tell a file from recipes by its name, or by being there. Raises UsageError for a second file."""
    found = [
        word
        for word in words
        if not is_recipe(word.partition("/")[0]) and (Path(word).suffix in tensors.SUFFIXES or Path(word).exists())
    ]
    if len(found) > 1:
        raise UsageError(f"one file at a time; {' and '.join(found)} are named")
    path = _shared.PATH.convert(found[0], None, click.get_current_context()) if found else None
    return path, [word for word in words if word not in found]


def _stored(
    path: Path | None, patterns: Sequence[str], names: Sequence[str], dtype: str
) -> tuple[list[Tensor], list[str]]:
    """The tensors of the user's file, or of the committed file if no input was named."""
    if path is None and names:
        if patterns:
            raise UsageError(f"--tensor {patterns[0]} is part of a file, and no file was named")
        return [], []
    return tensors.stored(path or tensors.SAMPLE, patterns, dtype)


def _made(names: Sequence[str], dtype: str, shape: str) -> list[Tensor]:
    rows, cols = _shared.extents(shape, "ROWSxCOLS", "256x192")
    return [tensors.named(name, rows, cols, dtype) for name in dict.fromkeys(names)]
