"""One case on one device: compile, run on poisoned outputs, compare every byte, give a verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from harness.contract.case import Case
from harness.contract.interval import Interval
from harness.contract.splits import other_splits
from harness.device.capability import incapable
from harness.device.device import Device, Outcome, Program
from harness.device.equal_bytes import equal_bytes
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
from harness.text import one_line
from harness.verdict import Result, Verdict, fault_of
from harness.verify.corner import wrong_corner
from harness.verify.diagnosis import disagreement
from harness.verify.diagnosis.mismatch import Story, render
from harness.verify.digest import digests
from harness.verify.expected import NUMPY_LARGEST, Expected, expect, expect_on, expect_split, make_inputs
from harness.verify.host_room import host_room
from harness.verify.nearest import NearestRuns, nearest_runs
from harness.verify.not_run import note_unset, take_notes
from harness.verify.other_input import WORDS, Other, other_expected

# Complementary patterns: a byte that no run writes differs from the expected byte in at least one of the first two
# runs, which have the case's own input. The third run has another input, if there is one.
POISONS = (0xA5, 0x5A, 0xA5)
COMPLEMENT = 0x5A  # of the last
REPEATS = tuple(range(len(POISONS)))
STATE = "state outlives the call: the same input is right in a fresh module"
_FRESH = ", and are right in a fresh module: state outlives the call"
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
    take_notes(case.id)  # of an attempt that was interrupted
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
    except NotEmulated as error:
        result = failed(empty, Verdict.NOT_EMULATED, str(error))
    except NoDevice as error:
        result = failed(empty, Verdict.NO_DEVICE, str(error))
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and type(error).__name__ != "OutOfMemoryError":  # torch's, of a GPU
            raise
        result = failed(empty, Verdict.NO_DEVICE, one_line(f"too little memory for the case: {error}"))
    except StorageError:
        raise
    except (UsageError, ContractError) as error:
        result = failed(empty, Verdict.SETUP_ERROR, str(error))
    return replace(result, notes=take_notes(case.id), seconds=round(time.perf_counter() - started, 4))


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
    for target in device.targets:
        program = device.prepare(case, target, expected.inputs, expected.fields)
        note_unset(case, program)
        ran += [f"{target} {kernel.expression}" for kernel in program.kernels]
        demanded = expected.on(target)
        outcomes, found = judge(case, device, target, program, demanded, other and other.on(target))
        found = found or _unlike_eager(case, device, target, program, demanded)
        found = found or _resplit(case, device, target, program, splits)
        found = found or (wrong_corner(case, device, target, demanded) if inputs is None else None)
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
        case.id, case.recipe, Verdict.PASS, input=case.input, device=device.name, targets=device.targets,
        subject=device.subject_label,
    )  # fmt: skip


def failed(
    empty: Result, verdict: Verdict, reason: str, story: str = "", second_opinion: NearestRuns | None = None
) -> Result:
    """The result of a wrong kernel, or of a case in which none was judged; without a story, the reason is used."""
    trace = story.trace if isinstance(story, Story) else ()
    story = str(story) or "\n".join([f"{verdict}  {empty.case_id}", f"  {reason}", *fault_of(verdict)])
    opinion = second_opinion.to_record() if second_opinion else {}
    reason = next(iter(reason.splitlines()), "")
    return replace(empty, verdict=verdict, reason=reason, story=story, trace=trace, second_opinion=opinion)


def disagreeing(empty: Result, case: Case, expected: Expected, where: str = "") -> Result:
    """The result of a case whose oracles disagree, or expect too little. where: which input it is, as in `on ...: `"""
    verdict = Verdict.SETUP_ERROR
    return failed(empty, verdict, f"{where}{expected.disagreement}", disagreement.told(case, expected, verdict, where))


def judge(
    case: Case, device: Device, target: str, program: Program, expected: Expected, other: Other | None = None,
    excuses: Callable[[Expected, Outcome], bool] = lambda expected, outcome: False,
) -> tuple[list[Outcome], Wrong | None]:  # fmt: skip
    """Run once for each poison. Returns the outcomes, and what is wrong if anything is.

    A kernel is right if it wrote exactly the expected bytes in every run, the same each time, and nothing else.

    other: of the input that the last run has, which then stays in place; without it, all have the case's own
    excuses: whether something else explains every byte of a run that is not the expected one
    """
    outcomes, trespass = run_all(program, REPEATS[:-1] if other else REPEATS)
    last: list[Outcome] = []
    if other and not trespass and _right(device, outcomes, expected, excuses):
        last, trespass = _run_other(program, other)
        if not trespass and _right(device, last, other, excuses):
            return [*outcomes, *last], None
        program.resplit(expected.inputs, expected.fields)
    if other and not trespass:
        # The case's own input in the order that only the other has had: is it the order, or the input?
        more, trespass = run_all(program, REPEATS[-1:])
        outcomes += more
    if trespass:
        return outcomes, Wrong(Verdict.OUT_OF_BOUNDS, f"{target}: {trespass}", "")
    if not _right(device, outcomes, expected, excuses):
        return outcomes, _own_wrong(case, device, target, program, expected, outcomes, bool(other))
    if not last:
        return outcomes, None
    if doubt := other.doubt():
        return outcomes, Wrong(Verdict.SETUP_ERROR, f"on {WORDS}: {doubt}", "")
    return outcomes, _other_wrong(case, device, target, program, other, last[0])


def _own_wrong(
    case: Case, device: Device, target: str, program: Program, expected: Expected, outcomes: list[Outcome], ask: bool
) -> Wrong:
    """ask: whether to ask if the bytes are right where no earlier launch has left anything"""
    wrong, runs = wrong_fields(device, outcomes, expected), on_host(device, outcomes, expected)
    steady = not any(_differ(outcomes, name) for name in wrong)
    remembers = ask and steady and _right_anew(device, program, expected, 0)
    approximation, cause = Approximation(program, expected, outcomes), STATE if remembers else ""
    found = explained(case, target, expected, wrong, runs, approximation, cause=cause)
    return found._replace(reason=f"{found.reason}{_FRESH}") if remembers else found


def _other_wrong(case: Case, device: Device, target: str, program: Program, other: Other, last: Outcome) -> Wrong:
    """The verdict on bytes that are right on the case's own input alone. last: the run on the other

    Bytes of the same order, once more in the same module and then in a fresh one, tell what outlives a call.
    """
    program.resplit(other.inputs, other.fields)
    repeats, poisons = [REPEATS[-1], REPEATS[-1]], [POISONS[-1], COMPLEMENT]
    with _on_other_input():
        runs = [last, program.run(COMPLEMENT, REPEATS[-1])]
        wrong = wrong_fields(device, runs, other)
        steady = not any(_differ(runs, name) for name in wrong)
        remembers = steady and _right_anew(device, program, other, REPEATS[-1])
        if steady and not remembers:
            repeats, poisons = [*repeats, 0], [*poisons, POISONS[0]]
            runs = [*runs, program.run(POISONS[0], 0)]
        wrong = wrong_fields(device, runs, other)
        found = explained(
            case, target, other, wrong, on_host(device, runs, other),
            Approximation(program, other, runs, repeats, poisons), poisons, STATE if remembers else "",
        )  # fmt: skip
    head, _, screen = str(found.story).partition("\n")  # without its trace, which is of the case's own input
    story = f"{head}\ninput     {WORDS}; right on the case's own\n{screen}"
    return found._replace(reason=f"{found.reason} on {WORDS}{_FRESH if remembers else ''}", story=story)


def _right_anew(device: Device, program: Program, expected: Expected, repeat: int) -> bool:
    """Whether a program that is wrong is right, twice, in modules whose variables have their first values.

    repeat: of the run that was wrong, because it says the order of blocks and warps. Its inputs are in place.
    """
    for _ in range(2):
        if not program.renew():
            return False
        if wrong_fields(device, [program.run(POISONS[repeat], repeat)], expected):
            return False
    return True


def _right(
    device: Device, outcomes: Sequence[Outcome], expected: Expected, excuses: Callable[[Expected, Outcome], bool]
) -> bool:
    wrong = wrong_fields(device, outcomes, expected)
    return not wrong or (not any(_differ(outcomes, name) for name in wrong) and excuses(expected, outcomes[0]))


def run_all(program: Program, repeats: Sequence[int] = REPEATS) -> tuple[list[Outcome], str]:
    """Run once for each of POISONS. Returns the outcomes, and a sentence if a write to other bytes ended the runs.

    repeats: the numbers of the runs, if not of all
    """
    outcomes: list[Outcome] = []
    for repeat in repeats:
        outcome = program.run(POISONS[repeat], repeat)
        if outcome.trespass:
            return outcomes, outcome.trespass
        outcomes.append(outcome)
    return outcomes, ""


def _run_other(program: Program, other: Other) -> tuple[list[Outcome], str]:
    program.resplit(other.inputs, other.fields)
    with _on_other_input():
        found, trespass = run_all(program, REPEATS[-1:])
    return found, f"{trespass}, on {WORDS}" if trespass else ""


@contextmanager
def _on_other_input() -> Iterator[None]:
    """Have an error say that the kernel ran on another input than the case's."""
    try:
        yield
    except AccessError as error:
        sentence = f"{str(error).removeprefix(f'{error.where}: ')}, on {WORDS}"
        raise AccessError(error.kind, error.where, sentence) from None
    except LaunchError as error:
        raise LaunchError(f"{error}, on {WORDS}") from None


class Approximation:
    """Approximate instructions in the runs of a program, and what the runs write with the nearest values.

    outcomes: of the runs; repeats, poisons: their numbers, which say the orders, and what outputs were filled with
    """

    def __init__(
        self, program: Program, expected: Expected, outcomes: Sequence[Outcome],
        repeats: Sequence[int] = REPEATS, poisons: Sequence[int] = POISONS,
    ):  # fmt: skip
        self.instructions = tuple(dict.fromkeys(each for outcome in outcomes for each in outcome.approximated))
        self._program, self._values, self._outcomes = program, expected.values, outcomes
        self._runs = tuple(zip(repeats, poisons, strict=True))

    def second_opinion(self) -> NearestRuns | None:
        """Run the program again, in the same orders; its inputs must be those of the outcomes."""
        return nearest_runs(self._program, self._values, self._runs, self._outcomes)


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
            # Not to be traced: that would launch the split anew, in which its bytes may be right.
            return found._replace(reason=f"{found.reason}, when the split became {split.shape}", story=str(found.story))
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
    approximation: Approximation | None = None, poisons: Sequence[int] = POISONS, cause: str = "",
) -> Wrong:  # fmt: skip
    """The verdict on wrong fields. runs: one for each of the poisons; approximation: in these runs

    cause: of wrong bytes that are the same in every run, if it is known
    """
    opinion, approximated = None, approximation.instructions[:_NAMED] if approximation else ()
    unwritten = [name for name in wrong if _unwritten(runs, name, poisons).any()]
    if unwritten:
        share, cause = _unwritten(runs, unwritten[0], poisons), ""
        verdict = Verdict.UNWRITTEN
        reason = f"{target}: {int(share.sum())} of {share.size} bytes of {unwritten[0]} were never written"
    elif any(_raw(runs[0][name], run[name]).any() for name in wrong for run in runs[1:]):
        verdict = Verdict.NONDETERMINISTIC
        reason, cause = f"{target}: runs on the same input differ in {', '.join(wrong)}", ""
        if approximated:
            cause = f"approximate instruction: PTX leaves the last bits of {', '.join(approximated)} open"
            opinion = approximation.second_opinion()
            reason += f", because of an {cause}" + (f"; {opinion}" if opinion else "")
    else:
        bounded = all(isinstance(expected.values[name], Interval) for name in wrong)
        what = "values are outside their intervals" if bounded else "bytes differ"
        verdict, reason = Verdict.MISMATCH, f"{target}: {what} in {', '.join(wrong)}"
    told = str(opinion) if opinion else ""
    story = render(case, target, expected, runs, poisons, verdict, cause, approximated, told)
    return Wrong(verdict, reason, story, opinion)


def _unwritten(runs: list[dict[str, np.ndarray]], name: str, poisons: Sequence[int]) -> np.ndarray:
    """Mask of the bytes that hold their run's poison in every run."""
    mask = np.ones(runs[0][name].nbytes, bool)
    for poison, run in zip(poisons, runs, strict=True):
        mask &= run[name].reshape(-1).view(np.uint8) == poison
    return mask


def _raw(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return one.reshape(-1).view(np.uint8) != other.reshape(-1).view(np.uint8)
