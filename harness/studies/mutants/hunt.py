"""One mutant against the suites on the emulator, until a case is not green.

A process of its own makes the copy of the kernels, or of the oracles, and runs the cases, so that neither a wrong
module nor a hang reaches the others.
"""

from __future__ import annotations

import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import harness.oracles
import harness.verify.diagnosis.mismatch  # by which a wrong oracle is diagnosed, so it holds the right ones
from harness.contract.case import Case
from harness.device.emulator import EmulatorDevice
from harness.errors import NotCapable
from harness.studies.mutants import reach
from harness.studies.mutants.catalogue import KERNELS, Mutant
from harness.verdict import Result, Verdict
from harness.verify.verify import verify

SMOKE, FULL = "smoke", "full"
LONGEST = 900  # seconds for a set: a mutant that nothing has caught by then is counted as one that survives it

_GREEN = (Verdict.PASS, Verdict.EXCLUDED)
_WRONG = re.compile(r"^(?:field|also) +\w+ (\w+) .*?: (\d+) of (\d+) entries", re.MULTILINE)
_CAUSE = re.compile(r"^cause +([^:\n]+)", re.MULTILINE)
_SENTENCES = {"the oracles disagree": "oracles disagree", "is not zero after": "scratch not cleaned"}


class OutOfTimeError(TimeoutError):
    """Something under `at_most` did not end in time."""


@dataclass(frozen=True)
class Catch:
    """The case that catches a mutant, or none.

    by: the id of the case that caught it, empty if none did; of_set: the set that holds this case
    verdict: of that case; reason: in a line
    cause: as the diagnosis names it if `diagnosed`, or else the emulator
    wrong_bytes: how many bytes differed; 0 where the run was stopped at the first wrong access
    cases: how many were run; seconds: for all of them
    """

    mutant: str
    by: str = ""
    of_set: str = ""
    verdict: str = ""
    reason: str = ""
    cause: str = ""
    diagnosed: bool = False
    wrong_bytes: int = 0
    cases: int = 0
    seconds: float = 0.0


def hunt(mutant: Mutant) -> Catch:
    """Run the smoke sets, then as much of the full sets as there is time for. Meant for a process of its own."""
    started = time.perf_counter()
    _use_one_thread()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        device = _changed(mutant, Path(folder))
        ran, caught = 0, None
        for of_set in (SMOKE, FULL):
            caught, more = _first_red(reach.cases(mutant, of_set), device)
            ran += more
            if caught is not None:
                break
    seconds = round(time.perf_counter() - started, 1)
    if caught is None:
        return Catch(mutant.name, cases=ran, seconds=seconds)
    return Catch(
        mutant.name,
        caught.case_id,
        of_set,
        str(caught.verdict),
        caught.reason,
        cause_of(caught),
        bool(_CAUSE.search(caught.story)),
        wrong_bytes(caught),
        ran,
        seconds,
    )


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Raise OutOfTimeError in what takes longer. Not to be nested: a process has one alarm."""

    def late(*_: object) -> None:
        raise OutOfTimeError(f"no end after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def cause_of(result: Result) -> str:
    """The cause of a red result, in the words of the diagnosis or of the emulator."""
    named = _CAUSE.search(result.story)
    if named:
        return named[1].strip()
    for words, cause in _SENTENCES.items():
        if words in result.reason:
            return cause
    return result.reason.partition(" at ")[0] if " at " in result.reason else ""


def wrong_bytes(result: Result) -> int:
    """The count of wrong bytes in all fields."""
    return sum(np.dtype(_dtype(dtype)).itemsize * int(count) for dtype, count, _ in _WRONG.findall(result.story))


def _dtype(name: str) -> str:
    return "uint16" if name == "bfloat16" else name


def _use_one_thread() -> None:
    """Keep torch from waiting for threads that a forked process does not have."""
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)


def _changed(mutant: Mutant, folder: Path) -> EmulatorDevice:
    copy = mutant.copied_to(folder)
    if mutant.tree == KERNELS:
        return EmulatorDevice(kernels=copy)
    for name in [name for name in sys.modules if name.startswith("harness.oracles.")]:
        del sys.modules[name]
    harness.oracles.__path__[:] = [str(copy)]
    return EmulatorDevice()


def _first_red(cases: Iterable[Case], device: EmulatorDevice) -> tuple[Result | None, int]:
    """The first red result, if any, and how many cases were run."""
    ran = 0
    case: Case | None = None
    try:
        with at_most(LONGEST):
            for case in cases:
                if not _admitted(case, device):
                    continue
                ran += 1
                result = verify(case, device)
                if result.verdict not in _GREEN:
                    return result, ran
    except OutOfTimeError:
        pass
    except Exception as error:  # a wrong oracle may raise anything, which makes its case red
        reason = f"{type(error).__name__} at {case.id}: {error}"
        return Result(case.id, case.recipe, Verdict.MISMATCH, reason=reason, story=reason), ran
    return None, ran


def _admitted(case: Case, device: EmulatorDevice) -> bool:
    try:
        device.admit(case)
    except NotCapable:
        return False
    return True
