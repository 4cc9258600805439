"""The launches that a bench times, on cold memory, behind a protocol that subjects implement, too."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from math import inf
from typing import Any, Protocol

from harness.bench.cold_copies import Passes, Rotation, capture, copies_for, memories, rotate
from harness.bench.gpu_timer import Clock
from harness.contract.case import Case
from harness.device.cuda import CudaDevice
from harness.device.cuda_program import CudaProgram
from harness.device.device import Device, Outcome
from harness.device.memory import CaseMemory
from harness.expected.expected import Expected
from harness.jit.compile import Compiled
from harness.jit.geometry import Grid
from harness.suite.physics import Needs, bytes_moved, impossible, needs_of, peak_tflops
from harness.verdict import Verdict

POISON = 0x5A  # fills the outputs before they are timed


class WrongBytesError(Exception):
    """The timed launches wrote other bytes than verification expects."""

    def __init__(self, verdict: Verdict, reason: str):
        super().__init__(reason)
        self.verdict = verdict
        self.reason = reason


class LoadedProgram(Protocol):
    """The launches of a case.

    grids: of each kernel; early: numbers of those that begin early; libraries: name and version of each that it calls
    """

    kernels: Sequence[Compiled]
    grids: Sequence[Grid]
    early: Sequence[int]
    libraries: Sequence[str]


class Timed(Protocol):
    """A case ready to be timed.

    calls: of the program in a round; launches: in a call, 0 if not counted; moved: bytes of a call
    needs: what physics allows no call to leave out
    """

    program: LoadedProgram
    calls: int
    launches: int
    moved: int
    needs: Needs = Needs()

    def current(self) -> AbstractContextManager[Any]:
        """Make the clock's stream current; everything below up to `end` is queued on it."""

    def begin(self) -> None:
        """Poison the outputs, and set up once."""

    def before_round(self) -> None:
        """Queue work that must come before the flush of a round."""

    def enqueue(self) -> None:
        """Queue a round without waiting."""

    def end(self) -> None:
        """Finish the last round."""

    def check(self) -> None:
        """Raise unless the timed rounds wrote the right bytes."""

    def method(self, us: float) -> str:
        """Text that says how it was timed, given the median time of a call."""


class TimedKernels(Timed):
    """Launches of our kernels: eager once a round, or a graph of them that cycles through copies of all memory.

    in_passes: capture one call on each copy and replay that, as for a subject
    """

    def __init__(self, device: CudaDevice, case: Case, expected: Expected, clock: Clock, in_passes: bool = False):
        self._device, self._clock, self._order = device, clock, random.Random(case.seed)
        self._expected: Expected | None = expected
        rotates = case.mode == "graph"
        memory = CaseMemory.upload(expected.inputs, expected.fields)
        copies = memories(memory, device.properties["l2CacheSize"]) if rotates else [memory]
        self._rotation = Rotation(device, case, copies, self._first(memory))
        self.program = self._rotation.programs[0]
        self.launches = len(self.program.steps)
        self.moved = bytes_moved(self.program.steps, expected.inputs, expected.fields)
        self._graph, self.calls = self._captured(in_passes) if rotates else (None, 1)
        filled = self._rotation.filled if rotates else inf
        self.needs = needs_of(case, self.program.steps, expected.inputs, expected.fields, filled, self.calls)

    def _first(self, memory: CaseMemory) -> CudaProgram | None:
        """The launches on the first copy, if they are not those of our kernels."""

    def current(self) -> AbstractContextManager[Any]:
        return self._clock.stream

    def begin(self) -> None:
        self._rotation.poison(POISON)

    def enqueue(self) -> None:
        if self._graph is None:
            self.program.enqueue()
        else:
            self._graph.launch(self._clock.stream)

    def check(self) -> None:
        require_right(self._device, self._rotation.outcomes(POISON, self._order), self._expected)
        self._expected = None  # frees gigabytes, and keeps the answer from the next timed subject

    def method(self, us: float) -> str:
        if self._graph is None:
            return self._clock.method
        return f"graphs of {self.calls} calls, {self._rotation.coldness(self._clock, self.calls, us)}"

    def _captured(self, in_passes: bool) -> tuple[Any, int]:
        launches = self._rotation.launches
        if not in_passes:
            return rotate(self._clock, launches)
        passes = Passes(self._clock, capture(self._clock, launches, len(launches)), len(launches))
        return passes, passes.calls


class TimedLoop(Timed):
    """Our kernels on several cases, one case after the other: eager once a round, or a graph of all of them.

    cases: each as often as it is launched, all of one mode; expected: what each of them must write
    """

    needs = Needs()

    def __init__(self, device: CudaDevice, cases: Sequence[Case], expected: Mapping[str, Expected], clock: Clock):
        self._device, self._clock, self._order = device, clock, random.Random(cases[0].seed)
        self._expected: Mapping[str, Expected] | None = expected
        firsts = {case.id: CaseMemory.upload(expected[case.id].inputs, expected[case.id].fields) for case in cases}
        in_graph = cases[0].mode == "graph"
        nbytes = sum(firsts[case.id].nbytes for case in cases)
        copies = copies_for(nbytes, device.properties["l2CacheSize"]) if in_graph else 1
        self._rotations = {}
        for case in dict.fromkeys(cases):
            first = firsts[case.id]
            twins = [first.twin() for _ in range(copies * cases.count(case) - 1)]
            self._rotations[case.id] = Rotation(device, case, [first, *twins])
        steps = {name: rotation.programs[0].steps for name, rotation in self._rotations.items()}
        self.program = self._rotations[cases[0].id].programs[0]
        self.launches = sum(len(steps[case.id]) for case in cases)
        self.moved = sum(
            bytes_moved(steps[case.id], expected[case.id].inputs, expected[case.id].fields) for case in cases
        )
        waiting = {name: iter(rotation.launches) for name, rotation in self._rotations.items()}
        self._loops = [partial(_each, [next(waiting[case.id]) for case in cases]) for _ in range(copies)]
        self._graph, self.calls = rotate(clock, self._loops) if in_graph else (None, 1)

    def current(self) -> AbstractContextManager[Any]:
        return self._clock.stream

    def begin(self) -> None:
        for rotation in self._rotations.values():
            rotation.poison(POISON)

    def enqueue(self) -> None:
        if self._graph is None:
            self._loops[0]()
        else:
            self._graph.launch(self._clock.stream)

    def check(self) -> None:
        for name, rotation in self._rotations.items():
            require_right(self._device, rotation.outcomes(POISON, self._order), self._expected[name])
        self._expected = None  # as in `TimedKernels`


def _each(launches: Sequence[Callable[[], None]]) -> None:
    for launch in launches:
        launch()


def require_right(device: Device, outcomes: Sequence[tuple[str, Outcome]], expected: Expected) -> None:
    """Raise WrongBytesError unless every outcome, each with the name of its copy, is the expected one."""
    for which, outcome in outcomes:
        if outcome.trespass:
            raise WrongBytesError(Verdict.OUT_OF_BOUNDS, f"after timing, {which}: {outcome.trespass}")
        wrong = [name for name in expected.fields if not device.accepts(outcome.outputs[name], expected.values[name])]
        if wrong:
            reason = f"after timing, bytes differ in {', '.join(wrong)} of {which}"
            raise WrongBytesError(Verdict.NONDETERMINISTIC, reason)


def digest(program: LoadedProgram) -> str:
    """Digest of machine code, grids, early launches and libraries: equal for programs that do the same on the GPU."""
    parts = [(kernel.code_digest, grid) for kernel, grid in zip(program.kernels, program.grids, strict=True)]
    parts += [f"early {number}" for number in program.early]
    parts += program.libraries
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def too_fast(device: Device, us: float, mhz: float, needs: Needs, roofline_gbps: float) -> str:
    """A sentence if no call with these needs can take so few microseconds on the GPU, or an empty text."""
    identity = device.identity()
    peak = peak_tflops(device.targets[0], int(identity.get("multiprocessors", 0)), mhz)
    return impossible(us, needs, int(identity["l2_bytes"]), roofline_gbps, peak)
