from __future__ import annotations

import re

import click

from harness.files import KERNELS
from harness.report.console import show
from harness.suite.suite import Suite, load_suites


@click.command()
def command() -> None:
    """List the recipes and pipelines: what each is, the contract's section, and its flags."""
    rows = [
        {
            "recipe": suite.recipe,
            "what it is": _description(suite),
            "contract": suite.file.contract,
            "flags": ", ".join(suite.file.axes),
        }
        for suite in sorted(load_suites(), key=lambda suite: (bool(suite.file.pipeline), suite.file.sections))
    ]
    import pandas as pd  # here, because a wrong word is refused without it

    show(pd.DataFrame(rows), "")


def _description(suite: Suite) -> str:
    """The first sentence of a recipe's `.cu`, without the name; for a pipeline, its stages."""
    if suite.file.pipeline:
        stages = dict.fromkeys(stage.stage for stage in suite.file.pipeline if not stage.given)
        return f"a pipeline of the stages {', '.join(stages)}"
    head = (KERNELS / f"{suite.recipe}.cu").read_text(encoding="utf-8").partition("\n//\n")[0]
    text = " ".join(line.removeprefix("//").strip() for line in head.splitlines())
    return re.split(r"(?<=\w)\. ", text.removeprefix(f"{suite.recipe}: "))[0].removesuffix(".")
