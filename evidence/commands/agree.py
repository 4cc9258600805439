from __future__ import annotations

from pathlib import Path

import click

from evidence import subjects_on_both
from evidence.emulator_vs_gpu import agree, page, table
from harness.commands import _shared
from harness.errors import Exit, UsageError
from harness.files import write_text
from harness.records.journal import FILE
from harness.records.run_folder import RunFiles, read_run, shown
from harness.report.console import show
from harness.subjects import subject
from harness.verify.digest import EXACT

WITHOUT_GPU = ("emulator", "host")


@click.command()
@click.argument("emulated", metavar="EMULATOR_RUN", type=_shared.FOLDER)
@click.argument("on_gpu", metavar="CUDA_RUN", type=_shared.FOLDER)
@_shared.out("write the page, too")
def command(emulated: Path, on_gpu: Path, out: Path | None) -> int:
    """Compare what a run on the emulator and one on a GPU wrote, by the digests in their journals.

    Runs of subjects (`harness verify --subject NAME`) are compared, too, by what the subject wrote, right or wrong;
    each folder may then hold several runs, one of each subject.

    Exits with 1 if an exact byte of our kernels differs or a case failed, 4 if the runs have no case in common. Bytes
    of subjects may differ, which the page explains.
    """
    ours, theirs = _read(emulated, WITHOUT_GPU), _read(on_gpu, ("cuda",))
    subjects = {bool(subjects_on_both.name_of(run)) for run in (*ours, *theirs)}
    if len(subjects) == 2:
        raise UsageError(f"{emulated} and {on_gpu}: runs of subjects are not compared with those of our kernels")
    if subjects == {True}:
        return _subjects(ours, theirs, out)
    if len(ours) + len(theirs) > 2:
        raise UsageError(f"{emulated} and {on_gpu}: several runs in a folder are compared for subjects alone; name two")
    return _own(ours[0], theirs[0], out)


def _own(ours: RunFiles, theirs: RunFiles, out: Path | None) -> int:
    found = agree(ours.records, theirs.records)
    show(table(found), "digests of what was written, emulator against GPU")
    wrong = found.differing(EXACT)
    for line in (*(f"differs: {case_id} on {target}" for case_id, target, _ in wrong), *found.failed):
        click.echo(line)
    if out:
        path = out / "emulator.md"
        write_text(path, page(_shared.made_by(), (ours.about, theirs.about), found))
        click.echo(shown(path))
    if wrong or found.failed:
        return Exit.BYTES_DIFFER
    return Exit.CLEAN if found.both else Exit.NO_DEVICE


def _subjects(ours: list[RunFiles], theirs: list[RunFiles], out: Path | None) -> int:
    found = subjects_on_both.pairs(ours, theirs)
    show(subjects_on_both.summary(found, ours, theirs), "what subjects wrote, without a GPU and on one")
    if out:
        known = subject.names()
        names = map(subjects_on_both.name_of, ours)
        targets = {name: subject.load(name).triton_target for name in names if name in known}
        path = out / "laptop_and_gpu.md"
        write_text(path, subjects_on_both.page(_shared.made_by(), ours, theirs, targets))
        click.echo(shown(path))
    return Exit.CLEAN if found else Exit.NO_DEVICE


def _read(folder: Path, devices: tuple[str, ...]) -> list[RunFiles]:
    """The run in a folder, or the runs in its subfolders."""
    several = [] if (folder / FILE).exists() else sorted(path.parent for path in folder.glob(f"*/{FILE}"))
    runs = [read_run(path) for path in several or [folder]]
    for run in runs:
        found = run.about.get("device", {}).get("device", "unknown")
        if found not in devices:
            raise UsageError(f"{run.path} is a run on device {found!r}; the runs are named emulator first, then cuda")
    return runs
