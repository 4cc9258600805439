"""The runs of a program on poisoned outputs, compared byte by byte, and the verdict on bytes that are wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from harness.contract.case import Case
from harness.contract.interval import Interval
from harness.device.device import Device, Outcome, Program
from harness.device.memory import equal_bytes, flat
from harness.errors import AccessError, LaunchError
from harness.expected.expected import Expected
from harness.expected.other_input import WORDS, Other
from harness.verdict import NO_STORY, Story, Verdict
from harness.verify.diagnosis.mismatch import story_of
from harness.verify.nearest import NearestRuns, nearest_runs

# Complementary patterns: a byte that no run writes differs from the expected byte in at least one of the first two
# runs, which have the case's own input. The third run has another input, if there is one.
POISONS = (0xA5, 0x5A, 0xA5)
COMPLEMENT = 0x5A  # of the last
REPEATS = tuple(range(len(POISONS)))
STATE = "state outlives the call: the same input is right in a fresh module"
_FRESH = ", and are right in a fresh module: state outlives the call"
_NAMED = 3  # at most this many approximate instructions are named in a reason


class Wrong(NamedTuple):
    """The finding of a run that went wrong.

    second_opinion: runs with the nearest value in every order, where approximate instructions made runs differ
    """

    verdict: Verdict
    reason: str
    story: Story = NO_STORY
    second_opinion: NearestRuns | None = None


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
        return outcomes, Wrong(Verdict.OUT_OF_BOUNDS, f"{target}: {trespass}")
    if not _right(device, outcomes, expected, excuses):
        return outcomes, _own_wrong(case, device, target, program, expected, outcomes, bool(other))
    if not last:
        return outcomes, None
    if doubt := other.doubt():
        return outcomes, Wrong(Verdict.SETUP_ERROR, f"on {WORDS}: {doubt}")
    return outcomes, _other_wrong(case, device, target, program, other, last[0])


def _own_wrong(
    case: Case, device: Device, target: str, program: Program, expected: Expected, outcomes: list[Outcome], ask: bool
) -> Wrong:
    """ask: whether to ask if the bytes are right where no earlier launch has left anything"""
    wrong, runs = wrong_fields(device, outcomes, expected), on_host(device, outcomes, expected)
    steady = not any(differ(outcomes, name) for name in wrong)
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
        steady = not any(differ(runs, name) for name in wrong)
        remembers = steady and _right_anew(device, program, other, REPEATS[-1])
        if steady and not remembers:
            repeats, poisons = [*repeats, 0], [*poisons, POISONS[0]]
            runs = [*runs, program.run(POISONS[0], 0)]
        wrong = wrong_fields(device, runs, other)
        found = explained(
            case, target, other, wrong, on_host(device, runs, other),
            Approximation(program, other, runs, repeats, poisons), poisons, STATE if remembers else "",
        )  # fmt: skip
    rows = (("input", f"{WORDS}; right on the case's own"), *found.story.rows)
    story = replace(found.story, rows=rows, trace=())  # a trace would be of the case's own input
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
    return not wrong or (not any(differ(outcomes, name) for name in wrong) and excuses(expected, outcomes[0]))


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
        raise AccessError(error.kind, error.where, f"{error.sentence}, on {WORDS}") from None
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
        if not device.accepts(outcomes[0].outputs[name], value) or differ(outcomes, name)
    ]


def differ(outcomes: Sequence[Outcome], name: str) -> bool:
    """Whether runs wrote different bytes of a field."""
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
    elif any((flat(run[name]) != flat(runs[0][name])).any() for name in wrong for run in runs):
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
    story = story_of(case, target, expected, runs, poisons, verdict, cause, approximated, told)
    return Wrong(verdict, reason, story, opinion)


def _unwritten(runs: list[dict[str, np.ndarray]], name: str, poisons: Sequence[int]) -> np.ndarray:
    """Mask of the bytes that hold their run's poison in every run."""
    return np.all([flat(run[name]) == poison for poison, run in zip(poisons, runs, strict=True)], axis=0)
