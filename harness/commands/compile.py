"""`harness compile`"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import click
import pandas as pd
from rich.console import Console
from rich.progress import track

from harness.case import Flags
from harness.compile import ARCHES, Compiled, compile_kernel, instantiation
from harness.errors import CompileError, Exit
from harness.launch import plan
from harness.signature import Signature
from harness.suite import load_suites
from harness.tables import show


@dataclass(frozen=True)
class Job:
    """One instantiation for one architecture."""

    signature: Signature
    flags: Flags
    arch: str


@click.command()
@click.option("--set", "sets", multiple=True, metavar="NAME", help="only what this set runs (all sets)")
@click.option("--arch", "arches", multiple=True, type=click.Choice(ARCHES), help="only this architecture (all)")
@click.option("--jobs", default=os.cpu_count(), show_default=True, help="compile this many at a time")
@click.pass_context
def command(context: click.Context, sets: tuple[str, ...], arches: tuple[str, ...], jobs: int) -> None:
    """Compile every instantiation of the suites, without a GPU; none may spill registers."""
    work = instantiations(sets, arches or ARCHES)
    with ProcessPoolExecutor(jobs) as pool:
        done = list(
            track(pool.map(_compile, work, chunksize=4), "compiling", len(work), disable=not Console().is_terminal)
        )
    failed = [text for text in done if isinstance(text, str)]
    compiled = [item for item in done if isinstance(item, Compiled)]
    spilling = [item for item in compiled if item.spill_bytes or item.stack_bytes]
    if compiled:
        show(_summary(compiled), "instantiations")
    for item in spilling:
        click.echo(
            f"{item.arch} {item.expression}: {item.spill_bytes} bytes spilled, {item.stack_bytes} bytes of stack"
        )
    for text in failed:
        click.echo(text)
    click.echo(f"{len(compiled)} compiled, {len(failed)} failed, {len(spilling)} spill registers")
    context.exit(Exit.BYTES_DIFFER if failed or spilling or not compiled else Exit.CLEAN)


def instantiations(sets: tuple[str, ...], arches: tuple[str, ...]) -> list[Job]:
    """What the named sets (all, if none is named) of every suite run, each instantiation once for each architecture."""
    jobs: dict[tuple[str, str], Job] = {}
    for suite in load_suites():
        for name in sets or suite.sets:
            for case in suite.cases(name) if name in suite.sets else ():
                for step in (*plan(case), *plan(case, fits=lambda step: True)):
                    if step.library:
                        continue
                    expression = instantiation(step.signature, step.case.flags)
                    for arch in arches:
                        jobs.setdefault((expression, arch), Job(step.signature, step.case.flags, arch))
    return list(jobs.values())


def _compile(job: Job) -> Compiled | str:
    try:
        return compile_kernel(job.signature, job.flags, job.arch)
    except CompileError as error:
        return str(error)


def _summary(compiled: list[Compiled]) -> pd.DataFrame:
    rows = [
        {
            "kernel": item.expression.partition("<")[0],
            "arch": item.arch,
            "registers": item.registers,
            "bytes": item.shared_bytes,
        }
        for item in compiled
    ]
    return (
        pd.DataFrame(rows)
        .groupby(["kernel", "arch"])
        .agg(instantiations=("registers", "size"), registers=("registers", "max"), shared_bytes=("bytes", "max"))
        .reset_index()
    )
