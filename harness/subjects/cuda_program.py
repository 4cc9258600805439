"""A subject on a GPU: called with a stream current, or captured once into a graph that is replayed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from harness.contract.field import Field
from harness.device.device import Outcome
from harness.device.memory import Memory, upload
from harness.subjects import streams
from harness.subjects.audit.oracle_guard import watch
from harness.subjects.program import GRACE, SubjectProgram


class CudaSubjectProgram(SubjectProgram):
    """A subject on one case's memory of the GPU."""

    bf16 = "uint16"  # CuPy has no other name for 16 bits that it does no arithmetic with
    has_streams = True

    def __init__(self, *given: Any):
        super().__init__(*given)
        self.graph: streams.Graph | None = None
        self.synchronize()  # for which a non-blocking stream would not wait

    @cached_property
    def stream(self) -> Any:
        import cupy

        return cupy.cuda.Stream(non_blocking=True)

    @staticmethod
    def memory_of(inputs: Mapping[str, np.ndarray], fields: Mapping[str, Field]) -> Memory:
        return Memory.upload(inputs, fields)

    @staticmethod
    def uploaded(array: np.ndarray) -> Any:
        return upload(array)

    def put(self, inputs: Mapping[str, np.ndarray]) -> None:
        super().put(inputs)
        self.synchronize()

    def synchronize(self) -> None:
        import cupy

        cupy.cuda.get_current_stream().synchronize()

    def run(self, poison: int, repeat: int) -> Outcome:
        """Run on the default stream on even repeats, on a non-blocking one on odd repeats."""
        import cupy

        return self._queued(poison, self._watched, cupy.cuda.Stream.null if repeat % 2 == 0 else self.stream)

    def run_behind_work(self, poison: int) -> Outcome:
        """Queue poison behind the work as well: it overwrites what did not wait for the stream."""
        return self._queued(poison, self._watched, self.stream, held=True)

    def capture(self) -> None:
        with streams.errors(self.case.id):
            self.graph = streams.Graph(self.stream, [self._watched])

    def replay(self, poison: int) -> Outcome:
        return self._queued(poison, lambda: self.graph.launch(self.stream), self.stream)

    def later(self, seconds: float = GRACE) -> dict[str, Any]:
        """Wait for all streams of the GPU first."""
        import cupy

        with streams.errors(self.case.id):
            cupy.cuda.runtime.deviceSynchronize()
            return super().later(seconds)

    def _watched(self) -> None:
        with watch(self.subject):
            self.call()

    def _queued(self, poison: int, call: Callable[[], None], stream: Any, held: bool = False) -> Outcome:
        with streams.errors(self.case.id), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with streams.current(stream):
                if held:
                    streams.hold(stream, self.target)
                self.poison(poison)
                call()
                outputs = self._copies()  # queued, so that it holds what the stream's own work wrote and no more
            stream.synchronize()
            return Outcome(outputs, self.memory.trespass(poison))
