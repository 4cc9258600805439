"""Run the suites on the emulator against one mutant, until a case fails.

A separate process copies the kernels, or the oracles, and runs the cases, so that neither a wrong module nor a hang
affects the others.
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
import harness.verify.diagnosis.mismatch  # keeps the right oracles, with which it diagnoses a wrong one
from harness.contract.case import Case
from harness.device.capability import incapable
from harness.device.emulator import EmulatorDevice
from harness.studies.mutants import reach
from harness.studies.mutants.catalogue import KERNELS, Mutant
from harness.verdict import Result, Verdict
from harness.verify.verify import verify

SMOKE, FULL = "smoke", "full"
LONGEST = 900  # seconds for a set: a mutant that no case has caught by then survives the set

_GREEN = (Verdict.PASS, Verdict.EXCLUDED)
_WRONG = re.compile(r"^(?:field|also) +\w+ (\w+) .*?: (\d+) of (\d+) entries", re.MULTILINE)
_CAUSE = re.compile(r"^cause +([^:\n]+)", re.MULTILINE)
_SENTENCES = {"the oracles disagree": "oracles disagree", "is not zero after": "scratch not cleaned"}


class OutOfTimeError(TimeoutError):
    """The block under `at_most` did not end in time."""


@dataclass(frozen=True)
class Catch:
    """The case that catches a mutant, or none.

    by: the id of the case, empty if none caught it; of_set: its set; verdict, reason: of that case
    cause: named by the diagnosis if `diagnosed`, else by the emulator
    wrong_bytes: 0 if the run stopped at the first wrong access
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
    """Run the smoke sets, then as much of the full sets as time allows. For a separate process: it replaces modules."""
    import torch

    started = time.perf_counter()
    torch.set_num_threads(1)  # a forked process lacks the threads that torch would wait for
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        device = _changed(mutant, Path(folder))
        ran, caught = 0, None
        for of_set in (SMOKE, FULL):
            caught, more = _first_failure(reach.cases(mutant, of_set), device)
            ran += more
            if caught is not None:
                break
    seconds = round(time.perf_counter() - started, 1)
    if caught is None:
        return Catch(mutant.name, cases=ran, seconds=seconds)
    verdict, diagnosed = str(caught.verdict), bool(_CAUSE.search(caught.story))
    found = of_set, verdict, caught.reason, cause_of(caught), diagnosed, wrong_bytes(caught)
    return Catch(mutant.name, caught.case_id, *found, ran, seconds)


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Raise OutOfTimeError in a block that takes longer. Cannot be nested: a process has one alarm."""

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
    named = _CAUSE.search(result.story)
    if named:
        return named[1].strip()
    for part, cause in _SENTENCES.items():
        if part in result.reason:
            return cause
    return result.reason.partition(" at ")[0] if " at " in result.reason else ""


def wrong_bytes(result: Result) -> int:
    found = _WRONG.findall(result.story)
    return sum(np.dtype(dtype.replace("bfloat16", "uint16")).itemsize * int(count) for dtype, count, _ in found)


def _changed(mutant: Mutant, folder: Path) -> EmulatorDevice:
    copy = mutant.copied_to(folder)
    if mutant.tree == KERNELS:
        return EmulatorDevice(kernels=copy)
    for name in [name for name in sys.modules if name.startswith("harness.oracles.")]:
        del sys.modules[name]
    harness.oracles.__path__[:] = [str(copy)]
    return EmulatorDevice()


def _first_failure(cases: Iterable[Case], device: EmulatorDevice) -> tuple[Result | None, int]:
    """The first failure, if any, and how many cases were run."""
    ran = 0
    case: Case | None = None
    try:
        with at_most(LONGEST):
            for case in cases:
                if incapable(case, device):
                    continue
                ran += 1
                result = verify(case, device)
                if result.verdict not in _GREEN:
                    return result, ran
    except OutOfTimeError:
        pass
    except Exception as error:  # a wrong oracle may raise anything, which is a failure of its case
        reason = f"{type(error).__name__} at {case.id}: {error}"
        return Result(case.id, case.recipe, Verdict.MISMATCH, reason=reason, story=reason), ran
    return None, ran
