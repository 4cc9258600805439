from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import click

from evidence import conversions
from harness.commands import _shared
from harness.errors import Exit
from harness.files import write_text
from harness.ground.side_by_side import side_by_side
from harness.jit.nvrtc import nvrtc_version
from harness.records.run_folder import shown
from harness.report.console import show
from harness.suite.instantiations import Job, instantiations


@click.command()
@_shared.sets
@click.option("--nvdisasm", metavar="PATH", help="count in machine code, too, with this disassembler (the PATH's)")
@_shared.jobs
@_shared.out("write files, too")
def command(sets: tuple[str, ...], nvdisasm: str | None, jobs: int, out: Path | None) -> int:
    """Count the hardware conversions of every instantiation for sm_100a, without a GPU.

    Exits with 1 if an instantiation's machine code and PTX do not narrow the same number of values.
    """
    work = instantiations(sets, (conversions.NEWEST, conversions.OLDER))
    counted = side_by_side(partial(_count, nvdisasm or shutil.which("nvdisasm")), work, jobs)
    show(conversions.table(counted), "conversions in an instantiation for sm_100a")
    unlike = conversions.differing(counted)
    for each in unlike:
        click.echo(f"{each.expression}: PTX has {dict(each.ptx)}, machine code {dict(each.sass)}")
    if out:
        page = conversions.page(_shared.made_by("nvdisasm"), nvrtc_version(), counted)
        write_text(out / "conversions.md", page)
        write_text(out / "conversions.csv", conversions.rows_of(counted).to_csv(index=False))
        for name in ("conversions.md", "conversions.csv"):
            click.echo(shown(out / name))
    return Exit.BYTES_DIFFER if conversions.narrowing_differs(counted) else Exit.CLEAN


def _count(nvdisasm: str | None, job: Job) -> conversions.Counted:
    return conversions.count(job.compile(), nvdisasm)
