"""One case on one device: compile, run on poisoned outputs, compare every byte, give a verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from harness.contract.case import Case
from harness.contract.interval import Interval
from harness.contract.splits import other_splits
from harness.device.capability import incapable
from harness.device.device import Device, Outcome, Program
from harness.device.equal_bytes import equal_bytes
from harness.device.select import gpu_is_there
from harness.errors import AccessError, CompileError, LaunchError, NotCapable
from harness.suite.command_lines import verify_command, without_commands
from harness.verdict import Result, Verdict
from harness.verify.corner import wrong_corner
from harness.verify.diagnosis.mismatch import render
from harness.verify.digest import digests
from harness.verify.expected import NUMPY_LARGEST, Expected, expect, expect_on, expect_split, make_inputs
from harness.verify.host_room import host_room
from harness.verify.nearest import NearestRuns, nearest_runs

# Complementary patterns: a byte that no run writes differs from the expected byte in at least one of the first two
# runs. The third run repeats the first.
POISONS = (0xA5, 0x5A, 0xA5)
_NAMED = 3  # at most this many approximate instructions are named in a reason

_ACCESS_VERDICTS = {
    "out_of_bounds": Verdict.OUT_OF_BOUNDS,
    "misaligned": Verdict.OUT_OF_BOUNDS,
    "unwritten_read": Verdict.UNWRITTEN,
    "race": Verdict.NONDETERMINISTIC,
}


class Wrong(NamedTuple):
    """What is wrong. second_opinion: on runs that differ because of approximate instructions, if it was asked for"""

    verdict: Verdict
    reason: str
    story: str
    second_opinion: NearestRuns | None = None


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
    empty = blank(case, device)
    try:
        reason = incapable(case, device)
        if reason:
            result = replace(empty, verdict=Verdict.EXCLUDED, reason=reason)
        else:
            with host_room(case):
                if draw:
                    make_inputs(case)
                with device.reserve(case):
                    result = run(empty)
    except NotCapable as late:
        result = failed(empty, Verdict.LAUNCH_ERROR, f"admitted, and then called incapable, which is no excuse: {late}")
    except CompileError as error:
        result = failed(empty, Verdict.COMPILE_ERROR, str(error))
    except AccessError as error:
        verdict = _ACCESS_VERDICTS.get(error.kind, Verdict.LAUNCH_ERROR)
        result = failed(empty, verdict, f"{error.kind.replace('_', ' ')} at {error}")
    except LaunchError as error:
        result = failed(empty, Verdict.LAUNCH_ERROR, str(error))
    return replace(_as_it_ran(result), seconds=round(time.perf_counter() - started, 4))


def _verify(
    case: Case, device: Device, empty: Result, numpy_largest: int, inputs: dict[str, np.ndarray] | None
) -> Result:
    where = "cuda" if device.name == "cuda" else "cpu", numpy_largest
    expected = expect(case, *where) if inputs is None else expect_on(case, inputs, *where)
    if expected.disagreement:
        return failed(empty, Verdict.MISMATCH, expected.disagreement)
    others = splits_judged(case, numpy_largest) if inputs is None else ()
    splits = [(split, expect_split(split, *where)) for split in others]
    for split, other in splits:
        if other.disagreement:
            return failed(empty, Verdict.MISMATCH, f"split {split.shape}: {other.disagreement}")
    compared, ran, written = 0, [], {}
    for target in device.targets:
        program = device.prepare(case, target, expected.inputs, expected.fields)
        ran += [f"{target} {kernel.expression}" for kernel in program.kernels]
        demanded = expected.on(target)
        outcomes, found = judge(case, device, target, program, demanded)
        found = found or _unlike_eager(case, device, target, program, demanded)
        found = found or _resplit(case, device, target, program, splits)
        found = found or (wrong_corner(case, device, target, demanded) if inputs is None else None)
        if found is not None:
            return replace(failed(empty, *found), instantiations=tuple(ran), oracles=expected.oracles)
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
        case.id, case.recipe, Verdict.PASS, input=case.input, device=device.name, targets=device.targets,
        subject=device.subject_label,
    )  # fmt: skip


def failed(
    empty: Result, verdict: Verdict, reason: str, story: str = "", second_opinion: NearestRuns | None = None
) -> Result:
    """The result of a wrong kernel; without a story, the reason is used."""
    story = story or f"{verdict}  {empty.case_id}\n  {reason}\n  reproduce: {reproduce(empty)}"
    opinion = second_opinion.to_record() if second_opinion else {}
    reason = next(iter(reason.splitlines()), "")
    return replace(empty, verdict=verdict, reason=reason, story=story, second_opinion=opinion)


def judge(
    case: Case, device: Device, target: str, program: Program, expected: Expected
) -> tuple[list[Outcome], Wrong | None]:
    """Run once for each poison. Returns the outcomes, and what is wrong if anything is.

    A kernel is right if it wrote exactly the expected bytes in every run, the same each time, and nothing else.
    """
    outcomes, trespass = run_all(program)
    if trespass:
        return outcomes, Wrong(Verdict.OUT_OF_BOUNDS, f"{target}: {trespass}", "")
    wrong = wrong_fields(device, outcomes, expected)
    if not wrong:
        return outcomes, None
    approximation = Approximation(program, expected, outcomes)
    return outcomes, explained(case, target, expected, wrong, on_host(device, outcomes, expected), approximation)


def run_all(program: Program) -> tuple[list[Outcome], str]:
    """Run once for each of POISONS. Returns the outcomes, and a sentence if a write to other bytes ended the runs."""
    outcomes: list[Outcome] = []
    for repeat, poison in enumerate(POISONS):
        outcome = program.run(poison, repeat)
        if outcome.trespass:
            return outcomes, outcome.trespass
        outcomes.append(outcome)
    return outcomes, ""


class Approximation:
    """Approximate instructions in the runs of a program, and what the runs write with the nearest values."""

    def __init__(
        self, program: Program, expected: Expected, outcomes: Sequence[Outcome],
        repeats: Sequence[int] = range(len(POISONS)), poisons: Sequence[int] = POISONS,
    ):  # fmt: skip
        """repeats, poisons: of the run behind each outcome"""
        self.instructions = tuple(dict.fromkeys(each for outcome in outcomes for each in outcome.approximated))
        self._runs = program, expected.values, repeats, poisons, outcomes

    def second_opinion(self) -> NearestRuns | None:
        """Run the program again, in the same orders; its inputs must be those of the outcomes."""
        return nearest_runs(*self._runs)


def wrong_fields(device: Device, outcomes: Sequence[Outcome], expected: Expected) -> list[str]:
    """The fields that are wrong in any run."""
    return [
        name
        for name, value in expected.values.items()
        # Only the first run is compared with the expected bytes, so these are copied to a GPU once; other runs are
        # compared with it.
        if not device.accepts(outcomes[0].outputs[name], value) or _differ(outcomes, name)
    ]


def _resplit(
    case: Case, device: Device, target: str, program: Program, splits: Sequence[tuple[Case, Expected]]
) -> Wrong | None:
    """Run the launches of the case, or replay its graph, on other splits of its allocation."""
    for split, expected in splits:
        program.resplit(expected.inputs, expected.fields)
        _, found = judge(split, device, target, program, expected.on(target))
        if found:
            story = found.story.replace(f"CASE='{split.id}'", f"CASE='{case.id}'")
            return found._replace(reason=f"{found.reason}, when the split became {split.shape}", story=story)
    return None


def _unlike_eager(case: Case, device: Device, target: str, program: Program, expected: Expected) -> Wrong | None:
    """Compare a graph with the same launches made eagerly, where an interval leaves room for a difference."""
    bounded = [name for name, value in expected.values.items() if isinstance(value, Interval)]
    if case.mode == "eager" or not bounded:
        return None
    eager = device.prepare(replace(case, mode="eager"), target, expected.inputs, expected.fields)
    poison = POISONS[0]
    outcomes = [program.run(poison, 0), eager.run(poison, 0)]
    differing = [name for name in bounded if _differ(outcomes, name)]
    if not differing:
        return None
    reason = f"{target}: the graph and an eager launch differ in {', '.join(differing)}"
    runs, verdict = on_host(device, outcomes, expected), Verdict.NONDETERMINISTIC
    return Wrong(verdict, reason, render(case, target, expected, runs, (poison, poison), verdict))


def _differ(outcomes: Sequence[Outcome], name: str) -> bool:
    first, *others = (outcome.outputs[name] for outcome in outcomes)
    return any(not equal_bytes(first, other) for other in others)


def on_host(device: Device, outcomes: Sequence[Outcome], expected: Expected) -> list[dict[str, np.ndarray]]:
    return [
        {name: device.to_host(outcome.outputs[name], field) for name, field in expected.fields.items()}
        for outcome in outcomes
    ]


def explained(
    case: Case, target: str, expected: Expected, wrong: list[str], runs: list[dict[str, np.ndarray]],
    approximation: Approximation | None = None,
) -> Wrong:  # fmt: skip
    """The verdict on wrong fields. runs: one for each of POISONS; approximation: in these runs"""
    cause, opinion = "", None
    unwritten = [name for name in wrong if _unwritten(runs, name).any()]
    if unwritten:
        share = _unwritten(runs, unwritten[0])
        verdict = Verdict.UNWRITTEN
        reason = f"{target}: {int(share.sum())} of {share.size} bytes of {unwritten[0]} were never written"
    elif any(_raw(runs[0][name], run[name]).any() for name in wrong for run in runs[1:]):
        verdict = Verdict.NONDETERMINISTIC
        reason = f"{target}: runs on the same input differ in {', '.join(wrong)}"
        if approximation and approximation.instructions:
            named = ", ".join(approximation.instructions[:_NAMED])
            cause = f"approximate instruction: PTX leaves the last bits of {named} open"
            opinion = approximation.second_opinion()
            reason += f", because of an {cause}" + (f"; {opinion}" if opinion else "")
    else:
        bounded = all(isinstance(expected.values[name], Interval) for name in wrong)
        what = "values are outside their intervals" if bounded else "bytes differ"
        verdict, reason = Verdict.MISMATCH, f"{target}: {what} in {', '.join(wrong)}"
    told = str(opinion) if opinion else ""
    return Wrong(verdict, reason, render(case, target, expected, runs, POISONS, verdict, cause, told), opinion)


def _unwritten(runs: list[dict[str, np.ndarray]], name: str) -> np.ndarray:
    """Mask of the bytes that hold their run's poison in every run."""
    mask = np.ones(runs[0][name].nbytes, bool)
    for poison, run in zip(POISONS, runs, strict=True):
        mask &= run[name].reshape(-1).view(np.uint8) == poison
    return mask


def _raw(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return one.reshape(-1).view(np.uint8) != other.reshape(-1).view(np.uint8)


def reproduce(result: Result, target: str = "verify") -> str:
    """The command that repeats what led to a result. target: `verify` or `bench`"""
    chosen = "emulator" if result.device not in ("", "cuda") and gpu_is_there() else ""
    return verify_command(result.case_id, target, result.subject.rpartition(" (")[0], chosen)


def _as_it_ran(result: Result) -> Result:
    """Put the command that repeats the result into its story; a subject's story does not trace our kernels."""
    story = result.story
    if result.subject:
        story = without_commands(story, "trace")
    return replace(result, story=story.replace(verify_command(result.case_id), reproduce(result)))
