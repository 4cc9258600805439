from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from evidence.sanitizer.compute_sanitizer import MOST_JOBS, TOOLS, executable
from evidence.sanitizer.page import page, table
from evidence.sanitizer.run import check, exit_code, header_of, run_planted
from harness.commands import _shared
from harness.errors import Exit, UsageError
from harness.files import RESULTS, write_text
from harness.records.run_folder import gpu_folder, new_header, shown
from harness.report.console import show
from harness.runner.below_supervisor import SUPERVISOR
from harness.runner.selection import Narrowing, select
from harness.suite.suite import load_suites
from harness.suite.suite_file import suite_path


@click.command()
@_shared.recipes
@click.option("--tool", "tools", multiple=True, type=click.Choice(TOOLS), help="only this tool (all four)")
@click.option("--set", "set_name", default="smoke", show_default=True, metavar="NAME", help="set of cases")
@click.option("-k", "expression", metavar="EXPRESSION", help="only cases whose names match, as in pytest")
@click.option("--jobs", type=click.IntRange(1, MOST_JOBS), default=min(MOST_JOBS, max(1, (os.cpu_count() or 2) - 1)),
              show_default="processors - 1", help="side by side")  # fmt: skip
@click.option(
    "--seconds", type=_shared.Number(0), default=60.0, show_default=True, help="begin no case of a tool after that long"
)
@click.option("--sanitizer", "named", type=_shared.PATH, help="compute-sanitizer, if not on the PATH")
@click.option("--out", default=RESULTS / "tables", type=_shared.NEW_FOLDER, metavar="DIR",
              help="where <gpu>/sanitizer.md goes (results/tables)")  # fmt: skip
def command(
    recipes: Sequence[str], tools: Sequence[str], set_name: str, expression: str | None, jobs: int, seconds: float,
    named: Path | None, out: Path,
) -> int:  # fmt: skip
    """Run the suites under compute-sanitizer on a GPU: memcheck, initcheck, synccheck and racecheck.

    Exits with 1 for an error or a failed case, 3 if a tool did not finish, 4 if it cannot run at all, 64 if there is no
    such case.
    """
    paths = [suite_path(name) for name in recipes] or [suite.path for suite in load_suites()]
    if not select(paths, set_name, narrowing=Narrowing(keyword=expression or "")):
        raise UsageError(f"no case of set {set_name} matches -k {expression!r}; harness list shows their names")
    program = executable(named)
    tools = tuple(dict.fromkeys(tools)) or TOOLS
    suites = sorted(map(str, paths))
    words = ["--set", set_name, *(("-k", expression) if expression else ())]
    folder = Path(tempfile.mkdtemp(prefix="sanitize-"))
    click.echo(f"logs are in {folder}")
    # The tools follow one process and no child of it, and what ran is counted here.
    os.environ[SUPERVISOR] = str(os.getpid())
    seen = run_planted(program, tools, folder / "planted")
    found = []
    for tool in tools:
        found.append(check(program, tool, seen[tool], suites, words, jobs, seconds, folder / tool))
        show(table(found[-1:]), tool)
    header = header_of(folder)
    path = out / gpu_folder(header["device"]) / "sanitizer.md"
    made_by = _shared.made_by()
    commit = new_header(made_by, header["device"], "", "")["commit"][:12]
    write_text(path, page(made_by, _version(program), header, commit, found))
    click.echo(shown(path))
    return Exit(exit_code(found))


def _version(program: str) -> str:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    lines = [line.strip() for line in said.splitlines() if "ersion" in line]
    return f"compute-sanitizer {lines[-1] if lines else 'of an unknown version'}"
