"""Three rings that are right and tricky, and mutants of each with synchronisation dropped or moved: the original is
never accused, and nearly every mutant is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from async_source import PRELUDE
from cuda_source import buffer, module

from harness.emulator.errors import Fault
from harness.emulator.launch import launch
from harness.emulator.schedule import ASCENDING, DESCENDING, Schedule

TURNS, BYTES = 7, 256


@dataclass(frozen=True)
class Ring:
    """mutants: pairs of a line of the source, or a part of one, and what stands in its place"""

    name: str
    source: str
    block: int
    mutants: tuple[tuple[str, str], ...]


LOADS = Ring("a ring of loads", r"""
// Thread 0 keeps three loads ahead; all threads consume, and hand a slot back through an mbarrier of its own.
extern "C" __global__ void k(const u8* in, u8* out, int turns) {
  __shared__ alignas(128) u8 s[3][256]; __shared__ u64 full[3], empty[3];
  u32 t = threadIdx.x;
  if (t == 0) {
    for (int i = 0; i < 3; i++) init(full[i], 1);
    for (int i = 0; i < 3; i++) init(empty[i], 64);
    fence();
  }
  __syncthreads();
  if (t == 0)
    for (int ahead = 0; ahead < 3 && ahead < turns; ahead++) {
      expect(full[ahead], 256);
      load(s[ahead], in + 256 * ahead, 256, full[ahead]);
    }
  u32 sum = 0;
  for (int turn = 0; turn < turns; turn++) {
    int slot = turn % 3;
    wait(full[slot], turn / 3 & 1);
    for (int i = 0; i < 4; i++) sum += s[slot][(4 * t + i) % 256];
    arrive(empty[slot]);
    if (t == 0 && turn + 3 < turns) {
      wait(empty[slot], turn / 3 & 1);
      expect(full[slot], 256);
      load(s[slot], in + 256 * (turn + 3), 256, full[slot]);
    }
  }
  out[t] = sum;
}""", 64, (
    ("init(full[i], 1)", "init(full[i], 2)"),
    ("init(empty[i], 64)", "init(empty[i], 63)"),
    ("init(empty[i], 64)", "init(empty[i], 1)"),
    ("init(empty[i], 64)", "init(empty[i], 65)"),
    ("    fence();\n", ""),
    ("  __syncthreads();\n", ""),
    ("expect(full[ahead], 256)", "expect(full[ahead], 128)"),
    ("expect(full[ahead], 256)", "expect(full[ahead], 512)"),
    ("expect(full[ahead], 256)", "arrive(full[ahead])"),
    ("load(s[ahead], in + 256 * ahead, 256, full[ahead])", "load(s[ahead], in + 256 * ahead, 256, full[0])"),
    ("load(s[ahead], in + 256 * ahead, 256, full[ahead])", "load(s[0], in + 256 * ahead, 256, full[ahead])"),
    ("    wait(full[slot], turn / 3 & 1);\n", ""),
    ("    wait(full[slot], turn / 3 & 1);\n", "    if (t == 0) wait(full[slot], turn / 3 & 1);\n"),
    ("    wait(full[slot], turn / 3 & 1);\n", "    if (t < 32) wait(full[slot], turn / 3 & 1);\n"),
    ("wait(full[slot], turn / 3 & 1)", "wait(full[slot], turn / 3 & 1 ^ 1)"),
    ("wait(full[slot], turn / 3 & 1)", "wait(full[slot], turn & 1)"),
    ("wait(full[slot], turn / 3 & 1)", "wait(full[(slot + 1) % 3], turn / 3 & 1)"),
    ("    arrive(empty[slot]);\n", ""),
    ("    arrive(empty[slot]);\n", "    if (t < 63) arrive(empty[slot]);\n"),
    ("    arrive(empty[slot]);\n", "    arrive(empty[(slot + 1) % 3]);\n"),
    ("    for (int i = 0; i < 4; i++) sum += s[slot][(4 * t + i) % 256];\n    arrive(empty[slot]);\n",
     "    arrive(empty[slot]);\n    for (int i = 0; i < 4; i++) sum += s[slot][(4 * t + i) % 256];\n"),
    ("      wait(empty[slot], turn / 3 & 1);\n", ""),
    ("wait(empty[slot], turn / 3 & 1)", "wait(empty[slot], turn / 3 & 1 ^ 1)"),
    ("wait(empty[slot], turn / 3 & 1)", "wait(empty[(slot + 2) % 3], turn / 3 & 1)"),
    ("      expect(full[slot], 256);\n", ""),
    ("expect(full[slot], 256)", "expect(full[(slot + 1) % 3], 256)"),
    ("load(s[slot], in", "load(s[(slot + 1) % 3], in"),
    ("arrive(empty[slot]);", 'asm volatile("mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%0];" :: "r"(at(&empty[slot])) : "memory");'),
))  # fmt: skip

STORES = Ring("a ring of stores", r"""
// All threads fill a slot, thread 0 stores it; two stores may be in flight while a third slot is filled.
extern "C" __global__ void k(const u8* in, u8* out, int turns) {
  __shared__ alignas(128) u8 s[3][256];
  u32 t = threadIdx.x;
  asm volatile("" :: "r"(at(s)) : "memory");
  for (int turn = 0; turn < turns; turn++) {
    int slot = turn % 3;
    if (t == 0) wait_read<2>();
    __syncthreads();
    for (int i = t; i < 256; i += 64) s[slot][i] = in[256 * turn + i] + turn;
    fence();
    __syncthreads(); 
    if (t == 0) {
      store(out + 256 * turn, s[slot], 256);
      commit();
    }
  }
  if (t == 0) wait_all<0>();
  __syncthreads();  
  out[256 * turns + t] = out[t];
}""", 64, (
    ("    if (t == 0) wait_read<2>();\n", ""),
    ("wait_read<2>", "wait_read<3>"),
    ("    if (t == 0) wait_read<2>();\n", "    if (t == 1) wait_read<2>();\n"),
    ("    if (t == 0) wait_read<2>();\n", "    if (t == 32) wait_read<2>();\n"),
    ("    if (t == 0) wait_read<2>();\n    __syncthreads();\n", "    __syncthreads();\n    if (t == 0) wait_read<2>();\n"),
    ("    __syncthreads();\n", ""),
    ("    fence();\n", ""),
    ("    fence();\n    __syncthreads(); \n", "    __syncthreads(); \n    fence();\n"),
    ("    fence();\n", "    if (t == 0) fence();\n"),
    ("    fence();\n", "    if (t < 32) fence();\n"),
    ("    fence();\n", '    ASM("fence.proxy.async.global;");\n'),
    ("    for (int i = t; i < 256; i += 64) s[slot][i] = in[256 * turn + i] + turn;\n    fence();\n",
     "    fence();\n    for (int i = t; i < 256; i += 64) s[slot][i] = in[256 * turn + i] + turn;\n"),
    ("    __syncthreads(); \n", ""),
    ("    __syncthreads(); \n", "    __syncwarp();\n"),
    ("if (t == 0) {", "if (t == turn) {"),
    ("if (t == 0) {", "if (t == 32) {"),
    ("if (t == 0) {\n      store", "if (t < 2) {\n      store"),
    ("      commit();\n", ""),
    ("      commit();\n", "      if (turn % 2) commit();\n"),
    ("      store(out + 256 * turn, s[slot], 256);\n      commit();\n", "      commit();\n      store(out + 256 * turn, s[slot], 256);\n"),
    ("s[slot], 256)", "s[(slot + 1) % 3], 256)"),
    ("store(out + 256 * turn", "store(out + 128 * turn"),
    ("  if (t == 0) wait_all<0>();\n", ""),
    ("wait_all<0>", "wait_read<0>"),
    ("wait_all<0>", "wait_all<7>"),
    ("  if (t == 0) wait_all<0>();\n", "  if (t == 1) wait_all<0>();\n"),
    ("  __syncthreads();  \n", ""),
))  # fmt: skip

WARPS = Ring("a producer and consumers", r"""
// A warp loads, two warps change what came and store it; slots go round through mbarriers.
extern "C" __global__ void k(const u8* in, u8* out, int turns) {
  __shared__ alignas(128) u8 s[2][256]; __shared__ u64 full[2], empty[2];
  u32 t = threadIdx.x, lane = t % 32;
  if (t == 0) {
    for (int i = 0; i < 2; i++) { init(full[i], 1); init(empty[i], 2); }
    fence();
  }
  __syncthreads();
  if (t < 32) {
    if (lane == 0)
      for (int turn = 0; turn < turns; turn++) {
        int slot = turn % 2;
        wait(empty[slot], turn / 2 & 1 ^ 1);
        expect(full[slot], 256);
        load(s[slot], in + 256 * turn, 256, full[slot]);
      }
  } else {
    u8* mine;
    for (int turn = 0; turn < turns; turn++) {
      int slot = turn % 2;
      mine = s[slot] + (t / 32 - 1) * 128;
      wait(full[slot], turn / 2 & 1);
      for (int i = lane; i < 128; i += 32) mine[i] += 5;
      fence();
      __syncwarp();
      if (lane == 0) {
        store(out + 256 * turn + (t / 32 - 1) * 128, mine, 128);
        commit();
        wait_read<0>();
        arrive(empty[slot]);
      }
    }
  }
}""", 96, (
    ("init(full[i], 1)", "init(full[i], 2)"),
    ("init(empty[i], 2)", "init(empty[i], 1)"),
    ("init(empty[i], 2)", "init(empty[i], 3)"),
    ("    fence();\n  }\n  __syncthreads", "  }\n  __syncthreads"),
    ("  __syncthreads();\n", ""),
    ("    if (lane == 0)\n", ""),
    ("        wait(empty[slot], turn / 2 & 1 ^ 1);\n", ""),
    ("wait(empty[slot], turn / 2 & 1 ^ 1)", "wait(empty[slot], turn / 2 & 1)"),
    ("wait(empty[slot], turn / 2 & 1 ^ 1)", "wait(empty[slot], turn & 1 ^ 1)"),
    ("expect(full[slot], 256)", "expect(full[slot], 128)"),
    ("expect(full[slot], 256)", "expect(full[slot ^ 1], 256)"),
    ("        expect(full[slot], 256);\n", ""),
    ("load(s[slot]", "load(s[slot ^ 1]"),
    ("256, full[slot]);", "256, full[0]);"),
    ("      wait(full[slot], turn / 2 & 1);\n", ""),
    ("wait(full[slot], turn / 2 & 1)", "wait(full[slot], turn / 2 & 1 ^ 1)"),
    ("      wait(full[slot], turn / 2 & 1);\n", "      if (lane == 0) wait(full[slot], turn / 2 & 1);\n"),
    ("      for (int i = lane; i < 128; i += 32) mine[i] += 5;\n      fence();\n",
     "      fence();\n      for (int i = lane; i < 128; i += 32) mine[i] += 5;\n"),
    ("      fence();\n      __syncwarp", "      __syncwarp"),
    ("      __syncwarp();\n", ""),
    ("        commit();\n", ""),
    ("        wait_read<0>();\n", ""),
    ("wait_read<0>", "wait_read<1>"),
    ("        wait_read<0>();\n        arrive(empty[slot]);\n", "        arrive(empty[slot]);\n        wait_read<0>();\n"),
    ("        wait_read<0>();\n        arrive(empty[slot]);\n      }\n",
     "        arrive(empty[slot]);\n      }\n      if (lane == 1) wait_read<0>();\n"),
    ("        arrive(empty[slot]);\n", ""),
    ("(t / 32 - 1) * 128;\n", "(t / 32 - 1) * 64;\n"),
))  # fmt: skip

RINGS = (LOADS, STORES, WARPS)
SHARE = 0.95  # of the mutants that have to be caught


def run(ring: Ring, source: str, schedule: Schedule) -> None:
    data = np.random.default_rng(0).integers(0, 256, BYTES * TURNS, dtype=np.uint8)
    arrays = [buffer("in", data), buffer("out", np.zeros(BYTES * (TURNS + 1), np.uint8))]
    launch(module(PRELUDE + source), "k", (1, 1, 1), (ring.block, 1, 1), [*arrays, TURNS], schedule=schedule)


def caught(ring: Ring, source: str) -> Fault | None:
    for schedule in (ASCENDING, DESCENDING, *(Schedule(seed=seed) for seed in range(4))):
        try:
            run(ring, source, schedule)
        except Fault as fault:
            return fault
    return None


@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: ring.name)
def test_a_ring_is_not_accused(ring: Ring) -> None:
    assert caught(ring, ring.source) is None


@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: ring.name)
def test_nearly_every_mutant_is_caught(ring: Ring) -> None:
    missed = []
    for old, new in ring.mutants:
        assert ring.source.count(old) == 1, old
        if caught(ring, ring.source.replace(old, new)) is None:
            missed.append((old, new))
    assert len(ring.mutants) >= 20
    assert len(missed) <= (1 - SHARE) * len(ring.mutants), missed
