from __future__ import annotations

import time
from pathlib import Path

import click

from harness.commands import _shared
from harness.errors import Exit, UsageError
from harness.files import INSTALLED, RESULTS
from harness.records.run_folder import RUNS, gpu_folder, shown


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
    Exits with 130 if time ran out, 4 if what is left needs a GPU, 64 for parts of another state.
    """
    from harness.runner.process import gpu_count
    from harness.studies.committed import catalogue, make
    from harness.studies.committed.state import state

    if INSTALLED:
        raise UsageError("`harness tables` makes the tables of a checkout, and this is an installed wheel")
    tables, _ = catalogue.load()
    unknown = [name for name in names if name not in tables]
    if unknown:
        raise UsageError(f"there is no table '{unknown[0]}'; the tables are {', '.join(tables)}")
    if listed:
        _show(into, state())
        return Exit.CLEAN
    began, making = time.monotonic(), make.begin(into)
    gpu = bool(gpu_count())
    if gpu:
        making.gpu = _gpu(making.gpu)
    making.save()
    # On a GPU what needs one comes first, because the time on it is dear.
    for name in sorted(making.left, key=lambda name: gpu and not (tables[name].gpu or tables[name].part_of)):
        table = tables[name]
        if names and name not in names:
            continue
        if (table.gpu and not gpu) or (table.part_of and table.part_of not in making.made):
            continue
        rest = seconds - (time.monotonic() - began)
        if rest < make.LEAST:
            return _go_on(making.left, into)
        code = make.make(making, name, rest)
        if code is Exit.INTERRUPTED:
            if not make.goes_on(table):
                click.echo(f"{name} was cut off after {rest:,.0f} s and begins anew; --seconds gives it more")
            return _go_on(making.left, into)
        if code:
            click.echo(
                f"{name}: exit {int(code)} ({code.name.lower().replace('_', ' ')}); {shown(into / name / 'log')}"
            )
            return code
        click.echo(f"{name}: {making.made[name]['seconds']:,.0f} s")
    if making.left:
        waits = [name for name in making.left if (tables[name].gpu or tables[name].part_of) and not gpu]
        click.echo(f"left: {', '.join(making.left)}")
        if waits:
            click.echo(f"a GPU is needed for {', '.join(waits)}; carry {shown(into)} to one and go on there")
        return Exit.CLEAN if names else Exit.NO_DEVICE
    for path in make.install(making):
        click.echo(shown(path))
    _render()
    click.echo(f"{len(tables)} tables of state {making.state[:12]}; all are whole")
    return Exit.CLEAN


def _go_on(left: list[str], into: Path) -> Exit:
    click.echo(
        f"time ran out; {len(left)} tables are left: {', '.join(left)}; the same command goes on ({shown(into)})"
    )
    return Exit.INTERRUPTED


def _gpu(before: str) -> str:
    from harness.device.cuda import CudaDevice

    here = gpu_folder(CudaDevice().identity())
    if before and before != here:
        raise UsageError(f"the parts are of {before}, and this GPU is {here}; name another --into")
    return here


def _show(into: Path, here: str) -> None:
    from harness.studies.committed import make

    click.echo(f"this tree: state {here[:12]}")
    for folder in (RESULTS, into):
        found = make.read(folder)
        if found is None:
            click.echo(f"{shown(folder)}: no {make.FILE}, so of no one state")
            continue
        same = "this state" if found.state == here else f"state {found.state[:12]}, commit {found.commit[:12]}"
        click.echo(f"{shown(folder)}: {len(found.made)} tables of {same}; left: {', '.join(found.left) or 'none'}")


def _render() -> None:
    """Write the figures of README and docs/ from the tables."""
    from harness.files import write_text
    from harness.studies.docs import pages

    for page in pages.all_pages():
        text = page.read_text(encoding="utf-8")
        new = pages.rendered(page, text)
        if new != text:
            write_text(page, new)
            click.echo(shown(page))
