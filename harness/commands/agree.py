from __future__ import annotations

from pathlib import Path

import click

from harness.commands import _shared
from harness.errors import Exit, UsageError
from harness.files import write_text
from harness.records.run_folder import RunFiles, gpu_folder, read_run, shown
from harness.report.console import show
from harness.studies.emulator_vs_gpu import agree, page, table
from harness.verify.digest import EXACT


@click.command()
@click.argument("emulated", metavar="EMULATOR_RUN", type=_shared.FOLDER)
@click.argument("on_gpu", metavar="CUDA_RUN", type=_shared.FOLDER)
@_shared.out("write the page, too")
def command(emulated: Path, on_gpu: Path, out: Path | None) -> int:
    """Compare what a run on the emulator and one on a GPU wrote, by the digests in their journals.

    Exits with 1 if an exact byte differs or a case failed, 4 if the runs have no case in common.
    """
    ours, theirs = (_read(run, device) for run, device in ((emulated, "emulator"), (on_gpu, "cuda")))
    found = agree(ours.records, theirs.records)
    show(table(found), "digests of what was written, emulator against GPU")
    wrong = found.differing(EXACT)
    for line in (*(f"differs: {case_id} on {target}" for case_id, target, _ in wrong), *found.failed):
        click.echo(line)
    if out:
        path = out / f"emulator_vs_{gpu_folder(theirs.about['device']).removeprefix('nvidia-')}.md"
        write_text(path, page(_shared.made_by(), (ours.about, theirs.about), found))
        click.echo(shown(path))
    if wrong or found.failed:
        return Exit.BYTES_DIFFER
    return Exit.CLEAN if found.both else Exit.NO_DEVICE


def _read(run: Path, device: str) -> RunFiles:
    files = read_run(run)
    found = files.about.get("device", {}).get("device", "unknown")
    if found != device:
        raise UsageError(f"{run} is a run on device {found!r}; the runs are named emulator first, then cuda")
    return files
