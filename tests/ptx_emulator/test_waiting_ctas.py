"""CTAs that wait for other CTAs of their grid: the others run meanwhile, whatever a batch of lanes holds.

Most tests have batches of one or two CTAs, so that every wait is for another batch.
"""

from __future__ import annotations

import numpy as np
import pytest
from async_source import PRELUDE
from cuda_source import buffer, line_of, module
from faults import words

from ptx_emulator.errors import Fault, LaunchError, NotEmulated, RefusedLaunch
from ptx_emulator.launches import Module, launch
from ptx_emulator.schedule import ASCENDING, DESCENDING, Schedule
from ptx_emulator.stream import Stream

EVERY = (ASCENDING, DESCENDING, Schedule(seed=1))
every = pytest.mark.parametrize("schedule", EVERY, ids=["ascending", "descending", "drawn"])

MBARRIER = """
  __shared__ unsigned long long mbarrier;
  if (!threadIdx.x)
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"((unsigned)__cvta_generic_to_shared(&mbarrier)) : "memory");
  __syncthreads();"""

# How the threads of a grid wait for one another, as a function of the memory and of how many waits came before.
BARRIERS = {
    "volatile": """
  if (!threadIdx.x) {
    __threadfence();
    atomicAdd(at, 1u);
    while (*(volatile unsigned*)at < turn * gridDim.x) {}
    __threadfence();
  }""",
    "acquire": """
  if (!threadIdx.x) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" :: "l"(at) : "memory");
    unsigned seen;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(at) : "memory");
    while (seen < turn * gridDim.x);
  }""",
    "atomics": """
  if (!threadIdx.x) {
    __threadfence();
    atomicAdd(at, 1u);
    while (atomicAdd(at, 0u) < turn * gridDim.x) __nanosleep(100);
    __threadfence();
  }""",
    "compare and swap": """
  if (!threadIdx.x) {
    __threadfence();
    atomicAdd(at, 1u);
    while (atomicCAS(at, ~0u, 0u) < turn * gridDim.x) {}
    __threadfence();
  }""",
    "with a number of tries": """
  if (!threadIdx.x) {
    __threadfence();
    atomicAdd(at, 1u);
    for (int tries = 0; *(volatile unsigned*)at < turn * gridDim.x; ++tries)
      if (tries == 1 << 30) __trap();
    __threadfence();
  }""",
    "with longer and longer naps": """
  if (!threadIdx.x) {
    __threadfence();
    atomicAdd(at, 1u);
    for (unsigned nap = 8; *(volatile unsigned*)at < turn * gridDim.x; nap = nap < 256 ? 2 * nap : 256)
      __nanosleep(nap);
    __threadfence();
  }""",
    "with statistics": """
  if (!threadIdx.x) {
    __threadfence();
    atomicAdd(at, 1u);
    while (*(volatile unsigned*)at < turn * gridDim.x) atomicAdd(at + 1, 1u);
    __threadfence();
  }""",
    "through shared memory": """
  __shared__ volatile unsigned here;
  if (!threadIdx.x) { __threadfence(); atomicAdd(at, 1u); }
  do {
    if (!threadIdx.x) { here = *(volatile unsigned*)at; __threadfence(); }
    __syncthreads();
    const unsigned seen = here;
    __syncthreads();
    if (seen >= turn * gridDim.x) break;
  } while (true);""",
    "of cooperative groups": """
  __syncthreads();
  if (!threadIdx.x) {
    const unsigned add = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
    __threadfence();
    const unsigned old = atomicAdd(at, add);
    while (((*(volatile unsigned*)at ^ old) & 0x80000000u) == 0) {}
    __threadfence();
  }""",
}
GRID = """
extern "C" __global__ void k(unsigned* at, unsigned* part, unsigned* out) {
  FIRST
  for (unsigned turn = 1; turn <= TURNS; ++turn) {
    if (threadIdx.x == blockDim.x - 1) part[turn * gridDim.x + blockIdx.x] = blockIdx.x + turn;
    __syncthreads();
    BARRIER
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] += part[turn * gridDim.x + (blockIdx.x + threadIdx.x) % gridDim.x];
  }
}"""


def grid_source(barrier: str, turns: int = 2, first: str = "") -> str:
    return GRID.replace("BARRIER", barrier).replace("TURNS", str(turns)).replace("FIRST", first)


def run(source: str | Module, *arrays: np.ndarray, grid: int, block: int = 32, shared: int = 0, **options) -> None:
    loaded = source if isinstance(source, Module) else Module(module(source)._text)  # variables of its own
    every = [buffer(f"array {i}", array) for i, array in enumerate(arrays)]
    launch(loaded, "k", (grid, 1, 1), (block, 1, 1), every, shared, **options)


def meets(barrier: str, grid: int, block: int, turns: int = 2, first: str = "", **options) -> None:
    """Expect each thread of a grid to see what others wrote before each wait."""
    at, part, out = words(2), words((turns + 1) * grid), words(grid * block)
    run(grid_source(barrier, turns, first), at, part, out, grid=grid, block=block, **options)
    other = (np.arange(grid)[:, None] + np.arange(block)) % grid
    assert (out.reshape(grid, block) == turns * other + turns * (turns + 1) // 2).all()


def refused(source: str, *arrays: np.ndarray, grid: int, kind: str, marker: str, **options) -> str:
    """The sentence of the expected fault at the line with this marker."""
    with pytest.raises(Fault) as caught:
        run(source, *arrays, grid=grid, **options)
    assert (caught.value.kind, caught.value.where) == (kind, line_of(source, marker)), str(caught.value)
    return caught.value.sentence


@pytest.mark.sweep
@every
@pytest.mark.parametrize("barrier", BARRIERS.values(), ids=BARRIERS)
def test_a_grid_meets(barrier: str, schedule: Schedule) -> None:
    meets(barrier, 5, 64, lanes=128, schedule=schedule)


@every
@pytest.mark.parametrize("barrier", ["volatile", "acquire", "through shared memory"])
def test_a_grid_with_mbarriers_meets(barrier: str, schedule: Schedule) -> None:
    meets(BARRIERS[barrier], 5, 64, first=MBARRIER, lanes=128, schedule=schedule)


@pytest.mark.parametrize(
    ("grid", "block", "first"),
    [(32, 1024, ""), (64, 256, MBARRIER), (132, 1024, "")],
    ids=["32 of 1024", "64 of 256 with an mbarrier", "132 of 1024"],
)
def test_what_a_gpu_holds_meets(grid: int, block: int, first: str) -> None:
    meets(BARRIERS["volatile"], grid, block, turns=1, first=first)


@every
def test_dynamic_shared_memory_stays_while_a_cta_is_suspended(schedule: Schedule) -> None:
    source = grid_source(BARRIERS["volatile"], 1, "extern __shared__ unsigned mine[]; mine[threadIdx.x] = blockIdx.x;")
    source = source.replace("out[blockIdx.x *", "if (mine[threadIdx.x] != blockIdx.x) __trap();\n    out[blockIdx.x *")
    run(source, words(2), words(20), words(640), grid=10, block=64, shared=4096, lanes=128, schedule=schedule)


@every
def test_clusters_meet(schedule: Schedule) -> None:
    meet = 'asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");'
    meets(BARRIERS["volatile"] + meet, 8, 32, first=meet, lanes=64, cluster=(2, 1, 1), schedule=schedule)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("block", "shared", "cluster", "arch", "numbers"),
    [
        (1024, 0, 1, "sm_90a", "264 at once (132 SMs, 2 CTAs each by threads)"),
        (1024, 0, 16, "sm_90a", "256 at once (132 SMs, 2 CTAs each by threads)"),
        (32, 200 << 10, 1, "sm_90a", "132 at once (132 SMs, 1 CTA each by shared memory)"),
        (32, 200 << 10, 1, "sm_100a", "160 at once (160 SMs, 1 CTA each by shared memory)"),
    ],
)
def test_a_grid_that_no_gpu_holds(block: int, shared: int, cluster: int, arch: str, numbers: str) -> None:
    source = grid_source(BARRIERS["volatile"].replace("gridDim.x) {}", "gridDim.x) {}  // waits"), 1)
    holds = int(numbers.split()[0])
    for grid in (holds, holds + cluster):
        arrays = words(2), words(2 * grid), words(grid * block)
        every = [buffer(f"array {i}", array) for i, array in enumerate(arrays)]
        arguments = "k", (grid, 1, 1), (block, 1, 1), every, shared
        if grid == holds:
            launch(module(source, arch), *arguments, cluster=(cluster, 1, 1), sanitize=False)
            continue
        with pytest.raises(Fault) as caught:
            launch(module(source, arch), *arguments, cluster=(cluster, 1, 1), sanitize=False)
        assert (caught.value.kind, caught.value.where) == ("deadlock", line_of(source, "// waits"))
        assert f"{grid} CTAs of {block:,} threads wait for each other" in caught.value.sentence
        assert f"a GPU of {arch} holds at most {numbers}" in caught.value.sentence


CHAIN = """
extern "C" __global__ void k(unsigned* flag, unsigned* sum) {
  if (!threadIdx.x) {
    if (OTHER >= 0 && OTHER < (int)gridDim.x) {
      while (((volatile unsigned*)flag)[OTHER] == 0) {}  // waits
      __threadfence();
      sum[blockIdx.x] = sum[OTHER] + 1;
    } else sum[blockIdx.x] = 1;
    __threadfence();
    ((volatile unsigned*)flag)[blockIdx.x] = 1;
  }
}"""


@pytest.mark.slow
@every
def test_look_back_in_a_grid_larger_than_a_gpu(schedule: Schedule) -> None:
    """Each CTA waits for the one before. A GPU begins them in ascending order, whatever order the emulator tries."""
    flag, total = words(150), words(150)
    source = CHAIN.replace("OTHER", "((int)blockIdx.x - 1)")
    run(source, flag, total, grid=150, shared=200 << 10, lanes=32 * 40, schedule=schedule)
    assert (total == np.arange(1, 151)).all()


@every
def test_look_ahead_in_a_grid_that_a_gpu_holds(schedule: Schedule) -> None:
    total = words(100)
    run(CHAIN.replace("OTHER", "((int)blockIdx.x + 1)"), words(100), total, grid=100, lanes=256, schedule=schedule)
    assert (total == np.arange(100, 0, -1)).all()


def test_look_ahead_in_a_grid_larger_than_a_gpu() -> None:
    source = CHAIN.replace("OTHER", "((int)blockIdx.x + 1)")
    told = refused(
        source, words(133), words(133), grid=133, kind="deadlock", marker="// waits", shared=200 << 10, lanes=256
    )
    assert "133 CTAs" in told and "at most 132 at once" in told and "block (0, 0, 0)" in told


@every
def test_ctas_that_end_make_room(schedule: Schedule) -> None:
    """Ten consumers come first and wait for a thousand producers, of which a GPU holds a tenth at once."""
    source = """
extern "C" __global__ void k(unsigned* done, unsigned* out) {
  if (blockIdx.x >= 10) {
    if (!threadIdx.x) atomicAdd(done, 1u);
  } else if (!threadIdx.x) {
    while (*(volatile unsigned*)done < gridDim.x - 10) {}
    out[blockIdx.x] = 1;
  }
}"""
    out = words(10)
    run(source, words(1), out, grid=1010, shared=200 << 10, schedule=schedule)
    assert (out == 1).all()


def test_a_launch_of_some_ctas_of_a_grid_is_not_accused() -> None:
    with pytest.raises(NotEmulated, match="2 CTAs wait for others, and 2 of 8 run here"):
        run(grid_source(BARRIERS["volatile"]), words(2), words(24), words(256), grid=8, only=(1, 7), sanitize=False)


@every
def test_a_persistent_kernel_takes_tickets_and_the_last_one_sums_up(schedule: Schedule) -> None:
    source = """
__device__ unsigned ticket, done;
extern "C" __global__ void k(unsigned* part, unsigned* out) {
  __shared__ unsigned mine;
  while (true) {
    if (!threadIdx.x) mine = atomicAdd(&ticket, 1u);
    __syncthreads();
    const unsigned tile = mine;
    __syncthreads();
    if (tile >= 40) break;
    if (!threadIdx.x) part[tile] = tile;
  }
  if (!threadIdx.x) {
    __threadfence();
    if (atomicAdd(&done, 1u) == gridDim.x - 1) {
      __threadfence();
      unsigned sum = 0;
      for (int i = 0; i < 40; ++i) sum += part[i];
      out[0] = sum;
    }
  }
}"""
    out = words(1)
    run(source, words(40), out, grid=9, block=64, lanes=64, schedule=schedule)
    assert out[0] == 780


@every
def test_stream_k_fixes_up(schedule: Schedule) -> None:
    """The CTA that ends a tile adds what the others of the tile left, all its threads behind one that polls."""
    source = """
extern "C" __global__ void k(unsigned* flag, unsigned* part, unsigned* out) {
  const unsigned tile = blockIdx.x / 3, piece = blockIdx.x % 3, i = threadIdx.x;
  if (piece) {
    part[blockIdx.x * blockDim.x + i] = piece * 100 + i;
    __threadfence();
    __syncthreads();
    if (!i) atomicAdd(flag + tile, 1u);
  } else {
    if (!i) while (atomicAdd(flag + tile, 0u) < 2) {}
    __syncthreads();
    __threadfence();
    unsigned sum = i;
    for (unsigned p = 1; p < 3; ++p) sum += part[(blockIdx.x + p) * blockDim.x + i];
    out[tile * blockDim.x + i] = sum;
  }
}"""
    out = words(5 * 64)
    run(source, words(5), words(15 * 64), out, grid=15, block=64, lanes=64, schedule=schedule)
    assert (out.reshape(5, 64) == 300 + 3 * np.arange(64)).all()


@every
def test_warps_of_a_cta_wait_for_different_ctas(schedule: Schedule) -> None:
    source = """
extern "C" __global__ void k(unsigned* flag) {
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, steps = gridDim.x * 4;
  const unsigned step = (warp * gridDim.x + gridDim.x - 1 - blockIdx.x);
  if (!lane) {
    while (*(volatile unsigned*)flag != step) {}
    *(volatile unsigned*)flag = step + 1;
  }
}"""
    flag = words(1)
    run(source, flag, grid=5, block=128, lanes=128, schedule=schedule)
    assert flag[0] == 20


FLAG = """
extern "C" __global__ void k(unsigned* flag, unsigned* data, unsigned* out) {
  if (blockIdx.x == WRITER) {
    data[threadIdx.x] = threadIdx.x;
    RELEASE
    __syncthreads();
    if (!threadIdx.x) atomicExch(flag, 1u);
  } else if (blockIdx.x < 6) {
    if (!threadIdx.x) while (*(volatile unsigned*)flag == 0) {}
    __syncthreads();
    ACQUIRE
    out[blockIdx.x * 64 + threadIdx.x] = data[threadIdx.x ^ 1];  // reads
  }
}"""
FENCE = "__threadfence();"


def flagged(writer: int, release: str, acquire: str, first: str) -> str:
    source = FLAG.replace("WRITER", str(writer)).replace("RELEASE", release).replace("ACQUIRE", acquire)
    return source.replace("data, unsigned* out) {", "data, unsigned* out) {" + first.replace("\n", " "), 1)


@pytest.mark.sweep
@every
@pytest.mark.parametrize("first", ["", MBARRIER], ids=["", "with an mbarrier"])
@pytest.mark.parametrize("lanes", [64, 1 << 14], ids=["many batches", "one batch"])
def test_a_flag_of_another_batch_orders_as_one_of_the_same(lanes: int, first: str, schedule: Schedule) -> None:
    for writer in (0, 5):
        out = words(6 * 64)
        options = {"grid": 6, "block": 64, "lanes": lanes, "schedule": schedule}
        run(flagged(writer, FENCE, FENCE, first), words(1), words(64), out, **options)
        rows = np.delete(out.reshape(6, 64), writer, axis=0)
        assert (rows == (np.arange(64) ^ 1)).all()
        for release, acquire in (("", FENCE), (FENCE, ""), ("", "")):
            source = flagged(writer, release, acquire, first)
            told = refused(source, words(1), words(64), words(384), kind="race", marker="// reads", **options)
            assert "with nothing that orders them" in told


BULK = (
    PRELUDE
    + r"""
extern "C" __global__ void k(u32* flag, u32* data, u32* out) {
  __shared__ alignas(128) u32 tile[64];
  __shared__ alignas(8) u64 bar;
  const u32 i = threadIdx.x;
  if (blockIdx.x == WRITER) {
    WRITE
    if (!i) { __threadfence(); atomicExch(flag, 1u); LATE }
  } else {
    if (!i) {
      init(bar, 1);
      ASM("fence.mbarrier_init.release.cluster;");
    }
    __syncthreads();
    if (!i) {
      while (*(volatile u32*)flag == 0) {}
      __threadfence();
      READ
    }
    wait(bar, 0);
    out[blockIdx.x * 64 + i] = tile[i];
    __syncthreads();
    if (!i) inval(bar);
  }
}"""
)
PROXY = 'ASM("fence.proxy.async;");'
STORES = "data[i] = i; FENCE __syncthreads();"
COPIES = "tile[i] = i; fence(); __syncthreads(); if (!i) { store(data, tile, 256); commit(); EARLY }"
LOADS = "FENCE expect(bar, 256); load(tile, data, 256, bar);  // copies"
TAKES = "for (int j = 0; j < 64; ++j) tile[j] = data[j];  // takes\n arrive(bar);"


def bulk(writer: int, write: str, read: str, late: str = "") -> str:
    return BULK.replace("WRITER", str(writer)).replace("WRITE", write).replace("LATE", late).replace("READ", read)


@pytest.mark.sweep
@every
@pytest.mark.parametrize("lanes", [64, 1 << 14], ids=["many batches", "one batch"])
@pytest.mark.parametrize("writer", [0, 3])
def test_a_copy_reads_what_another_batch_stored_behind_a_proxy_fence(
    writer: int, lanes: int, schedule: Schedule
) -> None:
    options = {"grid": 4, "block": 64, "lanes": lanes, "schedule": schedule}
    for fences in ((PROXY, ""), ("", PROXY)):
        out = words(256)
        source = bulk(writer, STORES.replace("FENCE", fences[0]), LOADS.replace("FENCE", fences[1]))
        run(source, words(1), words(64), out, **options)
        assert (np.delete(out.reshape(4, 64), writer, axis=0) == np.arange(64)).all()


@pytest.mark.parametrize("lanes", [64, 1 << 14], ids=["many batches", "one batch"])
@pytest.mark.parametrize("writer", [0, 3])
def test_a_copy_of_what_another_batch_stored_with_no_proxy_fence(writer: int, lanes: int) -> None:
    """It is seen in each order in which the CTA that stores has not ended before the others begin."""
    source, seen = bulk(writer, STORES.replace("FENCE", ""), LOADS.replace("FENCE", "")), 0
    for schedule in EVERY:
        try:
            run(source, words(1), words(64), words(256), grid=4, block=64, lanes=lanes, schedule=schedule)
        except Fault as fault:
            seen += 1
            assert fault.kind == "race" and f"inlined at {line_of(source, '// copies')}" in str(fault)
            assert "with no fence.proxy.async between" in fault.sentence
    assert seen >= 1 + (lanes > 64)


@pytest.mark.sweep
@every
@pytest.mark.parametrize("lanes", [64, 1 << 14], ids=["many batches", "one batch"])
@pytest.mark.parametrize("writer", [0, 3])
def test_what_a_copy_of_another_batch_wrote_is_read_once_it_is_complete(
    writer: int, lanes: int, schedule: Schedule
) -> None:
    options = {"grid": 4, "block": 64, "lanes": lanes, "schedule": schedule}
    out = words(256)
    run(bulk(writer, COPIES.replace("EARLY", "wait_all<0>();"), TAKES), words(1), words(64), out, **options)
    assert (np.delete(out.reshape(4, 64), writer, axis=0) == np.arange(64)).all()
    source = bulk(writer, COPIES.replace("EARLY", ""), TAKES, "while (*(volatile u32*)flag < 9) {} wait_all<0>();")
    told = refused(source, words(1), words(64), words(256), kind="race", marker="// takes", **options)
    assert f"block ({writer}, 0, 0)" in told or lanes > 64, told


@every
def test_copies_stay_in_flight_while_a_cta_is_suspended(schedule: Schedule) -> None:
    source = (
        PRELUDE
        + r"""
extern "C" __global__ void k(u32* count, u32* in, u32* out) {
  __shared__ alignas(128) u32 tile[64], other[64];
  __shared__ alignas(8) u64 bar;
  const u32 i = threadIdx.x;
  if (!i) { init(bar, 1); ASM("fence.mbarrier_init.release.cluster;"); }
  __syncthreads();
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4; cp.async.commit_group;"
               :: "r"(at(other + i)), "l"(in + 64 + i) : "memory");
  if (!i) {
    expect(bar, 256);
    load(tile, in, 256, bar);
    __threadfence();
    atomicAdd(count, 1u);
    while (*(volatile u32*)count < gridDim.x) {}
    __threadfence();
  }
  EARLY
  wait(bar, 0);
  ASM("cp.async.wait_group 0;");
  __syncthreads();
  out[blockIdx.x * 64 + i] = tile[i] + other[63 - i];
  __syncthreads();
  if (!i) inval(bar);
}"""
    )
    given, out = np.arange(128, dtype=np.uint32), words(5 * 64)
    run(source.replace("EARLY", ""), words(1), given, out, grid=5, block=64, lanes=64, schedule=schedule)
    assert (out.reshape(5, 64) == np.arange(64) + 127 - np.arange(64)).all()
    source = source.replace("EARLY", "if (i == 5) out[0] = tile[5];  // early")
    arrays = words(1), given, words(5 * 64)
    refused(source, *arrays, grid=5, kind="race", marker="// early", block=64, lanes=64, schedule=schedule)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("lanes", "schedule"),
    [(64, ASCENDING), (64, Schedule(seed=1)), (1 << 14, DESCENDING)],
    ids=["many batches", "many batches, drawn", "one batch, descending"],
)
@pytest.mark.parametrize("barrier", [name for name in BARRIERS if name != "with statistics"])
def test_a_wait_for_one_cta_too_many(barrier: str, lanes: int, schedule: Schedule) -> None:
    more = BARRIERS[barrier].replace("turn * gridDim.x", "turn * gridDim.x + 1").replace("(gridDim.x - 1)", "gridDim.x")
    source = grid_source(more, 1)
    with pytest.raises(Fault) as caught:
        run(source, words(2), words(10), words(320), grid=5, block=64, lanes=lanes, schedule=schedule, budget=50_000)
    assert caught.value.kind == "deadlock"
    assert "no end" in caught.value.sentence and "holds at most" not in caught.value.sentence


def test_a_poll_that_changes_memory_ends_too() -> None:
    source = grid_source(BARRIERS["with statistics"].replace("turn * gridDim.x", "turn * gridDim.x + 1"), 1)
    with pytest.raises(Fault, match="no end after 20000 instructions"):
        run(source, words(2), words(10), words(320), grid=5, block=64, lanes=64, budget=20_000)


@every
def test_ctas_that_wait_for_each_other_in_a_ring(schedule: Schedule) -> None:
    source = CHAIN.replace("OTHER", "(int)((blockIdx.x + 1) % gridDim.x)")
    told = refused(source, words(5), words(5), grid=5, kind="deadlock", marker="// waits", lanes=32, schedule=schedule)
    assert "as 4 other CTAs do" in told and "block (0, 0, 0)" in told


def test_a_launch_behind_one_whose_ctas_waited() -> None:
    """A stream of launches, of which the second begins early and also waits for its own CTAs."""
    source = """
extern "C" __global__ void k(unsigned* at, unsigned* part, unsigned* out) {
  WAIT
  if (!threadIdx.x) part[gridDim.x + blockIdx.x] = blockIdx.x + 1;  // writes
  BARRIER
  __syncthreads();
  asm volatile("griddepcontrol.launch_dependents;");
  out[blockIdx.x * blockDim.x + threadIdx.x] = part[gridDim.x + (blockIdx.x + 1) % gridDim.x];
}""".replace("BARRIER", BARRIERS["volatile"].replace("turn * gridDim.x", "(out[0] = 0, gridDim.x)"))
    source = source.replace("(out[0] = 0, gridDim.x)", "gridDim.x")
    wait = 'asm volatile("griddepcontrol.wait;" ::: "memory");'
    for text, right in ((source.replace("WAIT", wait), True), (source.replace("WAIT", ""), False)):
        stream, loaded, part = Stream(), module(text), words(12)
        shared = buffer("part", part)
        for early in (False, True):
            out = words(6 * 32)
            arguments = [buffer("at", words(1)), shared, buffer("out", out)]
            extents = (6, 1, 1), (32, 1, 1)
            if early and not right:
                with pytest.raises(Fault) as caught:
                    stream.launch(loaded, "k", *extents, arguments, early=True, lanes=32)
                assert (caught.value.kind, caught.value.where) == ("race", line_of(text, "// writes"))
                break
            stream.launch(loaded, "k", *extents, arguments, early=early, lanes=32)
            assert (out.reshape(6, 32) == ((np.arange(6) + 1) % 6 + 1)[:, None]).all()


# Cooperative launches: what `grid.sync()` of cooperative groups is in PTX, without its header.

COOPERATIVE = r"""
__device__ void sync_grid() {
  unsigned high, low, old, now;
  asm("mov.u32 %0, %%envreg1;" : "=r"(high));
  asm("mov.u32 %0, %%envreg2;" : "=r"(low));
  unsigned* at = (unsigned*)((unsigned long long)high << 32 | low);
  if (!at) __trap();
  __syncthreads();
  if (!threadIdx.x) {
    unsigned add = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
    asm volatile("atom.add.release.gpu.u32 %0, [%1], %2;" : "=r"(old) : "l"(at + 1), "r"(add) : "memory");
    do {
      asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(now) : "l"(at + 1) : "memory");
    } while (!((now ^ old) & 0x80000000u));
  }
  __syncthreads();
}
extern "C" __global__ void k(unsigned* out) {
  out[blockIdx.x * 64 + threadIdx.x] = blockIdx.x + threadIdx.x;
  sync_grid();
  unsigned other = out[(blockIdx.x + 1) % gridDim.x * 64 + threadIdx.x];
  sync_grid();
  out[blockIdx.x * 64 + threadIdx.x] += 1000 * other;
}
"""


@pytest.mark.sweep
@every
@pytest.mark.parametrize("compiled", [True, False])
def test_a_cooperative_launch_synchronises_its_grid(schedule: Schedule, compiled: bool):
    out = words(40 * 64)
    run(COOPERATIVE, out, grid=40, block=64, cooperative=True, schedule=schedule, compiled=compiled, lanes=128)
    first = np.arange(40)[:, None] + np.arange(64)
    assert (out.reshape(40, 64) == first + 1000 * np.roll(first, -1, axis=0)).all()


@pytest.mark.parametrize(("compiled", "found"), [
    (True, "kernel.cu:19: writes 4 global bytes that block .* read at kernel.cu:20"),
    (False, "kernel.cu:20: reads 4 global bytes that block .* wrote at kernel.cu:19"),
])  # fmt: skip
def test_a_missing_wait_of_a_cooperative_launch_is_a_race(compiled: bool, found: str):
    without = COOPERATIVE.replace("  sync_grid();\n  unsigned other", "  unsigned other")
    with pytest.raises(Fault, match=found):
        run(without, words(40 * 64), grid=40, block=64, cooperative=True, compiled=compiled)


def test_a_grid_is_not_synchronised_in_a_launch_that_is_not_cooperative():
    wanted = r"kernel\.cu:7: the kernel trapped: it synchronises its grid, as by grid\.sync\(\), and its launch is not"
    with pytest.raises(LaunchError, match=wanted):
        run(COOPERATIVE, words(40 * 64), grid=40, block=64)


def test_a_cooperative_launch_that_no_gpu_holds_is_refused():
    wanted = (
        r"a cooperative launch of 4,225 CTAs of 64 threads is too large: a GPU of sm_90a holds at most 4,224 at once"
    )
    with pytest.raises(RefusedLaunch, match=wanted):
        run(COOPERATIVE, words(4225 * 64), grid=4225, block=64, cooperative=True)
    with pytest.raises(RefusedLaunch, match=r"at most 132 at once \(132 SMs, 1 CTA each by shared memory\)"):
        run(COOPERATIVE, words(133 * 64), grid=133, block=64, shared=120 << 10, cooperative=True)
