"""Energy of a call, by a counter and a GPU that are made up."""

from __future__ import annotations

import re
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from harness.bench.energy import AHEAD, LEAST, MOST, SETTLE, Energy, Meter, Replays, measure


@dataclass
class Gpu:
    """It takes so many watts, ends a call every `us`, and sets its counter every `apart` seconds."""

    watts: float = 500.0
    us: float = 100.0
    apart: float = 0.1
    noise: float = 0.0
    rises: float = 0.0  # watts a second
    fails: float = 0.0  # share of the readings, but for the first
    now: float = 0.0
    done: int = 0

    def __post_init__(self):
        self.rng = np.random.default_rng(0)
        self.set, self.counter = 0.0, 1e6

    def feed(self) -> None:
        self.now += 0.002
        self.done = int(self.now * 1e6 / self.us)
        if self.now - self.set >= self.apart:
            watts = self.watts + self.rises * min(self.now, SETTLE) + self.noise * self.rng.standard_normal()
            self.counter += 1e3 * watts * (self.now - self.set)
            self.set = self.now

    def meter(self) -> Meter:
        failed = self.now > 0 and self.rng.random() < self.fails
        return Meter(None if failed else int(self.counter), 41)

    def energy(self) -> Energy:
        return measure(self, self.meter, lambda: self.now)


@pytest.mark.parametrize("us", [10.0, 100.0, 2500.0])
def test_a_steady_gpu(us):
    gpu = Gpu(us=us)
    found = gpu.energy()
    assert found.microjoules == pytest.approx(500 * us, rel=0.01)
    assert found.error < 0.05 * found.microjoules and found.celsius == 41
    assert SETTLE + LEAST < gpu.now < MOST
    assert found.times().keys() == {"energy_uj", "energy_error_uj", "celsius"}


def test_the_error_bar_holds_what_it_should():
    found = []
    for seed in range(200):
        gpu = Gpu(noise=50.0)
        gpu.rng = np.random.default_rng(seed)
        found.append(gpu.energy())
    inside = sum(abs(each.microjoules - 50_000) <= each.error for each in found)
    assert 0.82 < inside / len(found) <= 1  # ten intervals: a little less than 95 %


def test_power_that_settles_is_not_counted():
    steady, rising = Gpu().energy(), Gpu(watts=200.0, rises=1000.0).energy()
    assert rising.microjoules == pytest.approx(steady.microjoules, rel=0.02)


@pytest.mark.parametrize(
    ("gpu", "why"),
    [
        (Gpu(apart=1.2), "the counter was set 3 times in 4 s, too seldom"),
        (Gpu(us=1e6), "no call ended between two settings of the counter"),
    ],
)
def test_what_cannot_be_told_is_said(gpu, why):
    assert gpu.energy().times() == {"no_energy": why}


def test_a_call_that_ended_is_one_of_all_rounds_of_its_batch(monkeypatch):
    """Two calls of 100 us in a round: ten rounds in a batch, of which eight are queued."""
    queued, events = [], []

    class Event:
        done = False

        def __init__(self, disable_timing):
            events.append(self)

        def record(self, stream):
            queued.append("event")

    failure = type("Failure", (Exception,), {})
    cuda = SimpleNamespace(
        Event=Event, driver=SimpleNamespace(CUDADriverError=failure), runtime=SimpleNamespace(CUDARuntimeError=failure)
    )
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    replays = Replays(SimpleNamespace(stream=nullcontext()), lambda: queued.append("round"), calls=2, us=100.0)
    replays.feed()
    assert (queued, replays.done) == ((["round"] * 10 + ["event"]) * AHEAD, 0)
    for event in events[:3]:
        event.done = True
    replays.feed()
    assert replays.done == 3 * 10 * 2
    replays.feed()
    assert len(events) == AHEAD + 3


@pytest.mark.parametrize("fails", [0.02, 0.4])
def test_a_reading_that_fails_is_no_reading_of_zero(fails):
    found = Gpu(fails=fails).energy()
    assert found.microjoules == pytest.approx(50_000, rel=0.02)
    assert found.error < 0.05 * found.microjoules


def test_where_most_readings_fail_it_is_said():
    why = Gpu(fails=0.95).energy().why_not
    assert re.fullmatch(r"the counter was set [0-4] times in 4 s, too seldom; [0-9]{4} of its readings failed", why)


def test_a_driver_that_counts_nothing():
    assert measure(Gpu(), Meter).why_not == "the driver counts no energy"
