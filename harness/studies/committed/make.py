"""Make every committed table of one state: in parts, in a folder of their own, and put into `results/` when all are.

A folder holds parts of one state alone, and of one kind of GPU. What was begun and cut off by the time limit goes on
where its command can, and else begins anew.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import Exit, UsageError, exit_of
from harness.files import PACKAGE, RESULTS, ROOT, write_text
from harness.records.run_folder import BENCH, commit, now, read_bench, shown
from harness.report.tables import write_jsonl, write_times
from harness.studies.committed.catalogue import Table, load
from harness.studies.committed.state import state
from harness.suite.ending import end_with_parent

FILE = "tables.json"
LEAST = 20.0  # seconds; nothing is begun in less
LAST = 30.0  # seconds that a command has to end after it was interrupted
_GO_ON = {"bench": "journal.jsonl", "verify": "journal.jsonl"}  # commands that take --resume, and by which file


@dataclass
class Making:
    """What a folder holds.

    state, commit: of the sources; gpu: folder name of the GPU, empty until one is there
    made: by name of a table, when it was whole, and in how many seconds
    """

    folder: Path
    state: str
    commit: str
    gpu: str = ""
    made: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def left(self) -> list[str]:
        return [name for name in load()[0] if name not in self.made]

    def save(self) -> None:
        write_text(self.folder / FILE, json.dumps(self.about(), indent=1) + "\n")

    def about(self) -> dict[str, Any]:
        return {"state": self.state, "commit": self.commit, "gpu": self.gpu, "tables": self.made}


def begin(folder: Path) -> Making:
    """What the folder holds, or a new making in it. Raises UsageError if it is of another state than this tree."""
    here, found = state(), read(folder)
    if found is None:
        folder.mkdir(parents=True, exist_ok=True)
        return Making(folder, here, commit())
    if found.state != here:
        raise UsageError(
            f"{folder} holds {len(found.made)} tables of state {found.state[:12]} (commit {found.commit[:12]}), and "
            f"this tree is of {here[:12]}; tables of two states are not mixed: check that out, or name another --into"
        )
    return found


def read(folder: Path) -> Making | None:
    """What `tables.json` of a folder says, None without one. Raises UsageError if it is damaged."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        found = Making(folder, about["state"], about["commit"], about["gpu"], about["tables"])
        whole = all(isinstance(each, str) for each in (found.state, found.commit, found.gpu)) and all(
            isinstance(each, dict) for each in (found.made, *found.made.values())
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise UsageError(f"{path} is not what `harness tables` writes; delete it and begin anew")
    return found


def make(making: Making, name: str, seconds: float) -> Exit:
    """Make one table, in at most so many seconds. INTERRUPTED if that was too short, else how its commands ended.

    Raises UsageError if the sources changed meanwhile, or a file is missing that the commands should leave.
    """
    table, began = load()[0][name], time.monotonic()
    out = making.folder / name
    if table.part_of:
        _cut(making.folder / table.part_of, table, out, name)
    else:
        _put_aside(out, table)
        out.mkdir(parents=True, exist_ok=True)
        for words in table.commands:
            code = _run(_words(words, out, making.gpu), out, began + seconds - time.monotonic())
            if code is Exit.INTERRUPTED or int(code) not in table.ends:
                return code
    if state() != making.state:
        raise UsageError(f"the sources changed while {name} was made, so it is of no state; it does not count")
    missing = [source for source in _files(table, making.gpu).values() if not (out / source).is_file()]
    if missing:
        raise UsageError(
            f"{name}: its commands ended and left no {missing[0]} in {out}; {out / 'log'} has what they said"
        )
    making.made[name] = {"date": now(), "seconds": round(time.monotonic() - began, 1)}
    making.save()
    return Exit.CLEAN


def install(making: Making, results: Path = RESULTS) -> list[Path]:
    """Put all tables into `results/`, and `tables.json`, which names their state. Raises UsageError if one is left."""
    if making.left:
        raise UsageError(f"{', '.join(making.left)}: not made yet, and tables of two states are not mixed")
    if state() != making.state:
        raise UsageError("the sources changed since the tables were made; begin anew in another --into")
    written = []
    for name, table in load()[0].items():
        for target, source in _files(table, making.gpu).items():
            written.append(results / target)
            written[-1].parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(making.folder / name / source, written[-1])
            if written[-1].suffix == ".md":
                # A command that wrote into the folder makes the table as well where it is put. What lies below the
                # folder stays there.
                text = written[-1].read_text(encoding="utf-8")
                there, put = re.escape(shown(making.folder / name)), str(Path("results") / Path(target).parent)
                write_text(written[-1], re.sub(rf"{there}(?![/\w])", lambda _: put, text))
    write_text(results / FILE, json.dumps(making.about(), indent=1) + "\n")
    return [*written, results / FILE]


def _files(table: Table, gpu: str) -> Mapping[str, str]:
    return {target.format(gpu=gpu): source.format(gpu=gpu) for target, source in table.files.items()}


def _cut(run: Path, table: Table, out: Path, name: str) -> None:
    """The cases of some recipes out of a run, as a table of their own."""
    header, records = read_bench(run / "run" / BENCH)
    shown_here = [record for record in records if record["recipe"] in table.recipes]
    if not shown_here:
        raise UsageError(f"{name}: the run in {run} has no time of {', '.join(table.recipes)}")
    out.mkdir(parents=True, exist_ok=True)
    write_jsonl(out / f"{name}.jsonl", header, shown_here)
    write_times(out, name, header, shown_here)


def goes_on(table: Table) -> bool:
    """Whether the table's first command can go on where it was cut off."""
    first = shlex.split(table.commands[0])
    return first[0] in _GO_ON or "--journal" in first


def _put_aside(out: Path, table: Table) -> None:
    """Move what a command left that was cut off and cannot go on, so that nothing measured is lost."""
    if out.exists() and not goes_on(table):
        number = 1
        while (aside := out.with_name(f"{out.name}.cut-{number}")).exists():
            number += 1
        out.rename(aside)


def _words(command: str, out: Path, gpu: str) -> list[str]:
    words = [word.format(out=shown(out), gpu=gpu) for word in shlex.split(command)]
    if words[0] in _GO_ON and _begun(ROOT / words[words.index("--run-dir") + 1], _GO_ON[words[0]]):
        words.append("--resume")
    return words


def _begun(run: Path, file: str) -> bool:
    """Whether a run, or a shard of it on one of several GPUs, is there to go on with."""
    return (run / file).exists() or any(run.glob(f"gpu*/{file}"))


def _run(words: list[str], out: Path, seconds: float) -> Exit:
    """Run a command of the harness; INTERRUPTED if it was cut off. What it says goes to `log`."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), *filter(None, sys.path)])}
    with (out / "log").open("ab") as log:
        log.write(f"$ harness {shlex.join(words)}\n".encode())
        log.flush()
        command = [sys.executable, "-m", "harness", *words]
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            start_new_session=True, preexec_fn=end_with_parent,
        )  # fmt: skip
        try:
            return exit_of(process.wait(max(seconds, 1.0)))
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                process.wait(LAST)
            with suppress(ProcessLookupError):  # and what it started
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return Exit.INTERRUPTED
