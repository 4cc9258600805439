"""Clocks: they go on with what a thread executes, differ by order, and waits for a time of day end."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from async_source import PRELUDE
from cuda_source import buffer, module, ptx
from ptx_snippets import kernel
from ptx_snippets import run as run_ptx

from ptx_emulator.errors import Fault, LaunchError
from ptx_emulator.launches import Module, launch
from ptx_emulator.schedule import ASCENDING, DESCENDING, Schedule

ORDERS = (ASCENDING, DESCENDING, Schedule(seed=1), Schedule(seed=2))
REGISTERS = {"clock": 32, "clock_hi": 32, "clock64": 64, "globaltimer": 64, "globaltimer_lo": 32, "globaltimer_hi": 32}


def run(source: str, order: Schedule = ASCENDING, grid: int = 1, block: int = 64, **options) -> list[int]:
    out = np.zeros(8, np.uint64)
    arguments = [buffer("out", out), buffer("flag", np.zeros(2, np.uint32))]
    launch(module(PRELUDE + source), "k", (grid, 1, 1), (block, 1, 1), arguments, schedule=order, **options)
    return out.tolist()


def shown(order: Schedule, **options) -> dict[str, list[int]]:
    """Each register as one thread reads it twice, with a loop between."""
    body = [" ld.param.u64 %rd1, [p0]; mov.u32 %r9, 50;"]
    for time in range(2):
        for place, (name, width) in enumerate(REGISTERS.items()):
            register = f"%{'rd2' if width == 64 else 'r2'}"
            body.append(
                f" mov.u{width} {register}, %{name}; st.global.u{width} [%rd1+{8 * (2 * place + time)}], {register};"
            )
        if not time:
            body.append("again: sub.u32 %r9, %r9, 1; setp.ne.u32 %p1, %r9, 0; @%p1 bra again;")
    out = np.zeros(2 * len(REGISTERS), np.uint64)
    run_ptx(kernel("\n".join(body), 1), {"out": out}, block=1, schedule=order, **options)
    return dict(zip(REGISTERS, out.reshape(-1, 2).tolist(), strict=True))


def test_clocks_go_on_and_differ_by_order() -> None:
    seen = [shown(order) for order in ORDERS]
    for name in REGISTERS:
        for first, then in (each[name] for each in seen):
            assert (first == then) if name.endswith("_hi") else (50 < then - first < 1 << 20), name
        assert len({each[name][0] for each in seen}) >= 3, name  # the upper halves of two seeds may be equal
    assert len({then - first for first, then in (each["clock64"] for each in seen)}) == 3  # so do differences
    for each in seen:
        assert each["globaltimer"][0] >> 32 == each["globaltimer_hi"][0]
        assert 0 < each["globaltimer_lo"][0] - (each["globaltimer"][0] & 0xFFFFFFFF) < 1000
        assert each["clock64"][0] >> 32 == each["clock_hi"][0]


def test_the_compiled_path_shows_the_same_times() -> None:
    assert shown(DESCENDING, compiled=False) == shown(DESCENDING)


def test_only_lanes_under_the_guard_read_a_clock() -> None:
    body = """ ld.param.u64 %rd1, [p0]; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 3; mov.u64 %rd2, 7;
 @%p1 mov.u64 %rd2, %clock64; mad.wide.u32 %rd3, %r1, 8, %rd1; st.global.u64 [%rd3], %rd2;"""
    out = np.zeros(32, np.uint64)
    run_ptx(kernel(body, 1), {"out": out})
    assert [i for i, value in enumerate(out.tolist()) if value != 7] == [3]


DELAY = """
extern "C" __global__ void k(u64* out, volatile u32* flag) {
  long long start = clock64();
  while (clock64() - start < UNITS LL) POLL;
  if (!threadIdx.x) out[0] = clock64() - start;
}
"""


@pytest.mark.parametrize(("units", "poll"), [(1000, ""), (10**9, ""), (10**13, ""), (10**11, "if (flag[0]) break")])
def test_a_loop_on_a_timer_ends(units: int, poll: str) -> None:
    for order in ORDERS[:1] if poll else ORDERS[:3]:
        waited = run(DELAY.replace("UNITS ", str(units)).replace("POLL", poll), order)[0]
        assert units <= waited < 2 * units + 10**5


# The first block waits for the second, for 0.1 s at most; the second works for long, or never comes to it.
DEADLINE = """
extern "C" __global__ void k(u64* out, u32* flag) {
  if (blockIdx.x == FIRST) {
    u64 start, now; u32 seen = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (!seen && now - start < 100000000ull);
    if (!threadIdx.x) out[0] = seen + 1;
  } else if (threadIdx.x == 0) {
    u32 x = 1;
    for (int i = 0; i < WORK; i++) { x = x * 3 + i; ((volatile u32*)flag)[1] = x; }
    asm volatile("st.release.gpu.global.u32 [%0], %1;" :: "l"(flag), "r"(COMES) : "memory");
  }
}
"""


@pytest.mark.parametrize(
    ("first", "comes", "order", "lanes"),  # blocks in several batches, or in one
    [(0, 1, ASCENDING, 64), (1, 1, DESCENDING, 256), (0, 0, Schedule(seed=1), 64), (1, 0, ASCENDING, 256)],
)
def test_a_deadline_is_met_only_by_what_does_not_come(first: int, comes: int, order: Schedule, lanes: int) -> None:
    source = DEADLINE.replace("FIRST", str(first)).replace("WORK", "200").replace("COMES", str(comes))
    assert run(source, order, grid=2, block=32, lanes=lanes)[0] == 1 + comes


MBARRIER = """
extern "C" __global__ void k(u64* out, u32* flag) {
  __shared__ u64 bar;
  if (!threadIdx.x) init(bar, 65);
  __syncthreads();
  arrive(bar);
  long long start = clock64(); u32 done;
  do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                  : "=r"(done) : "r"(at(&bar)) : "memory");
  while (!done && (clock64() - start < 2000000000LL || FOREVER));
  if (!done && TRAPS) asm volatile("trap;");
  if (!threadIdx.x) out[0] = done + 1;
}
"""


def test_a_wait_for_an_mbarrier_has_a_deadline() -> None:
    source = MBARRIER.replace("FOREVER", "0")
    for order in ORDERS[:3]:
        assert run(source.replace("TRAPS", "0"), order)[0] == 1
    with pytest.raises(LaunchError, match="the kernel trapped"):
        run(source.replace("TRAPS", "1"))


def test_without_one_it_is_a_deadlock_though_a_clock_is_read() -> None:
    with pytest.raises(Fault, match="64 of 65 arrivals came"):
        run(MBARRIER.replace("FOREVER", "1").replace("TRAPS", "0"))


# libcu++ waits with a backoff that looks at %globaltimer. Each kernel passes tiles of 128 words through shared memory.
LIBCU = """
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/std/chrono>
#include <cooperative_groups.h>
using Barrier = cuda::barrier<cuda::thread_scope_block>;
using State = cuda::pipeline_shared_state<cuda::thread_scope_block, 2>;

extern "C" __global__ void waits(const int* in, int* out) {
  __shared__ Barrier bar; __shared__ int s[128];
  if (threadIdx.x == 0) init(&bar, blockDim.x);
  __syncthreads();
  for (int i = 0; i < 4; i++) {
    s[threadIdx.x] = in[128 * i + threadIdx.x];
    bar.arrive_and_wait();
    out[128 * i + threadIdx.x] = s[threadIdx.x ^ 33];
    while (!bar.try_wait_for(bar.arrive(), cuda::std::chrono::microseconds(5)));
  }
}

extern "C" __global__ void expires(const int* in, int* out) {
  __shared__ Barrier bar;
  if (threadIdx.x == 0) init(&bar, blockDim.x + 1);
  __syncthreads();
  out[threadIdx.x] = bar.try_wait_for(bar.arrive(), cuda::std::chrono::milliseconds(5)) ? -1 : in[threadIdx.x ^ 33];
}

extern "C" __global__ void copies(const int* in, int* out) {
  auto block = cooperative_groups::this_thread_block();
  __shared__ alignas(128) int s[2][128]; __shared__ State state;
  auto pipe = cuda::make_pipeline(block, &state);
  for (int i = 0, load = 0; i < 4; i++) {
    for (; load < 4 && load < i + 2; load++) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, s[load % 2], in + 128 * load, cuda::aligned_size_t<16>(512), pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    out[i * 128 + threadIdx.x] = s[i % 2][threadIdx.x ^ 33];
    pipe.consumer_release();
  }
}

extern "C" __global__ void roles(const int* in, int* out) {
  auto block = cooperative_groups::this_thread_block();
  __shared__ alignas(128) int s[2][128]; __shared__ State state;
  bool produces = threadIdx.x < 32;
  using cuda::pipeline_role;
  auto pipe = cuda::make_pipeline(block, &state, produces ? pipeline_role::producer : pipeline_role::consumer);
  for (int i = 0; i < 4; i++)
    if (produces) {
      pipe.producer_acquire();
      for (int j = threadIdx.x; j < 128; j += 32) cuda::memcpy_async(&s[i % 2][j], in + 128 * i + j, sizeof(int), pipe);
      pipe.producer_commit();
    } else {
      pipe.consumer_wait();
      for (int j = threadIdx.x - 32; j < 128; j += 96) out[i * 128 + j] = s[i % 2][j ^ 33];
      pipe.consumer_release();
    }
}
"""


@cache
def of_libcu() -> Module:
    spec = find_spec("nvidia")
    roots = [Path(root, "cu13", "include") for root in (spec.submodule_search_locations if spec else ())]
    roots.append(Path("/usr/local/cuda/include"))
    folder = next((root for root in roots if (root / "cccl" / "cuda" / "barrier").is_file()), None)
    if folder is None:
        pytest.skip("no toolkit here has cuda/barrier")
    return Module(ptx(LIBCU, folders=(folder, folder / "cccl")))


@pytest.mark.parametrize("name", ["waits", "expires", "copies", "roles"])
def test_barriers_and_pipelines_of_libcu_run(name: str) -> None:
    given = np.random.default_rng(1).integers(0, 1 << 30, 512, dtype=np.int32)
    wanted = given.reshape(-1, 128)[: 1 if name == "expires" else 4, np.arange(128) ^ 33].reshape(-1)
    for order in ORDERS[:3]:
        out = np.zeros(512, np.int32)
        launch(of_libcu(), name, (1, 1, 1), (128, 1, 1), [buffer("in", given), buffer("out", out)], schedule=order)
        np.testing.assert_array_equal(out[: len(wanted)], wanted)
