"""One case on one device: compile, run on poisoned outputs, compare every byte, give a verdict."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from harness.contract.case import Case, other_splits
from harness.contract.interval import Interval
from harness.device.capability import incapable
from harness.device.device import Device, Program, targets_of
from harness.errors import (
    AccessError,
    CompileError,
    ContractError,
    LaunchError,
    NoDevice,
    NotCapable,
    NotEmulated,
    StorageError,
    UsageError,
)
from harness.expected.expected import NUMPY_LARGEST, Expected, expect, expect_on, expect_split, make_inputs
from harness.expected.other_input import WORDS, other_expected
from harness.text import one_line
from harness.verdict import NO_STORY, Result, Story, Verdict, fault_of
from harness.verify.corner import our_corner
from harness.verify.diagnosis.mismatch import story_of, trace_options
from harness.verify.digest import digests
from harness.verify.judge import POISONS, Wrong, differ, judge, on_host
from harness.verify.nearest import NearestRuns
from harness.verify.not_run import note_played, note_unset, take_notes
from harness.verify.room import gpu_needs, host_room

_ACCESS_VERDICTS = {
    "out_of_bounds": Verdict.OUT_OF_BOUNDS,
    "misaligned": Verdict.OUT_OF_BOUNDS,
    "unwritten_read": Verdict.UNWRITTEN,
    "race": Verdict.NONDETERMINISTIC,
}
_ERROR_VERDICTS = {
    CompileError: Verdict.COMPILE_ERROR,
    LaunchError: Verdict.LAUNCH_ERROR,
    NotEmulated: Verdict.NOT_EMULATED,
    NoDevice: Verdict.NO_DEVICE,
}


# Returns the verdict on a case: `verify` for our kernels, `harness.subjects.audit.verify.audit` for a subject.
Verifier = Callable[[Case, Device, int], Result]


def verify(
    case: Case, device: Device, numpy_largest: int = NUMPY_LARGEST, inputs: dict[str, np.ndarray] | None = None
) -> Result:
    """Run the case on every target of the device. A kernel's mistakes are never raised but become the verdict.

    numpy_largest: beyond this `work`, neither the NumPy oracle nor other splits are run
    inputs: the arrays its kernels read, by parameter, in place of those that the case would draw
    """
    return attempt(case, device, lambda empty: _verify(case, device, empty, numpy_largest, inputs), inputs is None)


def attempt(case: Case, device: Device, run: Callable[[Result], Result], draw: bool = True) -> Result:
    """Call `run` with a blank result while the device has room for the case; an error becomes a verdict.

    The case is EXCLUDED only if the device does not admit it, which is asked before any data exist.
    draw: draw the inputs before waiting for the device, because the largest take a minute
    """
    started = time.perf_counter()
    take_notes(case.id)  # of an attempt that was interrupted
    empty = blank(case, device)
    try:
        reason = incapable(case, device)
        if reason:
            result = replace(empty, verdict=Verdict.EXCLUDED, reason=reason)
        else:
            with host_room(case):
                result = _with_room(case, device, run, empty, make_inputs(case) if draw else {})
    except NotCapable as late:
        result = failed(empty, Verdict.LAUNCH_ERROR, f"admitted, and then called incapable, which is no excuse: {late}")
    except AccessError as error:
        verdict = _ACCESS_VERDICTS.get(error.kind, Verdict.LAUNCH_ERROR)
        kind = error.kind.replace("_", " ")
        result = failed(empty, verdict, f"{kind} at {error}", Story(where=f"{kind} at {error.where}"))
    except tuple(_ERROR_VERDICTS) as error:
        result = failed(empty, next(v for kind, v in _ERROR_VERDICTS.items() if isinstance(error, kind)), str(error))
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not _of_a_gpu(error):
            raise
        twice = ", also while no other large case ran on the GPU" if _of_a_gpu(error) else ""
        result = failed(empty, Verdict.NO_DEVICE, one_line(f"too little memory for the case{twice}: {error}"))
    except StorageError:
        raise
    except (UsageError, ContractError) as error:
        result = failed(empty, Verdict.SETUP_ERROR, str(error))
    return replace(result, notes=take_notes(case.id), seconds=round(time.perf_counter() - started, 4))


def _with_room(
    case: Case, device: Device, run: Callable[[Result], Result], empty: Result, inputs: Mapping[str, np.ndarray]
) -> Result:
    """Call `run` with room on the device, and once more if a GPU's memory is out: then while no large case runs."""
    needs = gpu_needs(case, device, inputs)
    try:
        with device.reserve(case, needs):
            return run(empty)
    except (MemoryError, RuntimeError) as error:
        if not _of_a_gpu(error):
            raise
        # What its frames hold would not be freed.
        traceback.clear_frames(error.__traceback__)
    with device.reserve(case, needs, alone=True):
        return run(empty)


def _of_a_gpu(error: Exception) -> bool:
    """Whether it is CuPy's or torch's for a GPU whose memory is out."""
    return type(error).__name__ == "OutOfMemoryError"


def _verify(
    case: Case, device: Device, empty: Result, numpy_largest: int, inputs: dict[str, np.ndarray] | None
) -> Result:
    where = "cuda" if device.name == "cuda" else "cpu", numpy_largest
    expected = expect(case, *where) if inputs is None else expect_on(case, inputs, *where)
    if expected.disagreement:
        return disagreeing(empty, case, expected)
    others = splits_judged(case, numpy_largest) if inputs is None else ()
    splits = [(split, expect_split(split, *where)) for split in others]
    for split, other in splits:
        if other.disagreement:
            return disagreeing(empty, split, other, f"split {split.shape}: ")
    other = other_expected(case, expected, where[0], inputs is not None)
    if other and other.disagreement:
        return disagreeing(empty, case, other, f"on {WORDS}: ")
    compared, ran, written = 0, [], {}
    for target in targets_of(device, case):
        program = device.prepare(case, target, expected.inputs, expected.fields)
        note_unset(case, program)
        note_played(case, program)
        ran += [f"{target} {kernel.expression}" for kernel in program.kernels]
        demanded = expected.on(target)
        outcomes, found = judge(case, device, target, program, demanded, other and other.on(target))
        found = found or _unlike_eager(case, device, target, program, demanded)
        found = found or _resplit(case, device, target, program, splits)
        found = found or (our_corner(case, device, target, demanded) if inputs is None else None)
        if found is not None:
            wrong = failed(empty, *found)
            if wrong.trace and target != device.targets[0]:
                wrong = replace(wrong, trace=(*wrong.trace, "--target", target))
            return replace(wrong, instantiations=tuple(ran), oracles=expected.oracles)
        fields = [field for each in (expected, *dict(splits).values()) for field in each.fields.values()]
        compared += len(POISONS) * sum(field.nbytes for field in fields)
        if wrote := digests(device, outcomes[0], expected, demanded):
            written[target] = wrote
    return replace(empty, bytes_compared=compared, instantiations=tuple(ran), oracles=expected.oracles, digests=written)


def splits_judged(case: Case, numpy_largest: int) -> tuple[Case, ...]:
    """The other splits of its allocation that a case is also judged on: all of them, if the NumPy oracle is run."""
    return other_splits(case) if case.work <= numpy_largest else ()


def blank(case: Case, device: Device) -> Result:
    return Result(
        case.id, case.recipe, Verdict.PASS, input=case.input, device=device.name, targets=targets_of(device, case),
        subject=device.subject_label,
    )  # fmt: skip


def failed(
    empty: Result, verdict: Verdict, reason: str, story: Story = NO_STORY, second_opinion: NearestRuns | None = None
) -> Result:
    """The result of a wrong kernel, or of a case in which none was judged; its story becomes text here."""
    told = str(story) if story.head else f"{verdict}  {empty.case_id}\n  {reason}"
    return replace(
        empty,
        verdict=verdict,
        reason=next(iter(reason.splitlines()), ""),
        story="\n".join([told, *([] if story.head else fault_of(verdict))]),
        trace=story.trace,
        findings=story,
        second_opinion=second_opinion.to_record() if second_opinion else {},
    )


def disagreeing(empty: Result, case: Case, expected: Expected, where: str = "") -> Result:
    """The result of a case whose oracles disagree, or expect too little. where: which input it is, as in `on ...: `"""
    name, index = expected.differing
    # Only the case's own input can be traced: both oracles beside what they read.
    trace = () if where or index is None else trace_options(case, expected.fields, name, index)
    story = Story(trace=trace, where=f"{name}, on which the oracles disagree" if name else "")
    return failed(empty, Verdict.SETUP_ERROR, f"{where}{expected.disagreement}", story)


def _resplit(
    case: Case, device: Device, target: str, program: Program, splits: Sequence[tuple[Case, Expected]]
) -> Wrong | None:
    """Run the launches of the case, or replay its graph, on other splits of its allocation."""
    for split, expected in splits:
        program.resplit(expected.inputs, expected.fields)
        _, found = judge(split, device, target, program, expected.on(target))
        if found:
            # Not to be traced: that would launch the split anew, in which its bytes may be right.
            story = replace(found.story, trace=())
            return found._replace(reason=f"{found.reason}, when the split became {split.shape}", story=story)
    return None


def _unlike_eager(case: Case, device: Device, target: str, program: Program, expected: Expected) -> Wrong | None:
    """Compare a graph with the same launches made eagerly, where an interval leaves room for a difference."""
    bounded = [name for name, value in expected.values.items() if isinstance(value, Interval)]
    if case.mode == "eager" or not bounded:
        return None
    program.resplit(expected.inputs, expected.fields)  # the last run may have had others
    eager = device.prepare(replace(case, mode="eager"), target, expected.inputs, expected.fields)
    poison = POISONS[0]
    outcomes = [program.run(poison, 0), eager.run(poison, 0)]
    differing = [name for name in bounded if differ(outcomes, name)]
    if not differing:
        return None
    reason = f"{target}: the graph and an eager launch differ in {', '.join(differing)}"
    runs, verdict = on_host(device, outcomes, expected), Verdict.NONDETERMINISTIC
    return Wrong(verdict, reason, story_of(case, target, expected, runs, (poison, poison), verdict))
