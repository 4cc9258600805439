"""What a run on a GPU wrote is copied before the next run may poison it."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from harness.device.cuda_program import CudaProgram


class Queued:
    """A copy that the stand-in of a stream makes when it is waited for."""

    def __init__(self, stream: Stream, source: np.ndarray):
        self.source, self.made = source, np.zeros_like(source)
        stream.queue.append(self)


class Stream:
    """A stand-in of CuPy's current stream: nothing that is queued happens before the host waits."""

    def __init__(self) -> None:
        self.queue: list[Queued] = []

    def synchronize(self) -> None:
        for copy in self.queue:
            copy.made[:] = copy.source
        self.queue.clear()


def test_without_guards_and_inputs_too_the_copies_are_whole(monkeypatch: pytest.MonkeyPatch):
    """compute-sanitizer runs a tensor without rows this way: nothing but its outputs is compared, so nothing waits."""
    stream = Stream()
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda: stream)))
    memory = np.full(4, 7, np.uint8)
    payload = SimpleNamespace(copy=lambda: Queued(stream, memory))
    program = object.__new__(CudaProgram)
    program.memory = SimpleNamespace(outputs={"amax": SimpleNamespace(payload=payload)}, trespass=lambda poison: "")
    program.workspace = program.scratch = {}
    outcome = program.outcome(0xA5)
    memory[:] = 0xFF  # the poison of the next run, on another stream
    assert outcome.outputs["amax"].made.tolist() == [7, 7, 7, 7]
