"""What NVIDIA's compute-sanitizer says of the same exhibits on a GPU."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from harness.files import ROOT

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
FOUND = 99  # the exit code that we ask it for where it finds something
SECONDS = 60.0  # a tool may take; several wait for ever where a kernel does


def says(program: Sequence[str], name: str, mended: bool, seconds: float = SECONDS) -> str:
    """The tools that find something in an exhibit, or `nothing`, or `no end` where none does and one did not end."""
    found, ended = [], True
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
    return ", ".join(found) or ("nothing" if ended else "no end")
