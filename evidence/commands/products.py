from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import click
from rich.progress import track

from evidence.products import layers, product_bounds, products
from evidence.products.layers import Layer
from evidence.products.product_bounds import SETS, Bounds
from harness.commands import _shared
from harness.errors import Exit, UsageError
from harness.quality import measure
from harness.records.run_folder import new_folder
from harness.report.console import show


@click.command()
@click.argument("path", required=False, metavar="[FILE]", type=_shared.PATH)
@click.option("--input", "-i", "names", multiple=True, metavar="NAME", help="only this distribution, as suites name it")
@click.option("--shape", metavar="MxKxN", help="the shape of --input (256x384x128)")
@click.option("--set", "chosen", type=click.Choice(SETS), help="the layers of products.yaml in this set (smoke)")
@click.option("--bounds", "only_bounds", is_flag=True, help="print what each product may lose, and measure nothing")
@_shared.out()
def command(
    path: Path | None, names: Sequence[str], shape: str | None, chosen: str | None, only_bounds: bool, out: Path | None
) -> int:
    """Show what forward and backward lose end to end, against bf16 and against the production recipe; 1 if too much.

    The layers, and what each of their products may lose, are those of evidence/products/products.yaml. Those of
    a .safetensors FILE of yours, whose tensors are L.input, L.weight and L.grad_output, or of --input, may lose what
    NUMERICS 10.8 derives from the tensors.
    """
    measure.require()
    bounded = list(_layers(path, names, shape, chosen))
    if only_bounds:
        for layer, _ in bounded:
            click.echo(f"  - tensors: {layer.name} # {layer.shape}")
            click.echo("\n".join(product_bounds.written_out(product_bounds.of_layer(layer))))
        return Exit.CLEAN
    bar = track(bounded, description="layers", transient=True, disable=not sys.stdout.isatty())
    lost = [one for layer, bounds in bar for one in products.measure(layer, bounds())]
    show(products.nearest_bounds(lost), "L2 of the error nearest to its bound")
    for written in products.write(_shared.made_by(), lost, out or new_folder()):
        click.echo(written)
    beyond = [one for one in lost if not one.holds]
    for one in beyond:
        click.echo(
            f"{one.tensors} {one.shape}, {one.product} under {one.recipe}: L2 {one.relative:.4f}, which may be "
            f"{one.bound:g}; from production {one.apart:.4f}, which may be {one.apart_bound:.4g}",
            err=True,
        )
    return Exit.BYTES_DIFFER if beyond else Exit.CLEAN


def _layers(
    path: Path | None, names: Sequence[str], shape: str | None, chosen: str | None
) -> Iterator[tuple[Layer, Callable[[], Bounds]]]:
    """The requested layers, each with a function that computes its bounds."""
    if shape is not None and not names:
        raise UsageError(f"--shape {shape} is that of --input, and none was named")
    if chosen is not None and (path or names):
        raise UsageError(f"--set {chosen} is of the layers of products.yaml; leave out {path or '--input'}")
    made = list(layers.stored(path)) if path else []
    made += [layers.named(name, _extents(shape or "256x384x128")) for name in dict.fromkeys(names)]
    for layer in made:
        yield layer, partial(product_bounds.of_layer, layer)
    for where, row in [] if made else product_bounds.load():
        if (chosen or SETS[0]) in row.sets:
            layer = row.layer()
            yield layer, partial(product_bounds.of_row, where, row, layer)


def _extents(shape: str) -> tuple[int, ...]:
    return _shared.extents(shape, "MxKxN", "256x384x128")
