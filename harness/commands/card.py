from __future__ import annotations

import shlex
from pathlib import Path

import click

from harness.commands import _shared
from harness.errors import UsageError
from harness.expected.expected import fields_of, make_inputs
from harness.files import write_text
from harness.ground.command_lines import Asked, include_options, this_harness
from harness.subjects.card.code import read_code
from harness.subjects.card.draft import draft
from harness.subjects.card.schema import CardFile
from harness.suite.launch_plan import numbers
from harness.suite.suite import suite_of

ARCH = CardFile.model_fields["arch"].default


@click.command()
@_shared.with_words(click.argument("recipe", required=False))
@click.option("--from", "source", required=True, type=_shared.FILE, metavar="FILE", help="their .ptx or .cu")
@click.option("--kernel", default="", metavar="ENTRY", help="this entry alone (all)")
@click.option("--out", type=_shared.FILE, metavar="CARD.yaml", help="where to write it (standard output)")
@_shared.recipe_dir
@_shared.include
def command(recipe: str | None, source: Path, kernel: str, out: Path | None) -> None:
    """Draft a card, the YAML that says how compiled kernels of yours are launched, from the parameters in their PTX.

    The oracles of the RECIPE say what the bytes must be. Fill in what the draft leaves open, and then run it: harness
    verify RECIPE --subject CARD.yaml
    """
    if source.suffix not in (".ptx", ".cu"):
        raise UsageError(f"{source} is neither a .ptx nor a .cu; machine code does not say what its parameters are")
    names = _names(recipe) if recipe else {}
    text = draft(read_code(source, _code_of(source, out), (), ARCH, ()), recipe or "", kernel, names)
    if out is None:
        click.echo(text, nl=False)
        return
    if out.exists():
        raise UsageError(f"{out} is there already; name another file with --out, or remove it")
    write_text(out, text)
    click.echo(out)
    own = Asked.here().recipe_dir_words(recipe or "")
    words = [*this_harness(Path.cwd()), "verify", recipe or "RECIPE", *own, "--subject", str(out), *include_options()]
    click.echo(f"next: fill in what is open, then {shlex.join(words)}")


def _code_of(source: Path, out: Path | None) -> str:
    """The path from the card's folder to its code; a card on standard output belongs into the current folder."""
    if out is None:
        return str(source)
    return source.name if out.resolve().parent == source.resolve().parent else str(source.resolve())


def _names(recipe: str) -> dict[str, str]:
    """The arrays and numbers of a recipe's first non-empty case, each with its description."""
    suite = suite_of(recipe)
    sets = suite.file.sets
    cases = suite.cases("smoke" if "smoke" in sets else next(iter(sets)))
    case = next((case for case in cases if case.elements), cases[0])
    names = {name: f"in, {array.dtype}{list(array.shape)}" for name, array in make_inputs(case).items()}
    names |= {name: f"out, {field.dtype}{list(field.shape)}" for name, field in fields_of(case).items()}
    names = {name: f"{what} where the tensor is {case.shape}" for name, what in names.items()}
    return names | {name: "a number" for name in ("elements", *numbers(case))}
