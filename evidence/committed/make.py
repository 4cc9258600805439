"""Make a committed table of one state, as a part in a folder of its own.

A folder holds parts of one state and one kind of GPU. A part that the time limit cut off is resumed if its command can,
and otherwise starts anew. Several processes may make tables in one folder.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from evidence.committed.catalogue import Table, load
from evidence.committed.parts import Making, digest, held, problem
from evidence.committed.state import state
from harness.errors import Exit, UsageError, exit_of
from harness.files import PACKAGE, ROOT, in_workdir
from harness.ground.ending import end_with_parent
from harness.records.run_folder import BENCH, now, read_bench
from harness.report.tables import write_jsonl, write_times

LEAST = 20.0  # seconds; with less time nothing is started
LAST = 30.0  # seconds that an interrupted command has to end
_RUN = f"run/{BENCH}"  # of a table from whose run others are cut
EVIDENCE = ROOT / "evidence"
_GO_ON = {"bench": "journal.jsonl", "verify": "journal.jsonl"}  # commands to --resume if this file exists


def make(making: Making, name: str, seconds: float) -> Exit | None:
    """Make one table within a time limit in seconds. Returns how its commands ended; None if the time was too short.

    Does nothing if another process has made it meanwhile. Raises UsageError if another process is making it, if the
    sources changed, or if the commands did not leave a file that they should.
    """
    busy = f"{name} is being made in {making.folder} by another process; wait until it ends, or make others with --only"
    with held(making.folder / name, busy):
        making.take()
        return Exit.CLEAN if name in making.made else _make(making, name, seconds)


def _make(making: Making, name: str, seconds: float) -> Exit | None:
    table, began = load()[0][name], time.monotonic()
    out = making.folder / name
    if table.part_of:
        _cut(making, table, out, name)
    else:
        _put_aside(out, table)
        out.mkdir(parents=True, exist_ok=True)
        for words in table.commands:
            code = _run(_words(words, out, making.gpu), out, began + seconds - time.monotonic())
            if code is None or int(code) not in table.ends:
                return code
    if state() != making.state:
        raise UsageError(f"the sources changed while {name} was made, so it is of no state; it does not count")
    files = {}
    cut_from = [_RUN] if any(each.part_of == name for each in load()[0].values()) else []
    for source in [*table.files_of(making.gpu).values(), *cut_from]:
        if not (out / source).is_file():
            raise UsageError(
                f"{name}: its commands ended and left no {source} in {out}; {out / 'log'} has what they said"
            )
        files[f"{name}/{source}"] = digest((out / source).read_bytes())
    making.save({name: {"date": now(), "seconds": round(time.monotonic() - began, 1), "files": files}})
    return Exit.CLEAN


def _cut(making: Making, table: Table, out: Path, name: str) -> None:
    """Cut the cases of some recipes out of a run, as a table of their own."""
    path = making.folder / table.part_of / _RUN
    known = making.made[table.part_of].get("files", {}).get(f"{table.part_of}/{_RUN}", "")
    if why := problem(path, known):
        raise UsageError(f"{name}: {path} {why}; make {table.part_of} again")
    header, records = read_bench(path)
    shown_here = [record for record in records if record["recipe"] in table.recipes]
    if not shown_here:
        raise UsageError(f"{name}: the run in {path.parent} has no time of {', '.join(table.recipes)}")
    out.mkdir(parents=True, exist_ok=True)
    write_jsonl(out / f"{name}.jsonl", header, shown_here)
    write_times(out, name, header, shown_here)


def goes_on(table: Table) -> bool:
    """Whether the table's first command can be resumed where it was cut off."""
    first = shlex.split(table.commands[0])
    return first[0] in _GO_ON or "--journal" in first


def _put_aside(out: Path, table: Table) -> None:
    """Move aside the files of a cut-off command that cannot be resumed, so that nothing measured is lost."""
    if out.exists() and not goes_on(table):
        number = 1
        while (aside := out.with_name(f"{out.name}.cut-{number}")).exists():
            number += 1
        out.rename(aside)


def _words(command: str, out: Path, gpu: str) -> list[str]:
    # The commands run in the checkout, from whatever folder this one was called.
    places = {"out": in_workdir(out), "parts": in_workdir(out.parent), "gpu": gpu}
    words = [word.format(**places) for word in shlex.split(command)]
    if words[0] in _GO_ON:
        run, file = ROOT / words[words.index("--run-dir") + 1], _GO_ON[words[0]]
        of_several_gpus = any(run.glob(f"gpu*/{file}"))
        if of_several_gpus:  # the GPUs' shards are merged again, because a later command may have been cut off
            (run / file).unlink(missing_ok=True)
        if of_several_gpus or (run / file).exists():
            words.append("--resume")
    return words


def _run(words: list[str], out: Path, seconds: float) -> Exit | None:
    """Run a command of the harness or of the evidence, with its output in `log`; None if the time limit cut it off."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), *filter(None, sys.path)])}
    with (out / "log").open("ab") as log:
        house = "evidence" if (EVIDENCE / "commands" / f"{words[0]}.py").is_file() else "harness"
        log.write(f"$ python -m {house} {shlex.join(words)}\n".encode())
        log.flush()
        command = [sys.executable, "-m", house, *words]
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            start_new_session=True, preexec_fn=partial(end_with_parent, os.getpid()),
        )  # fmt: skip
        try:
            return exit_of(process.wait(max(seconds, 1.0)))
        except subprocess.TimeoutExpired:
            _end(process)
            return None
        except KeyboardInterrupt:
            _end(process)
            raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a command; if it does not end, kill it and all processes that it started."""
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        process.wait(LAST)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
