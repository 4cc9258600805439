from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from evidence.agreement import cases, committed, page
from evidence.agreement.answers import ON_CPU, Answer, Kind, answers, card_answers, smallest_inputs
from harness.commands import _shared
from harness.errors import Exit, UsageError
from harness.files import SUITES, write_text
from harness.ground.command_lines import is_card
from harness.records.run_folder import shown
from harness.report.console import show
from harness.subjects.card.card import read_card
from harness.subjects.subject import load
from harness.suite.suite import load_suites, own_suites, suite_of
from harness.text import nearest


@click.command()
@_shared.recipes
@click.option(
    "--subject", "names", multiple=True, metavar="NAME", help=f"only these ({', '.join(ON_CPU)}), or card.yaml"
)
@_shared.include
@_shared.recipe_dir
@_shared.out("write the page, agreement.md, too")
@click.option("--keep", is_flag=True, help="keep what that page says of other subjects")
def command(recipes: Sequence[str], names: Sequence[str], out: Path | None, keep: bool) -> int:
    """Compare what public implementations make of the vectors' inputs with both oracles: equal, order, convention, bug.

    Those run that need no GPU, and cards on the emulator; what others gave on a GPU is taken from the committed tables.
    A subject that is not installed is not offered, with the line that installs it. Exits with 0 whatever differs, and
    with 4 if nothing was compared.
    """
    path = out / "agreement.md" if out else None
    if keep and not (path and path.is_file()):
        raise UsageError("--keep: give the folder of the page to keep, which holds agreement.md, by --out")
    for name in names:
        if name not in ON_CPU and not is_card(name):
            raise UsageError(f"--subject {name}: none of that name runs without a GPU{nearest(name, ON_CPU)}")
    every = [*load_suites(sorted(SUITES.glob("*.yaml"))), *own_suites()]  # beside ours those of --recipe-dir
    asked = cases.cases([suite_of(name) for name in recipes] or every)
    labels: dict[str, str] = {}
    found: list[Answer] = []
    smallest: dict[tuple[str, str], str] = {}
    for name in dict.fromkeys(names or ON_CPU):
        if is_card(name):
            card = read_card(name)
            labels[name] = card.label
            found += card_answers(card, asked)
            continue
        subject = load(name)
        labels[name] = subject.label
        of_it = list(answers(subject, asked))
        found += of_it
        if path:
            smallest |= smallest_inputs(subject, of_it)
    show(page.by_distribution(found, labels), "cases")
    if path:
        before = path.read_text(encoding="utf-8") if keep else ""
        write_text(path, page.page(_shared.made_by(), labels, found, committed.tables(), smallest, before))
        click.echo(shown(path))
    if any(each.kind is not Kind.NOT_OFFERED for each in found):
        return Exit.CLEAN
    click.echo("nothing was compared: no subject takes any of these cases, or none is installed")
    return Exit.NO_DEVICE
