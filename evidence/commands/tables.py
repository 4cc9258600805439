from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.commands import _shared
from harness.errors import Exit, UsageError
from harness.files import RESULTS
from harness.records.run_folder import RUNS, gpu_folder, shown

if TYPE_CHECKING:
    from evidence.committed.parts import Making


@click.command()
@click.option(
    "--into", type=_shared.NEW_FOLDER, default=RUNS / "tables", metavar="DIR", help="where parts lie meanwhile"
)
@click.option("--seconds", type=_shared.Number(1), default=540.0, show_default=True, help="end this call after so long")
@click.option("--only", "names", multiple=True, metavar="NAME", help="make only this table in this call")
@click.option("--list", "listed", is_flag=True, help="make nothing; show what is made, and of which state")
def command(into: Path, seconds: float, names: tuple[str, ...], listed: bool) -> int:
    """Make every committed table anew, all of one state, in parts; call it until it says that all are whole.

    A state is a digest of all files but results/ and the figures that pages render from there. Parts lie in DIR, which
    may be carried to another machine, and come to results/ together, when the last one is whole; pages then show them.
    If another kind of GPU made those of this state, only the tables that each kind has of its own are made.
    Several calls may make tables in one DIR. Exits with 130 if time ran out or a signal ended it, 4 if what is left
    needs a GPU, 64 for parts of another state or with other files than were made.
    """
    from evidence.committed import catalogue, parts
    from evidence.committed.state import state
    from harness.device.capability import gpu_count

    _shared.require_checkout("tables")
    tables, _ = catalogue.load()
    unknown = [name for name in names if name not in tables]
    if unknown:
        raise UsageError(f"there is no table '{unknown[0]}'; the tables are {', '.join(tables)}")
    if listed:
        _show(into, state())
        return Exit.CLEAN
    began, making = time.monotonic(), parts.begin(into)
    gpu = bool(gpu_count())
    if gpu:
        making.gpu = _gpu(making.gpu)
        making.keep(RESULTS)
    making.save()
    try:
        code = _make(making, names or tuple(tables), gpu, began + seconds)
    except KeyboardInterrupt:
        return _go_on("interrupted", making)
    making.take()
    return code or (_left(making, names, gpu) if making.left else _install(making))


def _make(making: Making, names: Sequence[str], gpu: bool, end: float) -> Exit:
    """Make the tables that this machine can make."""
    from evidence.committed import catalogue, make

    tables, _ = catalogue.load()
    # On a GPU machine, tables that need the GPU come first, because its time is expensive.
    for name in sorted(making.left, key=lambda name: gpu and not (tables[name].gpu or tables[name].part_of)):
        table = tables[name]
        if name not in names or (table.gpu and not gpu) or (table.part_of and table.part_of not in making.made):
            continue
        rest = end - time.monotonic()
        if rest < make.LEAST:
            return _go_on("time ran out", making)
        code = make.make(making, name, rest)
        if code is None:
            if not make.goes_on(table):
                click.echo(f"{name} was cut off after {rest:,.0f} s and begins anew; --seconds gives it more")
            return _go_on("time ran out", making)
        if code:
            log = shown(making.folder / name / "log")
            click.echo(f"{name}: exit {int(code)} ({code.name.lower().replace('_', ' ')}); {log}")
            return code
        click.echo(f"{name}: {making.made[name]['seconds']:,.0f} s")
    return Exit.CLEAN


def _left(making: Making, names: Sequence[str], gpu: bool) -> Exit:
    """Say which tables are left and how to make them. CLEAN if every table that was named is made."""
    from evidence.committed import catalogue

    tables, _ = catalogue.load()
    click.echo(f"left: {', '.join(making.left)}")
    runs = {name: tables[name].part_of for name in making.left}
    waits = [name for name, run in runs.items() if not gpu and (tables[name].gpu or (run and run not in making.made))]
    if waits:
        click.echo(f"a GPU is needed for {', '.join(waits)}; carry {shown(making.folder)} to one and go on there")
    asked = [name for name in names or making.left if name in making.left]
    if asked and gpu:
        run = runs[asked[0]]
        raise UsageError(f"{asked[0]} is cut out of the run of {run}, which is not made yet; add --only {run}")
    return Exit.NO_DEVICE if asked else Exit.CLEAN


def _install(making: Making) -> Exit:
    from evidence.committed import install, parts

    for path in install.install(making):
        click.echo(shown(path))
    _render()
    kept = f", {len(making.kept)} of them from before" if making.kept else ""
    click.echo(f"{len(making.made) + len(making.kept)} tables of state {making.state[:12]}{kept}; all are whole")
    for other in parts.read(RESULTS).beside():
        if other.state != making.state:
            click.echo(f"those of {other.gpu} are of state {other.state[:12]}; the same command there makes them anew")
    return Exit.CLEAN


def _go_on(why: str, making: Making) -> Exit:
    making.take()
    left = making.left
    click.echo(
        f"{why}; {len(left)} tables are left: {', '.join(left)}; the same command goes on ({shown(making.folder)})"
    )
    return Exit.INTERRUPTED


def _gpu(before: str) -> str:
    from harness.device.cuda import CudaDevice

    here = gpu_folder(CudaDevice().identity())
    if before and before != here:
        raise UsageError(f"the parts are of {before}, and this GPU is {here}; name another --into")
    return here


def _show(into: Path, here: str) -> None:
    from evidence.committed import parts

    click.echo(f"this tree: state {here[:12]}")
    for folder in (RESULTS, into):
        found = parts.read(folder)
        if found is None:
            click.echo(f"{shown(folder)}: no {parts.FILE}, so of no one state")
            continue
        same = "this state" if found.state == here else f"state {found.state[:12]}, commit {found.commit[:12]}"
        altered = found.altered(among_parts=folder is into)
        whole, left = len(found.made) - len(altered), ", ".join(found.left) or "none"
        click.echo(f"{shown(folder)}: {whole} tables of {same}; left: {left}")
        for name, wrong in altered.items():
            click.echo(f"{shown(folder)}: {name} is of no state: {'; '.join(wrong)}")
        for other in found.beside():
            altered, same = other.altered(among_parts=False), "this state" if other.state == here else ""
            same = same or f"state {other.state[:12]}, commit {other.commit[:12]}"
            click.echo(f"{shown(folder)}: of {other.gpu}, {len(other.made) - len(altered)} tables of {same}")
            for name, wrong in altered.items():
                click.echo(f"{shown(folder)}: {name} of {other.gpu} is of no state: {'; '.join(wrong)}")


def _render() -> None:
    """Write the figures of README and docs/ from the tables."""
    from evidence.docs import pages
    from harness.files import write_text

    for page in pages.all_pages():
        text = page.read_text(encoding="utf-8")
        new = pages.rendered(page, text)
        if new != text:
            write_text(page, new)
            click.echo(shown(page))
