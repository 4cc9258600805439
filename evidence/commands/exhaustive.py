from __future__ import annotations

import time
from pathlib import Path

import click
from rich.progress import Progress

from evidence import approximations, exhaustive_casts
from harness.commands import _shared
from harness.device.select import select
from harness.errors import Exit, UsageError
from harness.records.run_folder import shown
from ptx_emulator.approximate.measured import FOLDER, Chip


@click.command()
@click.option("--approximate", is_flag=True, help="measure ex2.approx and its kin instead, for the emulator's tables")
@click.option("--only", default="", metavar="TEXT", help="only instructions with TEXT in their name; writes no table")
@_shared.out("write the table there, not where the emulator looks")
def command(approximate: bool, only: str, out: Path | None) -> int:
    """Prove both scalar casts over all 2^32 float32 patterns, on a GPU.

    With --approximate it measures there what approximate instructions give for every input, and writes a table by which
    the emulator has the bits of that GPU.
    """
    if (only or out) and not approximate:
        raise UsageError("--only and --out go with --approximate")
    return _approximations(only, out) if approximate else _casts()


def _approximations(only: str, out: Path | None) -> int:
    gpu, names = select("cuda"), [name for name in approximations.UNARY if only in name]
    if not names:
        raise UsageError(f"no instruction has {only!r} in its name; there are {', '.join(approximations.UNARY)}")
    started, found, code = time.perf_counter(), {}, Exit.CLEAN
    path, size = (out or FOLDER) / f"{gpu.targets[0].rstrip('af')}.npz", 0
    for name in names:
        try:
            found[name] = approximations.measure(name, gpu.targets[0])
        except approximations.ContradictionError as error:
            click.echo(f"{error}; it is left out")
            code = Exit.BYTES_DIFFER
            continue
        click.echo(", ".join(f"{key}: {value}" for key, value in approximations.row(name, found[name]).items()))
        if not only:  # written after each one, to keep what was measured if time runs out
            size = approximations.write(approximations.fitted(Chip(gpu.identity()["gpu"], found)), path)
    seconds = f"in {time.perf_counter() - started:.0f} s"
    if only:
        click.echo(f"{len(names)} instructions on {gpu.identity()['gpu']}, {seconds}; without --only they are written")
        return code
    click.echo(f"{shown(path)}: {len(found)} instructions of {gpu.identity()['gpu']} in {size:,} bytes, {seconds}")
    return code


def _casts() -> int:
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
