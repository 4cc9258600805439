from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from harness.commands import _shared
from harness.errors import UsageError
from harness.files import write_text
from harness.records.run_folder import shown
from harness.report.console import show
from harness.studies.agreement import cases, committed, page
from harness.studies.agreement.answers import ON_CPU, Kind, answers, subjects
from harness.suite.schema import nearest
from harness.suite.suite import load_suites, suite_of


@click.command()
@_shared.recipes
@click.option("--subject", "names", multiple=True, metavar="NAME", help=f"only this one ({', '.join(ON_CPU)})")
@_shared.out("write the page, agreement.md, too")
def command(recipes: Sequence[str], names: Sequence[str], out: Path | None) -> None:
    """Compare what public implementations make of the vectors' inputs with both oracles: equal, order, convention, bug.

    Those run that need no GPU; what others gave on one is taken from the committed tables. A subject that is not
    installed is not offered, with the line that installs it.
    """
    for name in names:
        if name not in ON_CPU:
            raise UsageError(f"--subject {name}: none of that name runs without a GPU{nearest(name, ON_CPU)}")
    suites = [suite_of(name) for name in recipes] or load_suites()
    asked = cases.cases(suites)
    chosen = subjects(names or ON_CPU)
    found = [answer for subject in chosen for answer in answers(subject, asked)]
    offered = [each for each in found if each.kind is not Kind.NOT_OFFERED]
    labels = {subject.name: subject.label for subject in chosen}
    show(page.matrix(offered, labels, lambda each: [each.case.input.rpartition("/")[2]], "input"), "cases")
    if out:
        path = out / "agreement.md"
        write_text(path, page.page(_shared.made_by(), labels, found, committed.tables()))
        click.echo(shown(path))
