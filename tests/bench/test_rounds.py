"""Rounds of a gate: each graph once, in a new order, its time by call, with the clock of its block of rounds."""

from __future__ import annotations

import random
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from harness.bench.rounds import BETWEEN_CLOCKS, TimedGraph, take


@pytest.fixture
def gpu(monkeypatch) -> SimpleNamespace:
    """A GPU whose graphs take `us` microseconds a call, and whose clock falls by 5 MHz a block."""
    found = SimpleNamespace(now=0.0, launched=[], blocks=[], mhz=2000.0)

    class Event:
        def record(self, stream):
            self.at = found.now

    class Clock:
        stream = nullcontext("stream")

        def restart(self):
            found.blocks.append([])

        def flush(self):
            found.blocks[-1].append("flush")

        def mhz(self):
            found.mhz -= 5
            return found.mhz, found.mhz

    def graph(name: str, us: float, calls: int) -> TimedGraph:
        def launch(stream):
            found.now += us * calls
            found.launched.append(name)

        return TimedGraph(SimpleNamespace(launch=launch), calls)

    cuda = SimpleNamespace(
        Event=Event, get_elapsed_time=lambda start, stop: (stop.at - start.at) / 1e3,
        driver=SimpleNamespace(CUDADriverError=KeyError), runtime=SimpleNamespace(CUDARuntimeError=KeyError),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    found.clock, found.graph = Clock(), graph
    return found


def test_a_time_is_of_one_call_and_has_the_clock_of_its_block(gpu):
    graphs = {"head": gpu.graph("head", 5.0, 3), "again": gpu.graph("again", 6.0, 3), "base": gpu.graph("base", 7.0, 4)}
    found = take(gpu.clock, graphs, BETWEEN_CLOCKS + 1, random.Random(0))
    for name, us in (("head", 5.0), ("again", 6.0), ("base", 7.0)):
        assert found[name].us == pytest.approx([us] * 2 * BETWEEN_CLOCKS)
        assert found[name].mhz == [1995.0] * BETWEEN_CLOCKS + [1990.0] * BETWEEN_CLOCKS
    assert gpu.blocks == [["flush"]] * 2


def test_each_round_has_each_graph_once_in_an_order_of_its_own(gpu):
    graphs = {name: gpu.graph(name, 5.0, 1) for name in ("head", "again", "base")}
    take(gpu.clock, graphs, 60, random.Random(0))
    rounds = [tuple(gpu.launched[start : start + 3]) for start in range(0, 180, 3)]
    assert all(sorted(each) == ["again", "base", "head"] for each in rounds)
    assert len(set(rounds)) == 6
