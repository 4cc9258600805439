"""`harness roofline`"""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import click
import pandas as pd

from harness.errors import Exit, UsageError
from harness.report import facts_of, markdown
from harness.runner.run_files import BENCH_HEADER, RunFiles, latest_bench, read_run, shown
from harness.suite import ROOT
from harness.tables import show
from harness.targets.lines import Reached, load, reached

RUNS = ROOT / "results" / "runs"


@click.command()
@click.option("--run-dir", type=click.Path(path_type=Path), metavar="DIR", help="a new folder for the times")
@click.option("--newest", is_flag=True, help="time nothing; read the newest run with times")
@click.option("--into", type=click.Path(path_type=Path), metavar="FILE", help="write the table to FILE, as Markdown")
def command(run_dir: Path | None, newest: bool, into: Path | None) -> int:
    """Time every kernel that has a figure to reach, and hold it against that figure.

    The figures stand in harness/targets/lines.yaml. Bytes are verified first, as in every bench. Exits with 2 if a
    figure is missed, with 1 if bytes differ, with 3 if a kernel has no time.
    """
    targets = load()
    if newest:
        if run_dir:
            raise UsageError("--newest reads a run that is there; leave out --run-dir")
        run_dir = latest_bench(RUNS)
    else:
        run_dir = run_dir or RUNS / f"roofline-{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}"
        case_ids = dict.fromkeys(case_id for line in targets.lines for case_id in targets.case_ids(line))
        words = [word for case_id in case_ids for word in ("--case", case_id)]
        suites = [str(ROOT / "suites" / f"{name}.yaml") for name in sorted({_recipe(case) for case in case_ids})]
        timed = [sys.executable, "-m", "pytest", *suites, "--bench", "--run-dir", str(run_dir), *words]
        status = subprocess.run(timed, cwd=ROOT).returncode
        if not (run_dir / BENCH_HEADER).exists():
            return status
    run = read_run(run_dir)
    found = list(reached(targets, run.header, run.records))
    show(_frame(found), f"what the kernels reach, of what {targets.gpu} allows")
    if into:
        into.write_text(_markdown(run, found), encoding="utf-8")
        click.echo(shown(into))
    if not all(one.measured for one in found):
        return Exit.BYTES_DIFFER if any(record["verdict"] == "MISMATCH" for record in run.records) else Exit.NOISY
    return Exit.CLEAN if all(one.holds for one in found) else Exit.SLOWER


def _recipe(case_id: str) -> str:
    return case_id.partition("/")[0]


def _frame(found: list[Reached]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "kernel": [one.line.kernel for one in found],
            "case": [one.case_id for one in found],
            "us": ["" if one.microseconds is None else f"{one.microseconds:,.1f}" for one in found],
            "must": [one.demanded for one in found],
            "is": [one.found for one in found],
            "": [one.verdict for one in found],
        }
    )


def _markdown(run: RunFiles, found: list[Reached]) -> str:
    facts = "\n".join(f"- {name}: {value}" for name, value in facts_of(run.header).items() if name != "columns")
    held = sum(one.holds for one in found)
    return (
        f"# Figures to reach\n\n`make roofline` made this table: {held} of {len(found)} cases reach theirs. They "
        f"stand in `harness/targets/lines.yaml`; percent are of the copy in the same run.\n\n{facts}\n\n"
        f"{markdown(_frame(found))}\n"
    )
