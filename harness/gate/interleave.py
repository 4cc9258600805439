"""Times of several graphs in random order, with the clock of the multiprocessors beside them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.bench.gpu_timer import GpuClock
from harness.device.cuda_code import cuda_errors
from harness.gate.decision import Samples

BLOCK = 10  # rounds between two readings of the multiprocessors' clock


@dataclass(frozen=True)
class TimedGraph:
    """A captured graph, and how many calls of the case it holds."""

    graph: Any
    calls: int


def take(clock: GpuClock, graphs: Mapping[str, TimedGraph], rounds: int, order: random.Random) -> dict[str, Samples]:
    """Microseconds a call, and MHz, of every graph for `rounds` rounds, rounded up to a multiple of BLOCK.

    In a round each graph runs once, in a new random order.
    """
    found = {name: ([], []) for name in graphs}
    for _ in range(-(-rounds // BLOCK)):
        for name, us, mhz in _block(clock, graphs, order):
            found[name][0].append(us)
            found[name][1].append(mhz)
    return {name: Samples(us, mhz) for name, (us, mhz) in found.items()}


def _block(clock: GpuClock, graphs: Mapping[str, TimedGraph], order: random.Random) -> list[tuple[str, float, float]]:
    import cupy

    queued: list[tuple[str, int, Any, Any]] = []
    with cuda_errors("timed graphs"), clock.stream as stream:
        clock.restart()
        clock.flush()  # keeps the GPU busy until the first graphs are queued
        for _ in range(BLOCK):
            for name in order.sample(sorted(graphs), len(graphs)):
                start, stop = cupy.cuda.Event(), cupy.cuda.Event()
                start.record(stream)
                graphs[name].graph.launch(stream)
                stop.record(stream)
                queued.append((name, graphs[name].calls, start, stop))
        mhz = clock.mhz()[0]
        return [
            (name, cupy.cuda.get_elapsed_time(start, stop) * 1e3 / calls, mhz) for name, calls, start, stop in queued
        ]
