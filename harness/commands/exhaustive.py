from __future__ import annotations

import time

import click
from rich.progress import Progress

from harness.device.select import select
from harness.errors import Exit
from harness.studies import exhaustive_casts


@click.command()
def command() -> int:
    """Prove both scalar casts over all 2^32 float32 patterns, on a GPU."""
    gpu = select("cuda")
    started = time.perf_counter()
    with Progress() as bar:
        task = bar.add_task("float32 patterns", total=exhaustive_casts.PATTERNS)
        findings = list(exhaustive_casts.prove(gpu, lambda done: bar.update(task, completed=done)))
    for finding in findings:
        click.echo(finding.sentence())
    verdict = "differ" if findings else "agree"
    click.echo(
        f"kernel, torch and NumPy {verdict} over {exhaustive_casts.PATTERNS:,} patterns, e2m1 and e4m3, "
        f"on {gpu.identity()['gpu']}, in {time.perf_counter() - started:.0f} s"
    )
    return Exit.BYTES_DIFFER if findings else Exit.CLEAN
