"""`harness schema`"""

from __future__ import annotations

from pathlib import Path

import click

from harness.files import SUITES
from harness.suite.schema import json_schema


@click.command()
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path), default=SUITES / "schema.json")
def command(path: Path) -> None:
    """Write the JSON Schema of suites, by which editors complete and check them."""
    path.write_text(json_schema(), encoding="utf-8")
    click.echo(path)
