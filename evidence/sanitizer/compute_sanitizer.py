"""compute-sanitizer on the command line: find it, wrap a command in it, read its log; and cases it cannot run."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from harness.contract.case import Case
from harness.errors import DeviceUnavailable
from harness.files import KERNELS
from harness.jit.signature import read_signatures
from harness.suite.launch_plan import plan

TOOLS = ("memcheck", "initcheck", "synccheck", "racecheck")
PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer")
FIRST_PORT, PORTS = 49152, 64  # ports per process, so that parallel ones do not collide
MOST_JOBS = (1 << 16) // PORTS - FIRST_PORT // PORTS

# Tool → why it does not run cases that call a library, whose kernels are not patched; other tools do.
LIBRARY = {
    "initcheck": "what a library's kernels write, which gemm_epilogue reads, is no value to it; so it never sees "
    "gemm_decode and gemm_epilogue, which no other case launches",
    "racecheck": "it breaks down in a library's kernels; of ours, only gemm_decode and gemm_epilogue are launched by "
    "no other case, and they have no shared memory, which is all that it looks at",
}

_OPTIONS = {
    "memcheck": ("--padding", "256", "--report-api-errors", "no"),
    "initcheck": ("--check-api-memory-access", "no"),  # memory may come from kernels that are not patched
    # How many mbarriers it tracks. The default, and 64, were sometimes too few for a process with many kernels, and a
    # launch failed; 65,536 used up a GPU's memory, and took several times as long.
    "synccheck": ("--num-cuda-barriers", "1024"),
}
_SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) errors?|RACECHECK SUMMARY: (\d+) hazards? displayed)")
_PREFIX = "========= "
# The last line appears for every process that leaves cases out; missing or failed cases are found in its journal.
_NO_FINDING = ("COMPUTE-SANITIZER", "ERROR SUMMARY", "RACECHECK SUMMARY", "Target application returned an error")
_LOST_LAUNCH = "Internal Sanitizer Error"  # a launch was not tracked, for lack of memory
_TABLE_FULL = "overflow of tracked"


def reason(tool: str, case: Case) -> str:
    """The reason why the tool does not run the case; empty if it does."""
    return LIBRARY.get(tool, "") if any(step.library for step in plan(case)) else ""


@dataclass(frozen=True)
class Log:
    """The log of one process.

    errors: in kernels, None without a summary
    findings: the first line and the location of each report, all locations of a race
    breakdowns: the tool's reports that it lost track of a launch or that its table was full
    """

    errors: int | None
    findings: Counter[str]
    breakdowns: Counter[str] = field(default_factory=Counter)


def executable(named: Path | None = None) -> str:
    """Find compute-sanitizer: the given path, on the PATH, or in CUDA's folders.

    Raises DeviceUnavailable if it is not there.
    """
    places = ["compute-sanitizer", *(f"{place}/compute-sanitizer" for place in PLACES)]
    # A name without a slash would be looked for on the PATH.
    found = next(filter(None, map(shutil.which, [str(named.absolute())] if named else places)), None)
    if found is None:
        where = f"{named} cannot be run" if named else f"it is neither on the PATH nor in {' or '.join(PLACES)}"
        raise DeviceUnavailable(
            f"compute-sanitizer is missing: {where}; CUDA's toolkit brings it, name it with --sanitizer"
        )
    return found


def wrapped(sanitizer: str, tool: str, log: Path, number: int, kernels: Iterable[str]) -> list[str]:
    """The arguments before a command that run it under `tool`. number: of the process, unique among parallel ones"""
    arguments = [sanitizer, "--tool", tool, "--log-file", str(log), "--target-processes", "application-only"]
    arguments += ["--port", str(FIRST_PORT + PORTS * number), "--max-connections", str(PORTS)]
    arguments += [
        "--launch-timeout",
        "300",
        "--require-cuda-init",
        "no",
        "--print-limit",
        "1000",
        "--show-backtrace",
        "device",
    ]
    for name in kernels:
        arguments += ["--kernel-name", f"kns=_Z{len(name)}{name}"]
    return [*arguments, *_OPTIONS.get(tool, ())]


def kernel_names() -> list[str]:
    """Every kernel of the recipes, unmangled."""
    return sorted(name for path in KERNELS.glob("*.cu") for name in read_signatures(path.stem))


def read_log(path: Path) -> Log:
    """Read a log; a missing or truncated one has no summary."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    summaries = [int(found) for pair in _SUMMARY.findall(text) for found in pair if found]
    lines = [line.removeprefix(_PREFIX) for line in text.splitlines() if line.startswith(_PREFIX)]
    findings: Counter[str] = Counter()
    breakdowns: Counter[str] = Counter()
    for number, line in enumerate(lines):
        if line and not line.startswith((" ", *_NO_FINDING)):
            below = [text.strip() for text in takewhile(lambda text: text.startswith(" "), lines[number + 1 :])]
            # A race has one line for each of the other accesses.
            where = below[:1] + [text for text in below[1:] if text.startswith("and ")]
            own = line.startswith(_LOST_LAUNCH) or _TABLE_FULL in line
            (breakdowns if own else findings)[" ".join([line, *where])] += 1
    if not summaries:
        return Log(None, findings, breakdowns)
    # The summary counts lost launches as errors.
    lost = sum(count for line, count in breakdowns.items() if line.startswith(_LOST_LAUNCH))
    errors = sum(summaries)
    return Log(max(errors - lost, findings.total()) if lost else errors, findings, breakdowns)
