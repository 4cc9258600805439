from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from evidence.opcodes import instructions
from harness.commands import _shared
from harness.errors import Exit
from harness.files import write_text
from harness.ground.side_by_side import side_by_side
from harness.jit.compile import compile_kernel, ptx_of
from harness.records.run_folder import shown
from harness.suite.instantiations import Job, instantiations
from ptx_emulator.catalogue import mnemonics


@click.command()
@_shared.sets
@_shared.jobs
@_shared.out("write files, too")
def command(sets: tuple[str, ...], jobs: int, out: Path | None) -> int:
    """Check that every PTX instruction of the kernels, and every one that the emulator executes, has a test.

    Exits with 1 if one has no test.
    """
    work = instantiations(sets, instructions.ARCHES)
    tests = instructions.executed()
    used = instructions.usage(side_by_side(_of, work, jobs))
    found = instructions.table(used, tests)
    if out:
        counts = Counter(job.arch for job in work)
        write_text(out / "opcodes.md", instructions.page(_shared.made_by(), counts, found))
        write_text(out / "opcodes.csv", found.to_csv(index=False))
        for name in ("opcodes.md", "opcodes.csv"):
            click.echo(shown(out / name))
    missing = sorted({*used} - {*tests} | {*instructions.without_test(mnemonics(), tests)})
    for name in missing:
        click.echo(f"no test executes {name}, which {'the kernels use' if name in used else 'the emulator knows'}")
    click.echo(
        f"{len(used)} instructions in {len(work)} instantiations, {len(tests)} tested, {len(missing)} without a test"
    )
    return Exit.BYTES_DIFFER if missing else Exit.CLEAN


def _of(job: Job) -> tuple[str, set[str]]:
    return job.arch, instructions.of_ptx(compile_kernel(job.signature, job.flags, ptx_of(job.arch)))
