"""Time a function of the user's at once, without looking at what it writes.

Such times prove nothing, so they are kept nowhere: there is no journal that a gate, a merge or a report could take for
one of a run whose bytes were compared.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from harness.bench.cold_copies import Passes, memories
from harness.bench.gpu_timer import Clock, pedantic
from harness.bench.rounds import Baseline, InterleavedRounds, steady
from harness.bench.statistics import summarize
from harness.bench.timed import Timed
from harness.contract.case import Case
from harness.device.device import Device
from harness.device.memory import CaseMemory
from harness.errors import CaseError, DeviceUnavailable, LaunchError, UsageError
from harness.expected.expected import fields_of, make_inputs
from harness.subjects import streams
from harness.subjects.subject import Subject

MODES = ("eager", "graph")
UNVERIFIED = "NOT VERIFIED"  # stands where a verdict would


def time_at_once(subject: Subject, case: Case, device: Device, clock: Clock, gbps: float) -> Iterator[dict[str, Any]]:
    """A row of a table for the case eagerly and as a CUDA graph. gbps: of a device copy, which is 100 %

    Raises UsageError if the function refuses the case, DeviceUnavailable if it lacks a package, LaunchError if it
    raises or CUDA does.
    """
    if why := subject.absent():
        raise DeviceUnavailable(why)
    if why := subject.refuses(case):
        raise UsageError(f"{subject.name} refuses {case.id}: {why}; choose another --shape or --flag")
    for mode in MODES:
        timed = _Calls(subject, replace(case, mode=mode), device, clock)
        with timed.current():
            rounds = InterleavedRounds(clock, timed, Baseline(), partial(pedantic, clock))
            taken = steady(rounds.take(rounds.pilot()))
        found = summarize([1e6 * each.seconds for each in taken])
        rate = timed.moved / found.median / 1e3
        yield {
            "case": timed.case.id,
            "verdict": UNVERIFIED,
            "us": f"{found.median:,.2f}",
            "quartiles": f"{found.q1:,.2f} to {found.q3:,.2f}",
            "GB/s": f"{rate:,.0f}",
            "% of copy": f"{100 * rate / gbps:.0f}",
            "rounds": len(taken),
        }


class _Calls(Timed):
    """The function on one copy of the case's memory, or a graph of one call on each of several, which fill the L2."""

    def __init__(self, subject: Subject, case: Case, device: Device, clock: Clock):
        self.subject, self.case, self._clock = subject, case, clock
        inputs, fields = make_inputs(case), fields_of(case)
        memory = CaseMemory.upload(inputs, fields)
        self.moved = memory.nbytes
        copies = memories(memory, int(device.identity()["l2_bytes"])) if case.mode == "graph" else [memory]
        layouts = {name: (array.dtype.name, array.shape) for name, array in inputs.items()}
        layouts |= {name: (field.dtype, field.shape) for name, field in fields.items()}
        self._calls = [partial(self._call, *_views(each, layouts)) for each in copies]
        self._graph, self.calls = None, 1
        with self.current():
            self._calls[0]()  # what it compiles or loads cannot be captured
        if case.mode == "graph":
            with self._errors():
                graph = streams.Graph(clock.stream, self._calls)
            self._graph = Passes(clock, graph, len(copies))
            self.calls = self._graph.calls

    @contextmanager
    def current(self) -> Iterator[Any]:
        """Make the clock's stream current for CuPy, torch and Triton."""
        with self._errors(), streams.current(self._clock.stream) as stream:
            yield stream
            stream.synchronize()

    def enqueue(self) -> None:
        if self._graph is None:
            self._calls[0]()
        else:
            self._graph.launch(self._clock.stream)

    def _call(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        try:
            self.subject.quantize(self.case, dict(inputs), dict(outputs))
        except CaseError:
            raise
        except Exception as error:
            raise LaunchError(f"{self.subject.name} raised {type(error).__name__}: {error}") from error

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with streams.errors(self.case.id), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield


def _views(
    memory: CaseMemory, layouts: Mapping[str, tuple[str, tuple[int, ...]]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs and outputs with the dtypes and shapes that a function is given; bf16 is CuPy's uint16."""

    def view(name: str, flat: Any) -> Any:
        dtype, shape = layouts[name]
        return flat.view(np.dtype("uint16" if dtype == "bfloat16" else dtype)).reshape(shape)

    inputs = {name: view(name, array) for name, array in memory.inputs.items()}
    return inputs, {name: view(name, output.payload) for name, output in memory.outputs.items()}
