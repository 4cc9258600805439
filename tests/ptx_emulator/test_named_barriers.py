"""Barriers of some threads of a block: they order these alone, and as many as their count says."""

from __future__ import annotations

import numpy as np
import pytest
from both_paths import both
from cuda_source import module

from ptx_emulator.races.borne import DEAD_READS

# Each of 128 threads stores a word, runs the code at BETWEEN, and loads the word of another warp.
EXCHANGE = """
#define BAR(number, count) asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(count) : "memory")
#define ARRIVE(number, count) asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(count) : "memory")
extern "C" __global__ void k(unsigned* x, unsigned* out) {
  __shared__ unsigned s[128];
  const int warp = threadIdx.x / 32;
  MEMORY[threadIdx.x] = threadIdx.x;
  BETWEEN
  if (READS) out[threadIdx.x] = MEMORY[threadIdx.x ^ OTHER];
}
"""


def outcome(memory: str, between: str, other: int, reads: str = "true", block: int = 128, prelude: str = "") -> str:
    source = prelude + EXCHANGE.replace("MEMORY", memory).replace("BETWEEN", between).replace("OTHER", str(other))
    arrays = {"x": np.zeros(block, np.uint32), "out": np.zeros(block, np.uint32)}
    got = both(module(source.replace("READS", reads)), arrays, block=block, who=False, strict={DEAD_READS})
    return got.fault[0] if got.fault else "clean"


@pytest.fixture(params=["s", "x"], ids=["shared", "global"])
def memory(request: pytest.FixtureRequest) -> str:
    return request.param


def test_a_barrier_of_some_warps_orders_these(memory: str) -> None:
    pairs = "BAR(1 + warp / 2, 64);"
    assert outcome(memory, pairs, 32) == "clean"
    assert outcome(memory, pairs, 33) == "clean"
    assert outcome(memory, pairs, 1) == "clean"
    assert outcome(memory, pairs, 64) == "race"
    assert outcome(memory, pairs, 96) == "race"
    assert outcome(memory, "BAR(1, 128);", 96) == "clean"
    assert outcome(memory, "BAR(1 + warp % 2, 64);", 64) == "clean"
    assert outcome(memory, "BAR(1 + warp % 2, 64);", 32) == "race"


def test_order_passes_from_barrier_to_barrier(memory: str) -> None:
    through = "if (warp < 2) BAR(1, 64); if (warp == 1 || warp == 2) BAR(2, 64); if (warp > 1) BAR(3, 64);"
    assert outcome(memory, through, 96, reads="warp == 3") == "clean"
    assert outcome(memory, through, 96, reads="warp == 0") == "race"
    back = "if (warp > 1) BAR(3, 64); if (warp == 1 || warp == 2) BAR(2, 64); if (warp < 2) BAR(1, 64);"
    assert outcome(memory, back, 96, reads="warp == 3") == "race"


def test_the_wrong_number_of_threads(memory: str) -> None:
    assert outcome(memory, "BAR(1, 64);", 64) == "divergent_barrier"
    assert outcome(memory, "BAR(1, 96);", 64) == "divergent_barrier"
    assert outcome(memory, "BAR(1, 160);", 64) == "divergent_barrier"
    assert outcome(memory, "if (warp) BAR(1, 128);", 64, reads="warp") == "divergent_barrier"
    assert outcome(memory, "if (warp) BAR(1, 96);", 64) == "race"
    assert outcome(memory, "if (warp) BAR(1, 96);", 32, reads="warp > 1") == "clean"


def test_who_arrives_is_ordered_before_who_waits_but_not_behind(memory: str) -> None:
    half = "if (warp < 2) ARRIVE(1, 128); else BAR(1, 128);"
    assert outcome(memory, half, 64, reads="warp > 1") == "clean"
    assert outcome(memory, half, 64, reads="warp < 2") == "race"
    assert outcome(memory, half.replace("128", "64"), 64, reads="warp > 1") == "divergent_barrier"
    late = f"{half} if (warp < 2) MEMORY[threadIdx.x] = 1;".replace("MEMORY", memory)
    assert outcome(memory, late, 64, reads="warp > 1") == "race"
    assert outcome(memory, half + " BAR(2 + warp / 2, 64);", 96, reads="warp > 1") == "clean"


def test_what_several_warps_read_is_overwritten_behind_a_barrier_of_these(memory: str) -> None:
    source = """
    BAR(3, 128);
    const unsigned v = MEMORY[warp < READERS ? 0 : 127];
    if (warp < JOIN) BAR(1, 32 * JOIN);
    if (threadIdx.x == 32) MEMORY[0] = v;
    BAR(3, 128);""".replace("MEMORY", memory)

    def of(readers: int, join: int) -> str:
        return outcome(memory, source.replace("READERS", str(readers)).replace("JOIN", str(join)), 64)

    assert of(2, 2) == of(2, 3) == of(3, 3) == of(4, 4) == "clean"
    assert of(3, 2) == of(4, 2) == of(4, 3) == "race"


def test_barriers_in_a_loop(memory: str) -> None:
    source = """
    for (unsigned i = 0; i < 9; ++i) {
      BAR(1 + warp / 2, 64);
      const unsigned v = MEMORY[threadIdx.x ^ 32];
      if (i != SKIPPED) BAR(1 + warp / 2, 64);
      MEMORY[threadIdx.x] = v + 1;
    }
    BAR(3, 128);""".replace("MEMORY", memory)
    assert outcome(memory, source.replace("SKIPPED", "77"), 64) == "clean"
    assert outcome(memory, source.replace("SKIPPED", "5"), 64) == "race"


NUMBERED = """
#define LOOSE(what) asm volatile("barrier." what ";" ::: "memory")
#define COUNT(target, what) \\
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; " what ", p; }" : "=r"(target) : "r"(t % 3))
"""


def numbered(between: str, other: int = 64, **options) -> str:
    with_macros = f"const unsigned t = threadIdx.x; {between}"
    return outcome("s", with_macros.replace("\n", " "), other, prelude=NUMBERED, **options)


@pytest.mark.parametrize(("between", "found"), [
    # PTX names a barrier by its number, with or without a count, at any number of places.
    ('if (warp < 2) LOOSE("sync 1"); else LOOSE("sync 1");', "clean"),
    ('if (warp < 2) LOOSE("sync 1, 128"); else LOOSE("sync 1");', "clean"),
    ('if (warp < 2) LOOSE("sync 1"); else if (warp < 3) LOOSE("sync.aligned 1"); else BAR(1, 128);', "clean"),
    ('if (t % 2) LOOSE("sync 1"); else LOOSE("sync 1");', "clean"),  # lanes of one warp, none aligned
    ('if (t % 2) LOOSE("sync 1"); else LOOSE("sync 1, 128");', "clean"),
    ('if (t % 2) LOOSE("sync.aligned 1"); else LOOSE("sync.aligned 1");', "divergent_barrier"),
    ('if (t % 2) LOOSE("sync 1"); else LOOSE("sync.aligned 1");', "divergent_barrier"),
    ('if (t % 2) LOOSE("sync 1"); else LOOSE("sync 2");', "divergent_barrier"),
    ("if (t % 2) BAR(1, 128); else BAR(1, 128);", "divergent_barrier"),
    ('if (warp < 2) LOOSE("sync 1"); else LOOSE("sync 2");', "divergent_barrier"),
    # All give one count.
    ('if (warp < 2) LOOSE("sync 1, 64"); else LOOSE("sync 1, 128");', "divergent_barrier"),
    ('if (warp < 2) LOOSE("sync 1, 96"); else LOOSE("sync 1");', "divergent_barrier"),
    ('if (warp < 2) LOOSE("arrive 1, 64"); else LOOSE("sync 1, 128");', "divergent_barrier"),
    ("BAR(1, t < 64 ? 64 : 128);", "divergent_barrier"),
    # An arrival counts a warp once, when all its lanes are there.
    ('if (t % 2) LOOSE("arrive 1, 256"); else LOOSE("arrive 1, 256"); LOOSE("sync 1, 256");', "clean"),
    ('if (t % 2) LOOSE("arrive 1, 128"); else LOOSE("sync 1, 128"); LOOSE("sync 0");', "clean"),
    ('if (warp < 2) LOOSE("arrive 1, 128"); else LOOSE("sync 1"); LOOSE("sync 0");', "clean"),
    # A reduction mixed with others is unpredictable, and not if all reduce in one way.
    ('unsigned n; if (warp < 2) COUNT(n, "barrier.red.popc.u32 %0, 1"); else COUNT(n, "barrier.red.popc.u32 %0, 1");'
     " if (n != 85) return;", "clean"),
    ('unsigned n; if (warp < 2) COUNT(n, "barrier.red.popc.u32 %0, 1"); else LOOSE("sync 1");', "divergent_barrier"),
    ('unsigned n; if (warp > 1) COUNT(n, "barrier.red.popc.u32 %0, 1, 128"); else LOOSE("arrive 1, 128");',
     "divergent_barrier"),
])  # fmt: skip
def test_a_barrier_is_its_number(between: str, found: str) -> None:
    arrives = "warp > 1" if 'LOOSE("arrive' in between and "sync 0" not in between else "true"
    assert numbered(between, reads=arrives) == found
