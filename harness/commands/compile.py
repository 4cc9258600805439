from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.commands import _shared
from harness.errors import Exit
from harness.files import write_text
from harness.ground.side_by_side import side_by_side
from harness.jit.compile import ARCHES, ON_REQUEST, Examined
from harness.report.console import show
from harness.suite.instantiations import Job, examine_or_say, instantiations
from ptx_emulator.compiled.loading import compiled as emulator_compiled

if TYPE_CHECKING:
    import pandas as pd

_EMULATOR = None  # in the list of work, stands for the emulator's interpreter


@click.command()
@_shared.recipes
@_shared.sets
@click.option(
    "--arch",
    "arches",
    multiple=True,
    type=click.Choice((*ARCHES, *ON_REQUEST)),
    help=f"only this architecture ({', '.join(ARCHES)})",
)
@_shared.jobs
@click.option(
    "--digests", type=_shared.FILE, metavar="FILE", help="write the digest of each instantiation's machine code"
)
@_shared.recipe_dir
def command(
    recipes: tuple[str, ...], sets: tuple[str, ...], arches: tuple[str, ...], jobs: int, digests: Path | None
) -> int:
    """Compile every instantiation of the suites, or of some recipes, without a GPU; none may spill registers.

    PTX stays in the cache, and so does the emulator's interpreter, for the runs on the emulator that come after.
    """
    work = instantiations(sets, arches or ARCHES, recipes)
    done = side_by_side(_compile, [_EMULATOR, *work], jobs)
    failed = [text for text in done if isinstance(text, str)]
    compiled = [item for item in done if isinstance(item, Examined)]
    spilling = [item for item in compiled if item.spill_bytes or item.stack_bytes]
    if compiled:
        show(_summary(compiled), "instantiations")
    if digests:
        lines = sorted(f"{item.arch} {item.expression} {item.code_digest}\n" for item in compiled)
        write_text(digests, "".join(lines))
    for item in spilling:
        click.echo(
            f"{item.arch} {item.expression}: {item.spill_bytes} bytes spilled, {item.stack_bytes} bytes of stack"
        )
    for text in failed:
        click.echo(text)
    click.echo(f"{len(compiled)} compiled, {len(failed)} failed, {len(spilling)} spill registers")
    return Exit.BYTES_DIFFER if failed or spilling or not compiled else Exit.CLEAN


def _compile(job: Job | None) -> Examined | str | None:
    """The compiler's report on an instantiation, or the error; None for the emulator's interpreter."""
    if job is _EMULATOR:
        emulator_compiled()
        return None
    return examine_or_say(job)


def _summary(compiled: list[Examined]) -> pd.DataFrame:
    import pandas as pd

    rows = [(item.expression.partition("<")[0], item.arch, item.registers, item.shared_bytes) for item in compiled]
    frame = pd.DataFrame(rows, columns=["kernel", "arch", "registers", "bytes"])
    largest = {"registers": ("registers", "max"), "shared_bytes": ("bytes", "max")}
    return frame.groupby(["kernel", "arch"]).agg(instantiations=("registers", "size"), **largest).reset_index()
