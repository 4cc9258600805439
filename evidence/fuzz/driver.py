"""Run trials by number, each under an alarm and a limit of memory, up to the first offence."""

from __future__ import annotations

import random
import resource
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from evidence.alarm import OutOfTime, at_most

Trial = Callable[[random.Random], str]

LONGEST = 60  # seconds of a trial, which takes far less, on a machine that does other things as well
ROOM = 2 << 30  # bytes of address space that trials may use together, on top of the process's use at the start
SAY_EVERY = 30  # seconds between two lines of progress


@dataclass(frozen=True)
class Offence:
    """A forbidden outcome of a trial; the first line of the text is a summary."""

    kind: str
    seed: int
    number: int
    text: str

    @property
    def again(self) -> str:
        """The command that repeats the trial."""
        return f"python -m evidence fuzz {self.kind} --seed {self.seed} --from {self.number} --count 1"


def run(
    kind: str, seed: int, start: int, count: int, trial: Trial, say: Callable[[str], None] = print
) -> Offence | None:
    """Run trials `start` to `start + count` of a seed, up to the first offence, which is returned.

    trial: gets its own generator, and returns what went wrong, or an empty text; anything it raises is an offence
    say: called with the progress from time to time, and at an interrupt
    """
    spoken, number = time.monotonic(), start
    try:
        with _limited_memory():
            for number in range(start, start + count):
                text = _offence(trial, random.Random(f"{kind}/{seed}/{number}"))
                if text:
                    return Offence(kind, seed, number, text)
                if time.monotonic() - spoken > SAY_EVERY:
                    spoken = time.monotonic()
                    say(_standing(kind, seed, start, count, number + 1))
    except KeyboardInterrupt:
        say(_standing(kind, seed, start, count, number))
        raise
    return None


def _standing(kind: str, seed: int, start: int, count: int, following: int) -> str:
    left = start + count - following
    resumed = f"python -m evidence fuzz {kind} --seed {seed} --from {following} --count {left}"
    return f"{following - start:,} of {count:,} trials; the rest: {resumed}"


def _offence(trial: Trial, rng: random.Random) -> str:
    try:
        with at_most(LONGEST):
            return trial(rng)
    except (Exception, OutOfTime) as error:
        return f"{type(error).__name__}: {error}\n\n{''.join(traceback.format_exception(error))}"


@contextmanager
def _limited_memory() -> Iterator[None]:
    """Limit the address space, so that a gigantic allocation is a MemoryError even if no page would be touched."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    try:
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + ROOM, before[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
