"""Copies of a case's memory: how many evict each other from the L2, and how it is known that they did."""

from __future__ import annotations

import random
import sys
from types import SimpleNamespace

import pytest

from harness.bench import cold_copies
from harness.bench.cold_copies import LEAST_US, MOST_COPIES, Rotation, calls_for, copies_for, memories
from harness.bench.timed import POISON

MIB = 1 << 20


@pytest.mark.parametrize(
    "nbytes, copies", [(1 << 30, 2), (60 * MIB, 4), (MIB, 181), (1, MOST_COPIES), (0, MOST_COPIES)]
)
def test_copies_fill_three_times_the_l2(nbytes, copies):
    assert copies_for(nbytes, 60 * MIB) == copies


@pytest.mark.parametrize("copies, us, calls", [(2, 1000.0, 2), (7, 10.0, 21), (2, 0.1, 512), (181, 1.5, 181)])
def test_a_graph_has_every_copy_as_often_and_lasts(copies, us, calls):
    assert calls_for(copies, us) == calls
    assert calls % copies == 0
    assert calls * us >= LEAST_US or calls >= 512


@pytest.mark.parametrize(
    "nbytes, copies, alone_us, words",
    [
        (MIB, 20, 50.0, "warm: 20 copies fill 0.4x L2"),
        (MIB, 181, 50.0, "cold: 181 copies fill 3.6x L2; 50.00 us on one copy alone"),
        (MIB, 181, 99.0, "cold by construction, not shown: 181 copies fill 3.6x L2; one copy alone takes 99.00 us"),
        (60 * MIB, 4, 0.0, "cold: 4 copies fill 4.8x L2, one alone more than all of it"),
    ],
)
def test_cold_is_shown_or_not_said(monkeypatch, nbytes, copies, alone_us, words):
    made = object.__new__(Rotation)
    made.l2_bytes = 50 * MIB
    program = SimpleNamespace(memory=SimpleNamespace(nbytes=nbytes), launch=None, load_libraries=lambda: None)
    made.programs = [program] * copies
    stream = SimpleNamespace(synchronize=lambda: None)
    cupy = SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda: stream))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(cold_copies, "capture", lambda clock, launches, calls: calls if len(launches) == 1 else None)
    monkeypatch.setattr(cold_copies, "graph_us", lambda clock, graph: graph * alone_us)
    assert made.coldness(None, 4, 100.0).startswith(words)


def test_each_copy_has_memory_of_its_own_and_all_are_poisoned():
    class Memory:
        nbytes = 60 * MIB

        def twin(self):
            return Memory()

    first = Memory()
    copies = memories(first, 60 * MIB)
    assert copies[0] is first and len({*map(id, copies)}) == len(copies) == 4
    poisoned = []

    def program(memory):
        return SimpleNamespace(memory=memory, poison=lambda byte: poisoned.append((memory, byte)))

    prepared = program(first)
    prepared.on = lambda others: [program(memory) for memory in others]
    made = Rotation(SimpleNamespace(identity=lambda: {"l2_bytes": str(60 * MIB)}), None, copies, prepared)
    assert [each.memory for each in made.programs] == copies
    made.poison(POISON)
    assert poisoned == [(memory, POISON) for memory in copies]


def test_the_first_the_last_and_another_copy_are_looked_at():
    made = object.__new__(Rotation)
    made.programs = [SimpleNamespace(outcome=lambda poison, n=n: (n, poison)) for n in range(9)]
    looked = [made.outcomes(POISON, random.Random(seed)) for seed in range(20)]
    assert all(words[0][0] == "copy 1 of 9" and words[-1][0] == "copy 9 of 9" for words in looked)
    assert len({words[1][0] for words in looked}) > 3
