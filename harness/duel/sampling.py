"""Times of several sides, each a graph, taken in random turns with the clock of the multiprocessors beside them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.bench.gpu_timer import GpuClock
from harness.device.cuda import cuda_errors
from harness.duel.judging import Samples

BLOCK = 10  # rounds between two readings of the multiprocessors' clock


@dataclass(frozen=True)
class Side:
    """A graph that calls one side of a case so many times."""

    graph: Any
    calls: int


def take(clock: GpuClock, sides: Mapping[str, Side], rounds: int, order: random.Random) -> dict[str, Samples]:
    """Microseconds a call, and MHz, of every side in so many rounds, a multiple of BLOCK.

    In a round each side runs once, in an order that is drawn anew.
    """
    found = {name: ([], []) for name in sides}
    for _ in range(-(-rounds // BLOCK)):
        for name, us, mhz in _block(clock, sides, order):
            found[name][0].append(us)
            found[name][1].append(mhz)
    return {name: Samples(us, mhz) for name, (us, mhz) in found.items()}


def _block(clock: GpuClock, sides: Mapping[str, Side], order: random.Random) -> list[tuple[str, float, float]]:
    import cupy

    queued: list[tuple[str, int, Any, Any]] = []
    with cuda_errors("timed graphs"), clock.stream as stream:
        clock.restart()
        clock.flush()  # which keeps the GPU busy until the first graphs are queued
        for _ in range(BLOCK):
            for name in order.sample(sorted(sides), len(sides)):
                start, stop = cupy.cuda.Event(), cupy.cuda.Event()
                start.record(stream)
                sides[name].graph.launch(stream)
                stop.record(stream)
                queued.append((name, sides[name].calls, start, stop))
        mhz = clock.mhz()[0]
        return [
            (name, cupy.cuda.get_elapsed_time(start, stop) * 1e3 / calls, mhz) for name, calls, start, stop in queued
        ]


def joined(one: Mapping[str, Samples], other: Mapping[str, Samples]) -> dict[str, Samples]:
    """The samples of more rounds behind those of the first."""
    return {name: Samples([*one[name].us, *more.us], [*one[name].mhz, *more.mhz]) for name, more in other.items()}
