"""What NVIDIA's compute-sanitizer says of the same exhibits on a GPU."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from harness.files import ROOT
from harness.studies.museum.exhibit import Exhibit

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
FOUND = 99  # the exit code that we ask it for where it finds something
RAN = (0, 1)  # exit codes of a program that ran, with right bytes or wrong ones
SECONDS = 60.0  # a tool may take; several wait for ever where a kernel does
TITLES = {"sanitizer, bug": False, "sanitizer, mend": True}


def says(program: Sequence[str], name: str, mended: bool, seconds: float = SECONDS) -> str:
    """The tools that find something in an exhibit, or `nothing`, or `no end` where none does and one did not end.

    A tool under which the exhibit could not run is named, because it says nothing.
    """
    found, ended, failed = [], True, []
    run = [sys.executable, "-m", "harness.studies.museum.on_gpu", name, "mend" if mended else "bug"]
    for tool in TOOLS:
        command = [*program, "--tool", tool, "--error-exitcode", str(FOUND), *run]
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            ended = False
            continue
        if done.returncode == FOUND:
            found.append(tool)
        elif done.returncode not in RAN:
            failed.append(f"{tool} could not run (exit {done.returncode})")
    return ", ".join(found + failed) or ("nothing" if ended else "no end")


def side_by_side(program: Sequence[str], chosen: Sequence[Exhibit], jobs: int) -> dict[str, list[str]]:
    """What the tools say of every bug and every mend, by title of a column. jobs: exhibits at a time"""
    with ThreadPoolExecutor(jobs) as pool:
        asked = {title: [pool.submit(says, program, each.name, mended) for each in chosen]
                 for title, mended in TITLES.items()}  # fmt: skip
        return {title: [each.result() for each in column] for title, column in asked.items()}
