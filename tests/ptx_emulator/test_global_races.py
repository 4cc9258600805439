"""Races in global memory by thread, on both paths: CUDA C++ that has the bug, and the same code without it."""

from __future__ import annotations

import numpy as np
import pytest
from both_paths import Outcome, both
from cuda_source import line_of, module


def words(count: int) -> np.ndarray:
    return np.zeros(count, np.uint32)


def launched(source: str, arrays: dict[str, np.ndarray], **options) -> Outcome:
    return both(module(source), arrays, **options)


def races(source: str, arrays: dict[str, np.ndarray], marker: str, **options) -> str:
    """The text of the fault, a race at the line with this marker."""
    kind, text = launched(source, arrays, **options).fault or ("none", "")
    assert kind == "race", text
    assert text.startswith(line_of(source, marker)), text
    return text


def is_clean(source: str, arrays: dict[str, np.ndarray], **options) -> dict[str, np.ndarray]:
    got = launched(source, arrays, **options)
    assert got.fault is None, got.fault
    return got.arrays


SYNC = "__syncthreads();"
EXCHANGE = """
extern "C" __global__ void k(unsigned* x, unsigned* out) {
  x += blockIdx.x * blockDim.x;
  out += blockIdx.x * blockDim.x;
  x[threadIdx.x] = threadIdx.x;  // write
  %s
  const unsigned v = x[threadIdx.x ^ %d];  // read
  %s
  x[threadIdx.x] = v + 1;  // again
  %s
  out[threadIdx.x] = x[threadIdx.x];
}
"""


@pytest.mark.parametrize("grid", [1, 5])
@pytest.mark.parametrize("lanes", [64, 1 << 14])
def test_threads_that_exchange_global_memory_need_a_barrier(grid: int, lanes: int) -> None:
    arrays = {"x": words(64 * grid), "out": words(64 * grid)}
    options = {"grid": grid, "lanes": lanes}
    got = is_clean(EXCHANGE % (SYNC, 33, SYNC, SYNC), arrays, **options)
    assert (got["out"].reshape(grid, 64) == (np.arange(64) ^ 33) + 1).all()
    is_clean(EXCHANGE % ("__syncwarp();", 1, "__syncwarp();", ""), arrays, **options)
    is_clean(EXCHANGE % ("", 0, "", ""), arrays, **options)
    for other, orders in ((1, "__syncwarp"), (32, "__syncthreads")):
        for weaker in ("", "__syncwarp();", "__threadfence();")[: 1 if other == 1 else 3]:
            text = races(EXCHANGE % (weaker, other, SYNC, SYNC), arrays, "// read", **options)
            source = EXCHANGE % (weaker, other, SYNC, SYNC)
            assert f"of its block wrote at {line_of(source, '// write')} with no {orders} between" in text
            races(EXCHANGE % (SYNC, other, weaker, SYNC), arrays, "// again", **options)


def test_the_other_thread_is_named() -> None:
    text = races(EXCHANGE % ("", 32, SYNC, SYNC), {"x": words(64), "out": words(64)}, "// read")
    assert "thread (32, 0, 0) of its block wrote" in text and "thread (0, 0, 0)" in text


def test_two_threads_store_to_one_place_in_one_instruction() -> None:
    source = """
extern "C" __global__ void k(unsigned* x, unsigned* n) {
  x[threadIdx.x %% %d] = threadIdx.x;  // here
}"""
    is_clean(source % 64, {"x": words(64), "n": words(1)})
    for apart in (1, 32):
        text = races(source % (64 - apart), {"x": words(64), "n": words(1)}, "// here", who=False)
        assert "in the same instruction" in text


@pytest.mark.parametrize("writer", [0, 63])
def test_all_readers_of_a_place_are_remembered(writer: int) -> None:
    source = """
extern "C" __global__ void k(unsigned* x, unsigned* out) {
  out[threadIdx.x] = x[0];
  %s
  if (threadIdx.x == %d) x[0] = 2;  // write
}"""
    arrays = {"x": words(1), "out": words(64)}
    is_clean(source % (SYNC, writer), arrays)
    races(source % ("__syncwarp();", writer), arrays, "// write")
    one_warp = {"x": words(1), "out": words(32)}
    is_clean(source % ("__syncwarp();", writer % 32), one_warp, block=32)
    races(source % ("", writer % 32), one_warp, "// write", block=32)


def test_parts_of_a_vector_race() -> None:
    source = """
extern "C" __global__ void k(unsigned* x, uint4* out) {
  if (threadIdx.x == 9) x[4 * 8 + 2] = 9;
  %s
  out[threadIdx.x] = reinterpret_cast<uint4*>(x)[threadIdx.x];  // read
}"""
    arrays = {"x": words(256), "out": words(256)}
    is_clean(source % "__syncwarp();", arrays)
    assert "thread (9, 0, 0)" in races(source % "", arrays, "// read")


def test_atomics_of_a_block_and_plain_accesses() -> None:
    source = """
extern "C" __global__ void k(unsigned* x, unsigned* out) {
  if (threadIdx.x == 0) *x = 0;
  %s
  atomicAdd(x, 1u);  // atomic
  %s
  if (threadIdx.x == 5) out[0] = *x;  // read
}"""
    arrays = {"x": words(1), "out": words(1)}
    assert is_clean(source % (SYNC, SYNC), arrays)["out"] == 64
    races(source % ("", SYNC), arrays, "// atomic")
    races(source % (SYNC, ""), arrays, "// read")


def test_an_asynchronous_copy_reads_what_another_thread_wrote() -> None:
    source = """
extern "C" __global__ void k(unsigned* x, unsigned* out) {
  __shared__ unsigned s[64];
  x[threadIdx.x] = threadIdx.x;
  %s
  const unsigned target = unsigned(__cvta_generic_to_shared(s + threadIdx.x));
  asm volatile("cp.async.ca.shared.global [%%0], [%%1], 4;" ::"r"(target), "l"(x + (threadIdx.x ^ 32)));  // copy
  asm volatile("cp.async.wait_all;" ::: "memory");
  out[threadIdx.x] = s[threadIdx.x];
}"""
    arrays = {"x": words(64), "out": words(64)}
    is_clean(source % SYNC, arrays)
    races(source % "", arrays, "// copy")


TICKET_OF_BLOCK = """
__device__ unsigned arrived;
extern "C" __global__ void k(unsigned* x, unsigned* out) {
  x[threadIdx.x] = threadIdx.x;
  __syncwarp();
  unsigned ticket = 0;
  if (threadIdx.x % 32 == 0) {
    RELEASE
    ticket = atomicAdd(&arrived, 1u);
    ACQUIRE
  }
  ticket = __shfl_sync(~0u, ticket, 0);
  if (ticket % 2 == 1) out[threadIdx.x] = x[threadIdx.x ^ 32];  // read
}
"""


def test_the_last_warp_of_a_block() -> None:
    arrays = {"x": words(64), "out": words(64)}

    def source(release: str, acquire: str) -> str:
        return TICKET_OF_BLOCK.replace("RELEASE", release).replace("ACQUIRE", acquire)

    for fence in ("__threadfence();", "__threadfence_block();"):
        got = is_clean(source(fence, fence), arrays)
        assert (got["out"][32:] == np.arange(32)).all()
        races(source("", fence), arrays, "// read")
        races(source(fence, ""), arrays, "// read")
        of_block = source(fence, fence).replace("atomicAdd", "atomicAdd_block")
        assert (is_clean(of_block, arrays)["out"] == got["out"]).all()
        races(of_block.replace(fence, "", 1), arrays, "// read")


LAST = """
__device__ unsigned arrived;
extern "C" __global__ void k(unsigned* partial, unsigned* out) {
  __shared__ bool last;
  partial[blockIdx.x * 64 + threadIdx.x] = 1;  // publish
  EVERY
  BEFORE
  if (threadIdx.x == 0) {
    RELEASE
    last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
    ACQUIRE
  }
  BEHIND
  if (!last) return;
  ALL
  unsigned total = 0;
  for (int b = 0; b < gridDim.x; ++b) total += partial[b * 64 + (threadIdx.x ^ 33)];  // collect
  out[threadIdx.x] = total;
}
"""
FENCE = "__threadfence();"


def last(every: str = "", before: str = SYNC, release: str = FENCE, acquire: str = FENCE, all_of: str = "") -> str:
    source = LAST.replace("EVERY", every).replace("BEFORE", before).replace("RELEASE", release)
    return source.replace("ACQUIRE", acquire).replace("BEHIND", SYNC).replace("ALL", all_of)


@pytest.mark.sweep
@pytest.mark.parametrize("grid", [2, 7])
@pytest.mark.parametrize("lanes", [64, 1 << 14])
def test_a_ticket_publishes_what_barriers_and_fences_put_before_it(grid: int, lanes: int) -> None:
    arrays = {"partial": words(64 * grid), "out": words(64)}
    options = {"grid": grid, "lanes": lanes}
    right = (
        last(),
        last(every=FENCE, release=""),
        last(acquire="", all_of=FENCE),
        last(every=FENCE, release=FENCE, acquire=FENCE, all_of=FENCE),
    )
    for source in right:
        assert (is_clean(source, arrays, **options)["out"] == grid).all()
    wrong = (
        last(release=""),
        last(acquire=""),
        last(before=""),
        last(every=FENCE, before="", release=""),
        last(every=FENCE, before="__syncwarp();"),
        last(release="__threadfence_block();"),
        last(acquire="__threadfence_block();"),
        last(acquire="", all_of="if (threadIdx.x < 32) __threadfence();"),
        last(every="if (threadIdx.x < 32) __threadfence();", release=""),
    )
    for source in wrong:
        text = races(source, arrays, "// collect", **options)
        assert "of its block" in text or "with nothing that orders them" in text


def test_an_atomic_of_the_scope_of_a_block_orders_no_other_block() -> None:
    arrays = {"partial": words(128), "out": words(64)}
    for scope in ("gpu", "cta"):
        source = last().replace(
            "last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;",
            f'unsigned t; asm volatile("atom.relaxed.{scope}.global.add.u32 %0, [%1], 1;"'
            ' : "=r"(t) : "l"(&arrived) : "memory"); last = t % 2 == 1;  // ticket',
        )
        if scope == "gpu":
            is_clean(source, arrays, grid=2)
        else:
            races(source, arrays, "// ticket", grid=2)


def test_release_and_acquire_need_no_fence() -> None:
    arrays = {"partial": words(128), "out": words(64)}
    for order, fine in (("acq_rel", True), ("acquire", False), ("release", False), ("relaxed", False)):
        source = last(release="", acquire="").replace(
            "last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;",
            f'unsigned t; asm volatile("atom.{order}.gpu.global.add.u32 %0, [%1], 1;"'
            ' : "=r"(t) : "l"(&arrived) : "memory"); last = t % 2 == 1;',
        )
        if fine:
            is_clean(source, arrays, grid=2)
        else:
            races(source, arrays, "// collect", grid=2)


def test_other_threads_than_the_one_with_the_ticket_need_a_barrier() -> None:
    source = """
extern "C" __global__ void k(unsigned* ticket, unsigned* x, unsigned* out) {
  if (blockIdx.x == 0) x[threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    while (atomicAdd(ticket, 1u) < blockIdx.x) {
    }
    __threadfence();
  }
  %s
  if (blockIdx.x == 1) out[threadIdx.x] = x[threadIdx.x];  // read
}"""
    arrays = {"ticket": words(1), "x": words(64), "out": words(64)}
    assert (is_clean(source % SYNC, arrays, grid=2)["out"] == 1).all()
    races(source % "", arrays, "// read", grid=2)
    races(source % "__syncwarp();", arrays, "// read", grid=2)


def test_order_passes_through_a_third_block() -> None:
    source = """
extern "C" __global__ void k(unsigned* flag, unsigned* x, unsigned* out) {
  if (blockIdx.x == 0) x[threadIdx.x] = 7;
  __syncthreads();
  if (threadIdx.x == 0) {
    if (blockIdx.x > 0) {
      while (*static_cast<volatile unsigned*>(flag + blockIdx.x - 1) == 0) {
      }
    }
    %s
    *static_cast<volatile unsigned*>(flag + blockIdx.x) = 1;
  }
  __syncthreads();
  __threadfence();
  if (blockIdx.x == 3) out[threadIdx.x] = x[threadIdx.x];  // read
}"""
    arrays, options = {"flag": words(4), "x": words(64), "out": words(64)}, {"grid": 4, "lanes": 64}
    assert (is_clean(source % FENCE, arrays, **options)["out"] == 7).all()
    races(source % f"if (blockIdx.x != 0) {FENCE}", arrays, "// read", **options)
    races(source % f"if (blockIdx.x != 2) {FENCE}", arrays, "// read", **options)


def test_later_tickets_do_not_hide_earlier_ones() -> None:
    source = """
extern "C" __global__ void k(unsigned* ticket, unsigned* x, unsigned* out) {
  for (int round = 0; round < 3; ++round) {
    x[(round * gridDim.x + blockIdx.x) * 64 + threadIdx.x] = round + 1;
    __syncthreads();
    if (threadIdx.x == 0) {
      %s
      atomicAdd(ticket, 1u);
      while (*static_cast<volatile unsigned*>(ticket) < (round + 1) * gridDim.x) {
      }
      __threadfence();
    }
    __syncthreads();
    const unsigned other = (blockIdx.x + 1) %% gridDim.x;
    out[blockIdx.x * 64 + threadIdx.x] += x[(round * gridDim.x + other) * 64 + (threadIdx.x ^ 40)];  // read
  }
}"""
    arrays = {"ticket": words(1), "x": words(3 * 3 * 64), "out": words(3 * 64)}
    assert (is_clean(source % FENCE, arrays, grid=3)["out"] == 6).all()
    races(source % f"if (round != 1) {FENCE}", arrays, "// read", grid=3)


GATHER = """
__device__ unsigned arrived;
extern "C" __global__ void k(unsigned* maximum, unsigned* out) {
  if (threadIdx.x) return;
  atomicMax(maximum, blockIdx.x + 1);
  RELEASE
  if (atomicInc(&arrived, gridDim.x - 1) != LAST) return;
  ACQUIRE
  out[0] = atomicExch(maximum, 0u);  // take
}
"""


@pytest.mark.parametrize("lanes", [64, 1 << 14])
def test_a_maximum_is_taken_when_all_blocks_have_added_theirs(lanes: int) -> None:
    def source(release: str = FENCE, acquire: str = FENCE, last: str = "gridDim.x - 1") -> str:
        return GATHER.replace("RELEASE", release).replace("ACQUIRE", acquire).replace("LAST", last)

    arrays, options = {"maximum": words(1), "out": words(1)}, {"grid": 5, "lanes": lanes}
    assert is_clean(source(), arrays, **options)["out"] == 5
    races(source(release=""), arrays, "// take", **options)
    races(source(acquire=""), arrays, "// take", **options)


BAND = """
struct Band { unsigned maxima[64], arrived, left; };
extern "C" __global__ void k(Band* band, unsigned* out) {
  atomicMax(&band->maxima[threadIdx.x ^ 17], blockIdx.x + 1);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    atomicAdd(&band->arrived, 1u);
    while (*static_cast<volatile unsigned*>(&band->arrived) < gridDim.x) {
    }
    __threadfence();
  }
  WAITED
  out[blockIdx.x * 64 + threadIdx.x] = __ldcg(&band->maxima[threadIdx.x]);  // read
  READ
  if (threadIdx.x >= 32) return;
  unsigned before = 0;
  if (threadIdx.x == 0) {
    LEFT
    before = atomicAdd(&band->left, 1u);
  }
  if (__shfl_sync(~0u, before, 0) != gridDim.x - 1 - EARLY) return;
  for (int i = 0; i < 64; i += 32) atomicExch(&band->maxima[i + threadIdx.x], 0u);  // clear
  if (threadIdx.x == 0) {
    atomicExch(&band->arrived, 0u);
    atomicExch(&band->left, 0u);
  }
}
"""


@pytest.mark.parametrize(
    "clear", ["atomicExch(&band->maxima[i + threadIdx.x], 0u)", "band->maxima[i + threadIdx.x] = 0"]
)
def test_a_band_is_cleared_when_all_have_read_it(clear: str) -> None:
    def source(waited: str = SYNC, read: str = SYNC, left: str = FENCE, early: int = 0) -> str:
        text = BAND.replace("WAITED", waited).replace("READ", read).replace("LEFT", left).replace("EARLY", str(early))
        return text.replace("atomicExch(&band->maxima[i + threadIdx.x], 0u)", clear)

    arrays, options = {"band": words(66), "out": words(64 * 3)}, {"grid": 3, "who": False}
    got = is_clean(source(), arrays, **options)
    assert (got["out"] == 3).all() and not got["band"].any()
    races(source(waited=""), arrays, "// read", **options)
    races(source(read=""), arrays, "// clear", **options)
    races(source(left=""), arrays, "// clear", **options)
    races(source(early=1), arrays, "// clear", **options)


def test_what_is_read_as_constant_is_not_written_by_the_launch() -> None:
    source = """
extern "C" __global__ void k(unsigned* x, unsigned* out) {
  const unsigned t = blockIdx.x * 64 + threadIdx.x;
  if (WRITES) x[t] = 5;  // write
  __threadfence();
  __syncthreads();
  out[t] = __ldg(&x[READ]);  // read
  __syncthreads();
  if (AGAIN) x[t] = 6;  // again
}"""

    def kernel(writes: str = "t >= 128", read: str = "t", again: str = "false") -> str:
        return source.replace("WRITES", writes).replace("READ", read).replace("AGAIN", again)

    arrays, options = {"x": words(256), "out": words(256)}, {"grid": 4, "who": False}
    is_clean(kernel(writes="false"), arrays, **options)
    is_clean(kernel(read="t % 128"), arrays, **options)  # written elsewhere
    text = races(kernel(), arrays, "// read", **options)
    assert "reads as constant (ld.global.nc) 4 global bytes that this launch wrote at" in text
    text = races(kernel(writes="false", again="true"), arrays, "// again", **options)
    assert "that this launch read as constant (ld.global.nc)" in text
    races(kernel(writes="t >= 128", read="t % 128 + 128"), arrays, "// read", **options)
    races(kernel(writes="true"), {"x": words(64), "out": words(64)}, "// read", grid=1)
    atomics = kernel(writes="false", again="true").replace("x[t] = 6", "atomicAdd(&x[t], 1u)")
    races(atomics, arrays, "// again", **options)
