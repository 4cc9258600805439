"""Blocks and warps in several orders: what depends on them shows, what does not stays, and faults name the same."""

from __future__ import annotations

import numpy as np
import pytest
from both_paths import both
from cuda_source import buffer, module
from faults import run, words
from ptx_snippets import kernel
from test_tensor_core_kernel import GEMM

from ptx_emulator.errors import Fault
from ptx_emulator.launches import Module, launch
from ptx_emulator.schedule import ASCENDING, DESCENDING, RunAhead, Schedule

DRAWN = tuple(Schedule(seed=seed) for seed in range(6))
EVERY = (ASCENDING, DESCENDING, *DRAWN)
every = pytest.mark.parametrize("schedule", EVERY, ids=str)


def written(source: str, schedule: Schedule, count: int = 256, **options) -> list[int]:
    out = words(count)
    run(source, buffer("out", out), schedule=schedule, **options)
    return out.tolist()


@pytest.mark.sweep
@every
@pytest.mark.parametrize("count", [1, 2, 3, 33, 100, 256, 257, 1024])
@pytest.mark.parametrize("together", [1, 4])
def test_every_thread_has_one_place(schedule: Schedule, count: int, together: int) -> None:
    warps = -(-count // 32)
    threads = schedule.threads(warps, together)
    assert sorted(threads) == list(range(32 * warps))
    assert (threads % 32 == np.arange(32 * warps) % 32).all()
    whole = warps // together * together * 32
    groups = threads[:whole].reshape(-1, 32 * together)
    assert (groups == groups[:, :1] + np.arange(32 * together)).all() and (groups[:, 0] % (32 * together) == 0).all()
    assert (threads[whole:] == np.arange(whole, 32 * warps)).all()


def test_the_orders_are_what_they_are_called() -> None:
    assert ASCENDING.number(np.arange(5), 5).tolist() == [0, 1, 2, 3, 4]
    assert DESCENDING.number(np.arange(5), 5).tolist() == [4, 3, 2, 1, 0]
    orders = [Schedule(seed=seed).number(np.arange(5), 5).tolist() for seed in (1, 1, 2, 3)]
    assert orders[0] == orders[1] and len({*map(tuple, orders)}) == 3


INDICES = """
extern "C" __global__ void k(unsigned* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  unsigned warp, lane;
  asm("mov.u32 %0, %%warpid;" : "=r"(warp));
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = warp * 32 + lane == thread ? block * 1000 + thread : ~0u;
}"""


@every
@pytest.mark.parametrize("lanes", [128, 1 << 14])
def test_every_index_is_met_once(schedule: Schedule, lanes: int) -> None:
    out = words(12 * 90)
    launch(module(INDICES), "k", (2, 3, 2), (9, 5, 2), [buffer("out", out)], schedule=schedule, lanes=lanes)
    assert out.tolist() == [block * 1000 + thread for block in range(12) for thread in range(90)]


STALE = [
    ("u32", "st.global.u32 [%rd0], %r1;"),
    ("u64", "st.global.u64 [%rd0], %rd1;"),
    ("u16", "st.global.u16 [%rd0], %rs1;"),
    ("f32", "max.f32 %f0, %f1, %f2; st.global.f32 [%rd0], %f0;"),
    ("pred", "selp.u32 %r0, 1, 2, %p1; st.global.u32 [%rd0], %r0;"),
    ("on one way alone", "@%p1 mov.u32 %r2, 7; st.global.u32 [%rd0], %r2;"),
]


@pytest.mark.parametrize("body", [body for _, body in STALE], ids=[name for name, _ in STALE])
def test_a_register_that_nobody_wrote_holds_other_bits_in_other_orders(body: str) -> None:
    def left(schedule: Schedule) -> int:
        out = np.zeros(1, np.uint64)
        read = Module(kernel(f" ld.param.u64 %rd0, [p0]; {body}", 1))
        launch(read, "k", (1, 1, 1), (1, 1, 1), [buffer("out", out)], schedule=schedule)
        return int(out[0])

    assert left(ASCENDING) != left(DESCENDING)
    assert len({left(ASCENDING), left(DESCENDING), left(Schedule(seed=5))}) >= 2


LAST = """
extern "C" __global__ void k(unsigned* out) { if (threadIdx.x %% 32 == 0) atomicExch(out, %s); }"""


@pytest.mark.parametrize(
    ("who", "launch", "last"),
    [
        ("blockIdx.x", {"grid": 7}, 6),
        ("blockIdx.x", {"grid": 7, "lanes": 128}, 6),
        ("threadIdx.x / 32", {"block": 224}, 6),
    ],
)
def test_the_last_that_writes_wins(who: str, launch: dict[str, int], last: int) -> None:
    found = [written(LAST % who, schedule, 1, **launch)[0] for schedule in EVERY]
    assert found[:2] == [last, 0]
    assert len(set(found)) > 2


# Each sets a flag and reads that of another, which has not come so far if this one ran ahead.
FLAGS = """
__device__ unsigned flags[4096];
extern "C" __global__ void k(unsigned* out) {
  const unsigned me = blockIdx.x * blockDim.x + threadIdx.x, count = gridDim.x * blockDim.x;
  atomicExch(flags + me, 1u);
  %s
  out[me] = atomicExch(flags + (me + %d) %% count, 1u);
}"""


@pytest.mark.parametrize("distance", [1, 32, 256], ids=["lanes", "warps", "blocks"])
def test_some_run_ahead_of_others(distance: int) -> None:
    def found(schedule: Schedule) -> list[int]:
        module.cache_clear()  # the flags are 0 in a new module alone
        return written(FLAGS % ("", distance), schedule, 1024, grid=4, block=256)

    assert found(ASCENDING) == found(DESCENDING) == [1] * 1024
    assert any(0 in found(schedule) for schedule in DRAWN)


@pytest.mark.parametrize(("sync", "distance"), [("__syncthreads();", 32), ("__syncwarp();", 1), ("__syncwarp();", 8)])
def test_none_runs_ahead_of_a_barrier(sync: str, distance: int) -> None:
    """Not of the threads that it waits for: in its own warp, or in its own block."""
    size = 256 if sync == "__syncthreads();" else 32
    source = FLAGS.replace("(me + %d) %% count", f"me / {size} * {size} + (me + %d) %% {size}")
    for schedule in DRAWN:
        module.cache_clear()
        assert written(source % (sync, distance), schedule, 1024, grid=4, block=256) == [1] * 1024


def test_a_warp_runs_ahead_in_the_middle_of_a_loop() -> None:
    """Not at the start alone: each turn of the loop ends with a barrier that comes too early."""
    source = """
extern "C" __global__ void k(unsigned* out) {
  __shared__ unsigned turns[256];
  turns[threadIdx.x] = 0;
  unsigned ahead = 0;
  for (unsigned i = 1; i < 40; ++i) {
    __syncthreads();
    atomicExch(turns + threadIdx.x, i);
    if (atomicOr(turns + (threadIdx.x + 32) % 256, 0u) != i) ahead |= i < 4 ? 1u : 2u;
  }
  out[blockIdx.x * 256 + threadIdx.x] = ahead;
}"""
    assert written(source, ASCENDING, 1024, grid=4, block=256) == [0] * 1024
    found = np.bitwise_or.reduce([written(source, schedule, 1024, grid=4, block=256) for schedule in DRAWN], axis=None)
    assert found == 3


EXCHANGE = """
extern "C" __global__ void k(unsigned* out, unsigned* sums) {
  __shared__ unsigned s[96];
  const unsigned me = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned v = me * 2654435761u;
  for (int i = 0; i < 5; ++i) {
    s[threadIdx.x] = v;
    __syncthreads();
    v ^= s[(threadIdx.x * 7 + i) % blockDim.x] >> i;
    if (v & 1) v += __popc(v); else v -= 3;
    if (threadIdx.x / 32 != 2) v += __shfl_xor_sync(~0u, v, 5) & __ballot_sync(~0u, v & 2);
    __syncthreads();
  }
  if (threadIdx.x < 32) { asm volatile("bar.arrive 1, 64;"); }
  else if (threadIdx.x < 64) { asm volatile("bar.sync 1, 64;"); }
  v += __syncthreads_count(v & 4);
  out[me] = v;
  atomicAdd(sums + v % 4, v);
}"""


@every
def test_a_right_kernel_writes_the_same_and_counts_the_same(schedule: Schedule) -> None:
    arrays = {"out": words(960), "sums": words(4)}
    first = both(module(EXCHANGE), arrays, 10, 96, lanes=400)
    again = both(module(EXCHANGE), arrays, 10, 96, lanes=400, schedule=schedule)
    for name, array in first.arrays.items():
        assert (array == again.arrays[name]).all()
    if schedule.seed is None:
        assert first.counters == again.counters


@every
def test_tensor_cores_compute_the_same(schedule: Schedule) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0x3F80, 0x4000, (128, 96), dtype=np.uint16) for _ in range(2))
    c, again = np.zeros((128, 128), np.float32), np.zeros((128, 128), np.float32)
    run(GEMM, buffer("a", a), buffer("b", b), buffer("c", c), 128, 128, 96, block=256)
    run(GEMM, buffer("a", a), buffer("b", b), buffer("c", again), 128, 128, 96, block=256, schedule=schedule)
    assert (c == again).all() and c.any()


WAITING = """
__device__ unsigned arrived, flag;
extern "C" __global__ void k(unsigned* out, unsigned turns) {
  __shared__ unsigned passed;
  if (threadIdx.x == 0) passed = 0;
  for (unsigned turn = 1; turn <= turns; ++turn) {
    __syncthreads();
    if (threadIdx.x == %s) {  // a thread waits for the other blocks, and a warp for that thread
      __threadfence();
      atomicAdd(&arrived, 1u);
      while (*static_cast<volatile unsigned*>(&arrived) < turn * gridDim.x) {}
      __threadfence();
      atomicExch(&passed, turn);
    } else if (threadIdx.x / 32 == 1) {
      while (atomicOr(&passed, 0u) < turn) {}
    }
    __syncthreads();
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = atomicOr(&arrived, 0u);
}"""


@every
@pytest.mark.parametrize("waiting", [0, 70])
def test_kernels_that_wait_end(schedule: Schedule, waiting: int) -> None:
    module.cache_clear()
    out = words(6 * 96)
    run(WAITING % waiting, buffer("out", out), 3, grid=6, block=96, schedule=schedule)
    assert (out == 18).all()


@pytest.mark.parametrize(("exits", "left"), [("% 3 == 1", {0, 21, 22}), ("% 32 > 1", {0, 2})])
@pytest.mark.parametrize("shape", [{"grid": 10, "block": 96}, {"grid": 1, "block": 32}], ids=str)
def test_lanes_that_exit_are_not_waited_for(exits: str, left: set[int], shape: dict[str, int]) -> None:
    source = """
extern "C" __global__ void k(unsigned* out) {
  if (threadIdx.x %s) return;
  out[blockIdx.x * blockDim.x + threadIdx.x] = __popc(__ballot_sync(~0u, true));
}"""
    once = written(source % exits, ASCENDING, 960, **shape)
    assert set(once) <= left
    for seed in range(200):
        assert written(source % exits, Schedule(seed=seed), 960, **shape) == once


def test_without_a_seed_none_is_held() -> None:
    lanes = np.ones((4, 64), bool)
    assert RunAhead(None, False).held(0, lanes) is None
    held = [RunAhead(seed, False).held(0, lanes) for seed in range(20)]
    drawn = [each for each in held if each is not None]
    assert 5 < len(drawn) < 20
    assert all(each.any() and not each.all() for each in drawn)


def test_a_long_loop_is_seldom_parted() -> None:
    ahead, lanes = RunAhead(1, False), np.ones((8, 64), bool)
    assert sum(ahead.held(3, lanes) is not None for _ in range(1000)) < 20


def test_a_warp_arrives_once() -> None:
    """`bar.arrive` counts warps: the waiting one must not be let go by a warp that came in two parts."""
    source = """
extern "C" __global__ void k(unsigned* out) {
  __shared__ unsigned s[96];
  if (threadIdx.x < 64) {
    s[threadIdx.x] = threadIdx.x;
    asm volatile("bar.arrive 1, 96;" ::: "memory");
  } else {
    asm volatile("bar.sync 1, 96;" ::: "memory");
    out[blockIdx.x * 32 + threadIdx.x - 64] = s[threadIdx.x - 64] + s[threadIdx.x - 32];
  }
}"""
    for seed in range(30):
        found = written(source, Schedule(seed=seed), 256, grid=8, block=96)
        assert found == [2 * lane + 32 for lane in range(32)] * 8


def sentence(source: str, schedule: Schedule, kind: str, *args, **options) -> str:
    with pytest.raises(Fault) as caught:
        run(source, buffer("out", words(256)), *args, schedule=schedule, **options)
    assert caught.value.kind == kind
    return caught.value.sentence


@every
@pytest.mark.parametrize("compiled", [True, False])
def test_an_access_names_its_thread(schedule: Schedule, compiled: bool) -> None:
    source = """
extern "C" __global__ void k(unsigned* out) {
  if (blockIdx.x == 3 && blockIdx.y == 1 && threadIdx.x == 5 && threadIdx.y == 9) out[4096] = 1;
}"""
    with pytest.raises(Fault) as caught:
        launch(
            module(source), "k", (5, 2, 1), (16, 12, 1), [buffer("out", words(256))], lanes=512, schedule=schedule,
            compiled=compiled,
        )  # fmt: skip
    assert "block (3, 1, 0), thread (5, 9, 0)" in caught.value.sentence


@every
def test_a_race_in_shared_memory_names_both_threads(schedule: Schedule) -> None:
    source = """
extern "C" __global__ void k(unsigned* out) {
  __shared__ volatile unsigned s[1];
  if (blockIdx.x == 2 && (threadIdx.x == 40 || threadIdx.x == 101)) s[0] = threadIdx.x;
}"""
    found = sentence(source, schedule, "race", grid=4, block=128)
    assert "block (2, 0, 0)" in found and "thread (40, 0, 0)" in found and "thread (101, 0, 0)" in found


@every
def test_a_race_between_blocks_names_both(schedule: Schedule) -> None:
    source = """
extern "C" __global__ void k(unsigned* out) {
  if (blockIdx.x == 3 && threadIdx.x == 33) out[0] = 1;
  if (blockIdx.x == 6 && threadIdx.x == 34) out[0] = 2;
}"""
    found = sentence(source, schedule, "race", grid=8)
    assert "block (3, 0, 0)" in found and "block (6, 0, 0)" in found
    assert ("thread (33, 0, 0)" in found) != ("thread (34, 0, 0)" in found)


@every
def test_a_barrier_names_those_who_wait(schedule: Schedule) -> None:
    source = """
extern "C" __global__ void k(unsigned* out) {
  if (threadIdx.x == 70) asm volatile("bar.sync 0;");
  else if (threadIdx.x == 130) asm volatile("bar.sync 1;");
  out[threadIdx.x] = 1;
}"""
    found = sentence(source, schedule, "divergent_barrier", block=160)
    assert {70, 130} == {
        number for number in range(160) if f"thread ({number}, " in found or f"thread {number} " in found
    }


@every
def test_a_shuffle_names_its_thread(schedule: Schedule) -> None:
    source = """
extern "C" __global__ void k(unsigned* out) {
  unsigned v = threadIdx.x;
  if (threadIdx.x == 77) v = __shfl_sync(1u << 13 | 1u << 14, v, 14);
  out[threadIdx.x] = v;
}"""
    found = sentence(source, schedule, "inactive_shuffle", block=128)
    assert "thread (77, 0, 0)" in found and "lane 14" in found


@every
def test_a_trap_and_an_endless_loop_name_their_thread(schedule: Schedule) -> None:
    source = """
extern "C" __global__ void k(unsigned* out) { if (threadIdx.x == 99) while (atomicOr(out, 0u) == 0) {} }"""
    assert "thread (99, 0, 0)" in sentence(source, schedule, "deadlock", block=128, budget=40_000)
