from __future__ import annotations

from pathlib import Path

import click

from harness.commands import _shared
from harness.files import SUITES, write_text
from harness.suite.schema import json_schema


@click.command()
@click.argument("path", type=_shared.FILE, required=False)
def command(path: Path | None) -> None:
    """Write the JSON Schema of suites, with which editors complete and check them (suites/schema.json)."""
    if path is None:
        _shared.require_checkout("schema")
        path = SUITES / "schema.json"
    write_text(path, json_schema())
    click.echo(path)
