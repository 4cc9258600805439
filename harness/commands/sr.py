from __future__ import annotations

import math
from collections.abc import Sequence

import click

from harness.commands import _shared
from harness.device.select import select
from harness.errors import Exit
from harness.random_bits import design, study
from harness.random_bits.sample import Sampler, case_of, require, under_test
from harness.report.console import show


@click.command()
@_shared.with_words(click.argument("recipe", default="per_tensor", metavar="[RECIPE]"))
@click.option("--subject", metavar="NAME", help="in place of our kernels: a card.yaml, a subject, or module:function")
@_shared.flags
@click.option("--shape", type=_shared.Text(), metavar="RxC", help="of the tensors (512x512; on a GPU 2048x2048)")
@click.option("--launches", type=click.IntRange(1, 1 << 10), default=8, show_default=True, help="to count places over")
@click.option("--bits", type=click.IntRange(2, 12), default=8, show_default=True, help="of a random number, at least")
@click.option(
    "--alpha", type=_shared.Number(1e-12, 0.1), default=1e-6, show_default=True, help="chance of a false alarm"
)
@_shared.device("where the kernel runs (auto)")
@_shared.recipe_dir
@_shared.include
def command(
    recipe: str, subject: str | None, flags: Sequence[str], shape: str | None, launches: int, bits: int, alpha: float,
    device_name: str,
) -> int:  # fmt: skip
    """Test the random bits of stochastic rounding: bias in each interval of e2m1, and bits that repeat.

    Beside each finding stands the smallest that would have been seen with a chance of 99 %. Exits with 1 if chance is
    excluded: an element that became neither neighbour, a bias, or bits that repeat in a tensor, from row to row or
    tile to tile, between the two directions, or for another seed or offset.
    """
    require()
    device = select(device_name)
    shape = shape or ("2048x2048" if device.name == "cuda" else "512x512")
    rows, cols = _shared.extents(shape, "RxC", "512x512")
    design.require_enough(rows, cols)
    with under_test(device, subject) as running:
        case = case_of(recipe, flags, shape, running)
        plan = study.Plan(rows, cols, launches, alpha, bits, str(case.flags.dtype))
        found = study.examine(Sampler(running, case), plan)
    import pandas as pd  # here, because a wrong word is refused without it

    show(pd.DataFrame([_shown(row) for row in found]), f"random bits of {subject or case.recipe}, {case.variant}")
    wrong = sum(row.wrong for row in found)
    click.echo(
        f"{launches} + {len(study.LAUNCHES)} launches of {shape}, {len(found)} findings, {wrong or 'none'} wrong; a "
        f"kernel that is right is accused with a chance of {alpha:g} at most"
    )
    return Exit.BYTES_DIFFER if wrong else Exit.CLEAN


def _shown(row: study.BitTest) -> dict[str, object]:
    return {
        "direction": row.side,
        "what": row.what,
        "elements": row.n,
        "bias or share": "" if math.isnan(row.found) else f"{row.found:+.5f}",
        "seen from": "" if math.isnan(row.seen) else f"{row.seen:.5f}",
        "": "WRONG" if row.wrong else "",
        "where": row.note,
    }
