from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from harness.commands import _shared
from harness.records.run_folder import new_folder
from harness.report.console import show
from harness.studies.quality import measure, products, tensors


@click.command()
@click.option("--input", "-i", "names", multiple=True, metavar="NAME", help="only this distribution, as suites name it")
@click.option("--shape", default="256x384x128", metavar="MxKxN", help="of the distributions (256x384x128)")
@_shared.out()
def command(names: Sequence[str], shape: str, out: Path | None) -> None:
    """Show what forward and backward lose end to end, per_token beside the production recipe.

    Without --input, the tensors are the committed real ones of a layer and a few distributions.
    """
    measure.require()
    m, k, n = _shared.extents(shape, "MxKxN", "256x384x128")
    lost = [] if names else list(products.measure(products.REAL_NAME, products.real(), products.REAL_SHAPE))
    for name in dict.fromkeys(names or tensors.DISTRIBUTIONS):
        lost += products.measure(name, products.named(name, (m, k, n)), (m, k, n))
    show(products.table(lost), "end to end")
    for written in products.write(_shared.made_by(), lost, out or new_folder()):
        click.echo(written)
