"""Races in shared memory and between blocks: CUDA C++ that has the bug, and the same code without it."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_source import buffer, line_of
from faults import fault, run, words

from ptx_emulator.errors import Fault

REVERSE = """
extern "C" __global__ void k(unsigned* out) {
  __shared__ unsigned s[64];
  s[threadIdx.x] = threadIdx.x;  // write
  %s
  unsigned v = s[63 - threadIdx.x];  // read
  %s
  s[threadIdx.x] = v + 1;  // again
  %s
  out[threadIdx.x] = s[threadIdx.x];
}
"""
SYNC = "__syncthreads();"


def test_synchronised_exchange_is_clean() -> None:
    out = words(64)
    run(REVERSE % (SYNC, SYNC, SYNC), buffer("out", out))
    assert (out == np.arange(64)[::-1] + 1).all()


def test_read_after_write_without_barrier() -> None:
    source = REVERSE % ("", SYNC, SYNC)
    sentence = fault(source, buffer("out", words(64)), kind="race", marker="// read")
    assert f"wrote the same shared bytes at {line_of(source, '// write')} with no __syncthreads between" in sentence
    assert "thread (63, 0, 0)" in sentence and "thread (0, 0, 0)" in sentence


def test_write_after_read_without_barrier() -> None:
    source = REVERSE % (SYNC, "", SYNC)
    sentence = fault(source, buffer("out", words(64)), kind="race", marker="// again")
    assert f"read the same shared bytes at {line_of(source, '// read')}" in sentence


def test_switched_off_sanitizer_says_nothing() -> None:
    run(REVERSE % ("", "", ""), buffer("out", words(64)), sanitize=False)


def test_write_after_write_without_barrier() -> None:
    source = """
extern "C" __global__ void k(unsigned* out) {
  __shared__ unsigned s[64];
  s[threadIdx.x] = 7;  // first
  s[threadIdx.x ^ 32] = 7;  // second
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];
}"""
    sentence = fault(source, buffer("out", words(64)), kind="race", marker="// second")
    assert f"wrote the same shared bytes at {line_of(source, '// first')}" in sentence


def test_two_threads_store_to_one_place_in_one_instruction() -> None:
    source = """
extern "C" __global__ void k(unsigned* out, int n) {
  __shared__ unsigned s[64];
  s[threadIdx.x % n] = threadIdx.x;  // here
  __syncthreads();
  out[threadIdx.x] = s[0];
}"""
    run(source, buffer("out", words(64)), 64)
    assert "in the same instruction" in fault(source, buffer("out", words(64)), 63, kind="race", marker="// here")


WARP = """
extern "C" __global__ void k(unsigned* out, int other) {
  __shared__ unsigned s[64];
  s[threadIdx.x] = threadIdx.x;  // write
  %s;
  out[threadIdx.x] = s[threadIdx.x ^ other];  // read
}
"""


@pytest.mark.parametrize("sync", ["__syncwarp()", "__shfl_sync(~0u, 1, 0)", "if (!__any_sync(~0u, other)) return"])
def test_warp_level_synchronisation_orders_the_warp(sync: str) -> None:
    sync = f"unsigned t = {sync}; if (t == 77) return" if sync.startswith("__shfl") else sync
    out = words(64)
    run(WARP % sync, buffer("out", out), 1)
    assert (out == np.arange(64) ^ 1).all()


def test_lanes_of_a_warp_race_without_syncwarp() -> None:
    source = WARP % ""
    assert "with no __syncwarp between" in fault(source, buffer("out", words(64)), 1, kind="race", marker="// read")


def test_syncwarp_does_not_order_two_warps() -> None:
    sentence = fault(WARP % "__syncwarp()", buffer("out", words(64)), 32, kind="race", marker="// read")
    assert "with no __syncthreads between" in sentence


def test_broadcast_read_then_write_by_the_last_reader() -> None:
    # All threads read s[0]; thread 63, whose tag a naive shadow would keep, writes it.
    source = """
extern "C" __global__ void k(unsigned* out) {
  __shared__ unsigned s[1];
  if (threadIdx.x == 63) s[0] = 1;
  __syncthreads();
  out[threadIdx.x] = s[0];  // read
  %s
  if (threadIdx.x == 63) s[0] = 2;  // write
}"""
    run(source % SYNC, buffer("out", words(64)))
    fault(source % "__syncwarp();", buffer("out", words(64)), kind="race", marker="// write")
    fault(source % "__syncwarp();", buffer("out", words(96)), kind="race", marker="// write", block=96)


def test_broadcast_in_one_warp_then_write_by_the_last_reader() -> None:
    source = """
extern "C" __global__ void k(unsigned* out) {
  __shared__ unsigned s[1];
  if (threadIdx.x == 31) s[0] = 1;
  __syncwarp();
  out[threadIdx.x] = s[0];  // read
  %s
  if (threadIdx.x == 31) s[0] = 2;  // write
}"""
    run(source % "__syncwarp();", buffer("out", words(32)), block=32)
    fault(source % "", buffer("out", words(32)), kind="race", marker="// write", block=32)


@pytest.mark.parametrize("writer", [0, 1])
def test_readers_at_different_times_are_all_remembered(writer: int) -> None:
    # The two branches read one after the other; the writer is the last reader in one of the two cases.
    source = """
extern "C" __global__ void k(unsigned* out, unsigned split, unsigned writer) {
  __shared__ volatile unsigned s[1];
  if (threadIdx.x == 0) s[0] = 1;
  __syncthreads();
  unsigned v;  // two different instructions, which the compiler cannot make one
  const unsigned address = unsigned(__cvta_generic_to_shared(const_cast<unsigned*>(s)));
  if (threadIdx.x < split) asm volatile("ld.shared.u32 %%0, [%%1];" : "=r"(v) : "r"(address));
  else asm volatile("ld.volatile.shared.u32 %%0, [%%1];" : "=r"(v) : "r"(address));
  out[threadIdx.x] = v;
  %s
  if (threadIdx.x == writer) s[0] = 2;  // write
}"""
    run(source % SYNC, buffer("out", words(64)), 32, 63 * writer)
    fault(source % "__syncwarp();", buffer("out", words(64)), 32, 63 * writer, kind="race", marker="// write")
    two = buffer("out", words(2))
    run(source % "__syncwarp();", two, 1, writer, block=2)
    fault(source % "", two, 1, writer, kind="race", marker="// write", block=2)


def test_parts_of_a_vector_race() -> None:
    source = """
extern "C" __global__ void k(uint4* out, unsigned one) {
  __shared__ __align__(16) unsigned s[256];
  for (int i = 0; i < 4; ++i) s[4 * threadIdx.x + i] = i;
  __syncthreads();
  if (threadIdx.x == 9) s[4 * 8 + 2] = 9;  // write
  out[threadIdx.x] = *reinterpret_cast<uint4*>(s + 4 * threadIdx.x * one);  // read
}"""
    sentence = fault(source, buffer("out", words(256)), 1, kind="race", marker="// read")
    assert "thread (8, 0, 0)" in sentence and "thread (9, 0, 0)" in sentence


def test_neighbouring_bytes_do_not_race() -> None:
    source = """
extern "C" __global__ void k(unsigned char* out) {
  __shared__ unsigned char s[64];
  s[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = s[threadIdx.x];
}"""
    out = np.zeros(64, np.uint8)
    run(source, buffer("out", out))
    assert (out == np.arange(64)).all()


ATOMIC = """
extern "C" __global__ void k(unsigned* out) {
  __shared__ unsigned s;
  if (threadIdx.x == 0) s = 0;
  %s
  atomicAdd(&s, 1u);  // atomic
  %s
  if (threadIdx.x == 5) out[0] = s;  // read
}
"""


def test_shared_atomics_do_not_race_with_each_other() -> None:
    out = words(1)
    run(ATOMIC % (SYNC, SYNC), buffer("out", out))
    assert out[0] == 64


def test_shared_atomics_race_with_plain_accesses() -> None:
    fault(ATOMIC % ("", SYNC), buffer("out", words(1)), kind="race", marker="// atomic")
    fault(ATOMIC % (SYNC, ""), buffer("out", words(1)), kind="race", marker="// read")


def test_a_loop_that_reuses_a_buffer_needs_two_barriers() -> None:
    source = """
extern "C" __global__ void k(unsigned* out, int n) {
  __shared__ unsigned s[64];
  unsigned total = 0;
#pragma unroll 1
  for (int i = 0; i < n; ++i) {
    s[threadIdx.x] = i;  // write
    __syncthreads();
    total += s[threadIdx.x ^ 40];  // read
    %s
  }
  out[threadIdx.x] = total;
}"""
    out = words(64)
    run(source % SYNC, buffer("out", out), 5)
    assert (out == 10).all()
    fault(source % "", buffer("out", words(64)), 5, kind="race", marker="// write")


def test_two_blocks_write_one_byte() -> None:
    source = """
extern "C" __global__ void k(unsigned char* out, int stride) {
  out[blockIdx.x * stride + threadIdx.x] = 1;  // here
}"""
    run(source, buffer("out", words(64)), 64, grid=4)
    fault(source, buffer("out", words(64)), 63, kind="race", marker="// here", grid=4)
    # The result is the same if the blocks run one after another.
    sentence = fault(source, buffer("out", words(64)), 63, kind="race", marker="// here", grid=4, lanes=64)
    assert "block (0, 0, 0) wrote" in sentence and "block (1, 0, 0), thread (0, 0, 0)" in sentence


def test_one_block_reads_what_another_writes() -> None:
    source = """
extern "C" __global__ void k(unsigned* x, unsigned* out) {
  if (blockIdx.x == 0) x[threadIdx.x] = 1;  // write
  else out[threadIdx.x] = x[threadIdx.x];  // read
}"""
    with pytest.raises(Fault) as caught:
        run(source, buffer("x", words(64)), buffer("out", words(64)), grid=2)
    assert caught.value.kind == "race"
    assert {caught.value.where, *caught.value.sentence.split()} >= {
        line_of(source, "// write"),
        line_of(source, "// read"),
    }


LAST = """
__device__ unsigned arrived;
extern "C" __global__ void k(const unsigned* in, unsigned* partial, unsigned* out) {
  __shared__ bool last;
  atomicMax(&partial[blockIdx.x], in[blockIdx.x * 64 + threadIdx.x]);
  __syncthreads();
  if (threadIdx.x == 0) {
    partial[gridDim.x + blockIdx.x] = blockIdx.x;  // publish
    %s
    last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (!last) return;
  unsigned total = 0;
  for (int b = threadIdx.x; b < gridDim.x; b += 64) total += partial[gridDim.x + b];  // collect
  atomicAdd(out, total);
}
"""


@pytest.mark.parametrize("lanes", [64, 1 << 14])
def test_last_block_may_read_what_was_published(lanes: int) -> None:
    out, partial = words(1), words(200)
    for _ in range(2):  # the counter wraps to zero by itself
        out[:] = 0
        run(
            LAST % "__threadfence();",
            buffer("in", words(6400)),
            buffer("partial", partial),
            buffer("out", out),
            grid=100,
            lanes=lanes,
        )
        assert out[0] == 99 * 100 // 2


def test_publishing_without_a_fence_is_a_race() -> None:
    source = LAST % ""
    args = buffer("in", words(6400)), buffer("partial", words(200)), buffer("out", words(1))
    assert "wrote at " + line_of(source, "// publish") in fault(
        source, *args, kind="race", marker="// collect", grid=100
    )


def test_resetting_a_counter_is_ordered_behind_everyones_atomics() -> None:
    source = """
extern "C" __global__ void k(unsigned* counter) {
  if (threadIdx.x) return;
  __threadfence();
  if (atomicAdd(counter, 1u) == %s) *counter = 0;  // reset
}"""
    counter = words(1)
    run(source % "gridDim.x - 1", buffer("counter", counter), grid=8)
    assert counter[0] == 0
    fault(source % "3", buffer("counter", words(1)), kind="race", marker="// reset", grid=8, lanes=64)


def test_the_last_of_a_group_of_blocks_may_reset_its_counter() -> None:
    source = """
extern "C" __global__ void k(unsigned* counter) {
  if (threadIdx.x) return;
  unsigned* mine = counter + blockIdx.x / 4;
  if (atomicAdd(mine, 1u) == 3)
    *mine = 0;  // reset
}"""
    for lanes in (64, 1 << 14):
        counter = words(2)
        run(source, buffer("counter", counter), grid=8, lanes=lanes)
        assert not counter.any()


def test_a_counter_reset_by_a_block_that_took_no_ticket_is_a_race() -> None:
    source = """
extern "C" __global__ void k(unsigned* counter) {
  if (threadIdx.x) return;
  if (blockIdx.x < 4) atomicAdd(counter, 1u);
  else if (blockIdx.x == 4) *counter = 0;  // reset
}"""
    fault(source, buffer("counter", words(1)), kind="race", marker="// reset", grid=5, lanes=64)


def test_what_several_blocks_read_may_be_overwritten_when_all_have_arrived() -> None:
    source = """
extern "C" __global__ void k(unsigned* x, unsigned* out, unsigned* ticket, unsigned last) {
  out[blockIdx.x * 64 + threadIdx.x] = x[threadIdx.x];  // read
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && atomicAdd(ticket, 1u) == last)
    x[0] = 5;
}"""

    def arguments():
        return buffer("x", words(64)), buffer("out", words(384)), buffer("ticket", words(1))

    run(source, *arguments(), 5, grid=6)
    fault(source, *arguments(), 4, kind="race", marker="// read", grid=6, lanes=64)


def test_blocks_that_only_read_do_not_race() -> None:
    source = """
extern "C" __global__ void k(unsigned* x, unsigned* out) {
  out[blockIdx.x * 64 + threadIdx.x] = x[threadIdx.x];
}"""
    run(source, buffer("x", words(64)), buffer("out", words(256)), grid=4)
