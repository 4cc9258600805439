from __future__ import annotations

import os
import shlex
import shutil
import sys
from functools import partial
from pathlib import Path

import click

from harness.errors import Exit
from harness.files import write_text
from harness.jit.compile import nvrtc_version
from harness.report.console import show
from harness.runner.run_folder import shown
from harness.studies import conversions
from harness.suite.instantiations import Job, instantiations, side_by_side


@click.command()
@click.option("--set", "sets", multiple=True, metavar="NAME", help="only what this set runs (all sets)")
@click.option("--nvdisasm", metavar="PATH", help="count in machine code, too, with this disassembler (the PATH's)")
@click.option("--jobs", default=os.cpu_count(), show_default=True, help="compile this many at a time")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="write files, too")
def command(sets: tuple[str, ...], nvdisasm: str | None, jobs: int, out: Path | None) -> int:
    """Count the hardware conversions of every instantiation for sm_100a, without a GPU.

    Exits with 1 if an instantiation narrows other numbers of values in machine code than in its PTX.
    """
    work = instantiations(sets, (conversions.NEWEST, conversions.OLDER))
    counted = side_by_side(partial(_count, nvdisasm or shutil.which("nvdisasm")), work, jobs)
    show(conversions.table(counted), "conversions in an instantiation for sm_100a")
    unlike = conversions.differing(counted)
    for each in unlike:
        click.echo(f"{each.expression}: PTX has {dict(each.ptx)}, machine code {dict(each.sass)}")
    if out:
        words = [word for word in sys.argv[1:] if not word.startswith("--nvdisasm")]
        made_by = shlex.join(["harness", *(word for word in words if word != nvdisasm)])
        write_text(out / "conversions.md", conversions.page(made_by, nvrtc_version(), counted))
        write_text(out / "conversions.csv", conversions.rows_of(counted).to_csv(index=False))
        for name in ("conversions.md", "conversions.csv"):
            click.echo(shown(out / name))
    return Exit.BYTES_DIFFER if conversions.narrowing_differs(counted) else Exit.CLEAN


def _count(nvdisasm: str | None, job: Job) -> conversions.Counted:
    return conversions.count(job.compile(), nvdisasm)
