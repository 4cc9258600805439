"""`harness products`"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from harness.errors import UsageError
from harness.files import ROOT
from harness.report.console import show
from harness.studies.quality import measure, products, tensors


@click.command()
@click.option("--input", "-i", "names", multiple=True, metavar="NAME", help="only this distribution, as suites name it")
@click.option("--shape", default="256x384x128", metavar="MxKxN", help="of the distributions (256x384x128)")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="(results/runs/<UTC>)")
def command(names: Sequence[str], shape: str, out: Path | None) -> None:
    """Show what forward and backward lose end to end, per_token beside the production recipe.

    Without --input, the tensors are the committed real ones of a layer and a few distributions.
    """
    measure.require()
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)", shape)
    if match is None:
        raise UsageError(f"--shape '{shape}' is not a shape; one reads MxKxN, as in 256x384x128")
    m, k, n = map(int, match.groups())
    lost = [] if names else list(products.measure(products.REAL_NAME, products.real(), products.REAL_SHAPE))
    for name in dict.fromkeys(names or tensors.DISTRIBUTIONS):
        lost += products.measure(name, products.named(name, (m, k, n)), (m, k, n))
    show(products.table(lost), "end to end")
    words = ["harness", "products", *(word for name in names for word in ("--input", name))]
    words += [] if shape == "256x384x128" else ["--shape", shape]
    words += ["--out", str(out)] if out else []
    folder = out or ROOT / "results" / "runs" / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    for written in products.write(shlex.join(words), lost, folder):
        click.echo(written)
