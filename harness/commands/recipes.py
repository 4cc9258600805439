from __future__ import annotations

import re
from collections.abc import Sequence

import click

from harness.commands import _shared
from harness.files import KERNELS, recipe_dir
from harness.report.console import show
from harness.suite.suite import Suite, load_suites, suite_of


@click.command()
@_shared.recipes
@_shared.recipe_dir
def command(recipes: Sequence[str]) -> None:
    """List the recipes and pipelines: what each is, the contract's section, and its flags."""
    suites = [suite_of(name) for name in recipes] or load_suites()
    rows = [
        {
            "recipe": suite.recipe,
            "what it is": _description(suite),
            "contract": suite.file.contract,
            "flags": ", ".join(suite.file.axes),
        }
        for suite in sorted(suites, key=lambda suite: (bool(suite.file.pipeline), suite.file.sections))
    ]
    import pandas as pd  # here, because a wrong word is refused without it

    show(pd.DataFrame(rows), "")


def _description(suite: Suite) -> str:
    """The first sentence of a recipe's `.cu`, without the name; for a pipeline, its stages."""
    if suite.file.pipeline:
        stages = dict.fromkeys(stage.stage for stage in suite.file.pipeline if not stage.given)
        return f"a pipeline of the stages {', '.join(stages)}"
    head = (
        ((recipe_dir(suite.recipe) or KERNELS) / f"{suite.recipe}.cu")
        .read_text(encoding="utf-8")
        .partition("\n//\n")[0]
    )
    text = " ".join(line.removeprefix("//").strip() for line in head.splitlines())
    return re.split(r"(?<=\w)\. ", text.removeprefix(f"{suite.recipe}: "))[0].removesuffix(".")
