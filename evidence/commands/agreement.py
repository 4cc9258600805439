from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from evidence.agreement import cases, committed, page
from evidence.agreement.answers import ON_CPU, Answer, Kind, answers, card_answers
from harness.commands import _shared
from harness.contract.case import Case
from harness.errors import Exit, UsageError
from harness.files import write_text
from harness.ground.command_lines import is_card
from harness.records.run_folder import shown
from harness.report.console import show
from harness.subjects.card.card import read_card
from harness.subjects.subject import load
from harness.suite.suite import load_suites, suite_of
from harness.text import nearest


@click.command()
@_shared.recipes
@click.option(
    "--subject", "names", multiple=True, metavar="NAME", help=f"only these ({', '.join(ON_CPU)}), or card.yaml"
)
@_shared.include
@_shared.out("write the page, agreement.md, too")
def command(recipes: Sequence[str], names: Sequence[str], out: Path | None) -> int:
    """Compare what public implementations make of the vectors' inputs with both oracles: equal, order, convention, bug.

    Those run that need no GPU, and cards on the emulator; what others gave on a GPU is taken from the committed tables.
    A subject that is not installed is not offered, with the line that installs it. Exits with 0 whatever differs, and
    with 4 if nothing was compared.
    """
    for name in names:
        if name not in ON_CPU and not is_card(name):
            raise UsageError(f"--subject {name}: none of that name runs without a GPU{nearest(name, ON_CPU)}")
    asked = cases.cases([suite_of(name) for name in recipes] or load_suites())
    labels: dict[str, str] = {}
    found: list[Answer] = []
    for name in dict.fromkeys(names or ON_CPU):
        label, given = _answers(name, asked)
        labels[name] = label
        found += given
    show(page.by_distribution(found, labels), "cases")
    if out:
        path = out / "agreement.md"
        write_text(path, page.page(_shared.made_by(), labels, found, committed.tables()))
        click.echo(shown(path))
    if any(each.kind is not Kind.NOT_OFFERED for each in found):
        return Exit.CLEAN
    click.echo("nothing was compared: no subject takes any of these cases, or none is installed")
    return Exit.NO_DEVICE


def _answers(name: str, asked: Sequence[Case]) -> tuple[str, list[Answer]]:
    """A subject's label, and its answers."""
    if is_card(name):
        card = read_card(name)
        return card.label, list(card_answers(card, asked))
    subject = load(name)
    return subject.label, list(answers(subject, asked))
