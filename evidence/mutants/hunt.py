"""Run the suites on the emulator against one mutant, until a case fails.

A separate process copies the kernels, or the oracles, and runs the cases, so that neither a wrong module nor a hang
affects the others. A case that cannot tell is left out: one whose kernels are the same code, or for which the oracles
still give what the right ones gave.
"""

from __future__ import annotations

import importlib
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evidence.alarm import OutOfTime, at_most
from evidence.mutants import reach, same_code
from evidence.mutants.catalogue import KERNELS, Mutant
from harness import files
from harness.contract.case import Case
from harness.device.capability import incapable
from harness.device.device import Device
from harness.device.emulator import EmulatorDevice
from harness.device.select import select
from harness.errors import CompileError, UsageError
from harness.suite.suite import find_case, suite_of
from harness.verdict import Result, Verdict
from harness.verify.diagnosis.classify import NOT_KNOWN
from harness.verify.verify import verify
from ptx_emulator.races import borne

SMOKE, FULL = "smoke", "full"
LONGEST = 900  # seconds for a set; a mutant that is not caught by then survives the set
TO_COMPARE = 1800  # seconds to compile every instantiation of a mutant whose code is the same in the sets

REFUSED, SAME_CODE = "does not compile", "same code"

_GREEN = (Verdict.PASS, Verdict.EXCLUDED)
_WRONG = re.compile(r"^(?:field|also) +\w+ (\w+) .*?: (\d+) of (\d+) entries", re.MULTILINE)
_CAUSE = re.compile(
    r"^cause +(fits |not known(?: \(a rounding\))?: \d+ entr[^:\n]*? fits? |not known \((?=[^)\n]*\)))?([^:)\n]+)",
    re.MULTILINE,
)
_SENTENCES = {
    "the oracles disagree": "oracles disagree",
    "is not zero after": "scratch not cleaned",
    "of its slack were written": "slack written",
    "is not what it promises": "wrong input",
    "is not the tensor that was drawn": "wrong operand",
    "the largest magnitude there is": "wrong amax given",
    "different values among": "degenerate",
}


@dataclass(frozen=True)
class Catch:
    """The case that catches a mutant, or none.

    by: the id of the case, empty if none caught it; of_set: its set; verdict, reason: of that case
    cause: named by the diagnosis if `diagnosed`, else by the emulator
    left_open: whether the diagnosis says that the cause is not known, or is one of several that fit
    wrong_bytes: 0 if the run stopped at the first wrong access
    cases: how many were run; seconds: for all of them; cpu: seconds of a processor
    discarded: why it does not count as a mutant: same behaviour, or no program at all; empty if it counts
    """

    mutant: str
    by: str = ""
    of_set: str = ""
    verdict: str = ""
    reason: str = ""
    cause: str = ""
    diagnosed: bool = False
    left_open: bool = False
    wrong_bytes: int = 0
    cases: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    discarded: str = ""


Unaffected = Callable[[Case], bool]  # whether the mistake can have no effect in a case


def hunt(
    mutant: Mutant,
    sets: Sequence[str] = (SMOKE, FULL),
    longest: int = LONGEST,
    answers: Mapping[str, str] | None = None,
    device_name: str = EmulatorDevice.name,
) -> Catch:
    """Run as much of the sets, in order, as time allows. For a separate process: it replaces modules.

    longest: seconds for a set; `TO_COMPARE` comes on top
    answers: `same_code.answer` of the right oracles by case id, of as many cases as known
    """
    import torch

    started, cpu = time.perf_counter(), time.process_time()
    torch.set_num_threads(1)  # a forked process lacks torch's threads, so torch would wait for ever
    ran, caught, of_set, reason, discarded = 0, None, "", "", ""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        try:
            device, unaffected = _changed(mutant, Path(folder), answers or {}, device_name)
            for of_set in () if same_code.same_syntax(mutant) else sets:
                cases, of_oracle = reach.cases(mutant, of_set), mutant.tree != KERNELS
                caught, more, late = _first_failure(cases, device, longest, unaffected, of_oracle)
                ran += more
                reason = f"no end of {of_set} within {longest} s" if late else reason
                if caught is not None:
                    break
            if not ran:
                with at_most(TO_COMPARE):
                    discarded = SAME_CODE if same_code.everywhere(mutant, Path(folder) / KERNELS) else ""
        except OutOfTime:
            reason = f"the same code in {' and '.join(sets)}, and {TO_COMPARE} s are too few to compare all"
        except CompileError:
            discarded = REFUSED
    spent = ran, round(time.perf_counter() - started, 1), round(time.process_time() - cpu, 1)
    if caught is None:
        cases, seconds, processor = spent
        return Catch(mutant.name, reason=reason, cases=cases, seconds=seconds, cpu=processor, discarded=discarded)
    verdict, diagnosed = str(caught.verdict), bool(_CAUSE.search(caught.story))
    of_set += "" if device.name == EmulatorDevice.name else f" on {device.name}"
    found = of_set, verdict, caught.reason, cause_of(caught), diagnosed, leaves_open(caught), wrong_bytes(caught)
    return Catch(mutant.name, caught.case_id, *found, *spent)


def _device(name: str, kernels: Path = files.KERNELS) -> Device:
    """The device, which reports what GPUs bear, too, but for an mbarrier at a block's end: our kernels do without."""
    device = select(name, kernels=kernels)
    return EmulatorDevice(kernels, also=borne.ALL - {borne.NO_INVAL}) if device.name == EmulatorDevice.name else device


def fails_anyway(case_id: str, device_name: str) -> str:
    """The verdict of a case that fails without a mutant; empty if it passes.

    Call it in a process with the right modules.
    """
    result = verify(find_case(case_id), _device(device_name))
    return "" if result.verdict in _GREEN else str(result.verdict)


def right_answers(recipes: Sequence[str]) -> dict[str, str]:
    """`same_code.answer` by id of the smoke cases that the emulator runs.

    Call it in a process with the right modules.
    """
    device = EmulatorDevice()
    cases = [case for recipe in recipes for case in suite_of(recipe).cases(SMOKE)]
    return {case.id: same_code.answer(case) for case in cases if not incapable(case, device)}


def cause_of(result: Result) -> str:
    """The name on the screen: a cause, all causes that fit, or a pattern of wrong entries whose cause is not known."""
    named = _CAUSE.search(result.story)
    if named:
        return named[2].strip()
    for part, cause in _SENTENCES.items():
        if part in result.reason:
            return cause
    return result.reason.partition(" at ")[0] if " at " in result.reason else ""


def leaves_open(result: Result) -> bool:
    """Whether the screen says that the cause is not known, or which of several fit."""
    named = _CAUSE.search(result.story)
    return bool(named) and (bool(named[1]) or named[2].strip() == NOT_KNOWN)


def wrong_bytes(result: Result) -> int:
    found = _WRONG.findall(result.story)
    return sum(np.dtype(dtype.replace("bfloat16", "uint16")).itemsize * int(count) for dtype, count, _ in found)


def _changed(mutant: Mutant, folder: Path, answers: Mapping[str, str], device_name: str) -> tuple[Device, Unaffected]:
    """Put a mutant in place; returns the device and a test for unaffected cases.

    Raises CompileError for an oracle that cannot be imported."""
    copy = mutant.copied_to(folder)
    if mutant.tree == KERNELS:
        return _device(device_name, copy), lambda case: same_code.of_case(case, copy)
    reach.import_oracles_from(copy)
    try:
        importlib.import_module(f"harness.oracles.{Path(mutant.file).stem}")
    except Exception as error:  # a wrong line at module level may raise anything
        raise CompileError(f"{mutant.file}: {type(error).__name__}: {error}") from None
    return _device(device_name), lambda case: case.id in answers and answers[case.id] == same_code.answer(case)


def _catches(result: Result, of_oracle: bool) -> bool:
    """Whether a result is one that only a mutant has. of_oracle: whether it is a mutant of an oracle"""
    if result.verdict is Verdict.SETUP_ERROR:
        return of_oracle
    return result.verdict.judges and result.verdict not in _GREEN


def _is_want_of_memory(error: Exception) -> bool:
    """Whether an error is Python's MemoryError, or torch's or CuPy's OutOfMemoryError."""
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def _first_failure(
    cases: Iterable[Case], device: Device, longest: int, unaffected: Unaffected, of_oracle: bool
) -> tuple[Result | None, int, bool]:
    """The first failure, if any, how many cases were run, and whether time ended before them.

    A case in which no kernel was judged, as for want of memory, says nothing about a mutant of a kernel. Of a mutant
    of an oracle it is the catch: it says that the oracles disagree. Raises CompileError for a kernel that does not
    compile.
    """
    ran = 0
    try:
        with at_most(longest):
            for case in cases:
                try:
                    if incapable(case, device) or unaffected(case):
                        continue
                    ran += 1
                    result = verify(case, device)
                except CompileError:
                    raise
                except Exception as error:  # a wrong oracle may raise anything, which counts as a failure of its case
                    if _is_want_of_memory(error):
                        continue
                    reason = f"{type(error).__name__} at {case.id}: {error}"
                    setup = of_oracle or isinstance(error, UsageError)
                    verdict = Verdict.SETUP_ERROR if setup else Verdict.MISMATCH
                    result = Result(case.id, case.recipe, verdict, reason=reason, story=reason)
                if _catches(result, of_oracle):
                    return result, ran, False
    except OutOfTime:
        return None, ran, True
    return None, ran, False
