"""Every check of the sanitizer, on CUDA C++ that has the bug, and on the same code without it."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_source import ARCHES, buffer, line_of, module

from harness import emulator
from harness.errors import AccessError, LaunchError


def run(source: str, *args, grid=1, block=64, arch="sm_90a", **options) -> emulator.Counters:
    return emulator.launch(module(source, arch), "k", (grid, 1, 1), (block, 1, 1), args, **options)


def fault(source: str, *args, kind: str, marker: str, **options) -> str:
    """The sentence of the fault that must come, of this kind, at the line with this marker."""
    with pytest.raises(AccessError) as caught:
        run(source, *args, **options)
    assert caught.value.kind == kind
    assert caught.value.where == line_of(source, marker)
    return caught.value.sentence


def words(count: int) -> np.ndarray:
    return np.zeros(count, np.uint32)


# ---- bounds, alignment, permission ----------------------------------------------------------------------------------

COPY = """
extern "C" __global__ void k(const unsigned* in, unsigned* out, int n) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i <= n) {
    unsigned v = in[i];  // load
    out[i] = v;  // store
  }
}
"""


@pytest.mark.parametrize("arch", ARCHES)
def test_load_out_of_bounds_by_one(arch: str) -> None:
    sentence = fault(
        COPY, buffer("in", words(70)), buffer("out", words(71)), 70,
        kind="out_of_bounds", marker="// load", grid=2, arch=arch,
    )  # fmt: skip
    assert sentence == (
        "reads 4 bytes at byte 280 of buffer 'in', which has 280 bytes; k, block (1, 0, 0), thread (6, 0, 0)"
    )


def test_store_out_of_bounds_by_one() -> None:
    sentence = fault(
        COPY, buffer("in", words(71)), buffer("out", words(70)), 70,
        kind="out_of_bounds", marker="// store", grid=2,
    )  # fmt: skip
    assert sentence.startswith("writes 4 bytes at byte 280 of buffer 'out'")


def test_byte_out_of_bounds_by_one() -> None:
    source = 'extern "C" __global__ void k(unsigned char* x, int i) {\n  x[i] = 1;  // here\n}'
    run(source, buffer("x", np.zeros(5, np.uint8)), 4, block=1)
    for i in (5, -1):
        fault(source, buffer("x", np.zeros(5, np.uint8)), i, kind="out_of_bounds", marker="// here", block=1)


def test_empty_buffer() -> None:
    source = 'extern "C" __global__ void k(unsigned char* x) {\n  x[0] = 1;  // here\n}'
    fault(source, buffer("x", np.zeros(0, np.uint8)), kind="out_of_bounds", marker="// here", block=1)


def test_in_bounds_is_clean() -> None:
    source, target = np.arange(70, dtype=np.uint32), words(70)
    run(COPY, buffer("in", source, writable=False), buffer("out", target, initialised=False), 69, grid=2)
    assert (target == source).all()


def test_negative_offset_is_named_as_such() -> None:
    source = 'extern "C" __global__ void k(unsigned* x, long long i) {\n  x[i] = 1;  // here\n}'
    sentence = fault(source, buffer("x", words(4)), -5, kind="out_of_bounds", marker="// here", block=1)
    assert "at byte -20 of buffer 'x'" in sentence


def test_index_that_overflowed_meets_no_other_buffer() -> None:
    source = 'extern "C" __global__ void k(unsigned* x, int i) {\n  x[i * 65536] = 1;  // here\n}'
    fault(source, buffer("x", words(4)), -32768, kind="out_of_bounds", marker="// here", block=1)


def test_null_pointer() -> None:
    source = 'extern "C" __global__ void k(unsigned* x) {\n  x[2] = 1;  // here\n}'
    sentence = fault(source, 0, kind="out_of_bounds", marker="// here", block=1)
    assert "at address 0x8, which lies in no buffer" in sentence


def test_one_bad_lane_of_several_buffers_is_found() -> None:
    source = """
extern "C" __global__ void k(unsigned* x, unsigned* y) {
  unsigned* p = threadIdx.x % 2 ? x : y;
  p[threadIdx.x] = 1;  // here
}"""
    x, y = words(64), words(64)
    run(source, buffer("x", x), buffer("y", y))
    assert (x[1::2] == 1).all() and (y[::2] == 1).all() and not x[::2].any()
    sentence = fault(source, buffer("x", x), buffer("y", words(62)), kind="out_of_bounds", marker="// here")
    assert "byte 248 of buffer 'y'" in sentence and "thread (62, 0, 0)" in sentence


VECTOR = """
extern "C" __global__ void k(const unsigned* x, uint4* out) {
  out[threadIdx.x] = *reinterpret_cast<const uint4*>(x + threadIdx.x * 4 + 2 * (threadIdx.x == 5));  // here
}
"""


@pytest.mark.parametrize("arch", ARCHES)
def test_misaligned_vector_load(arch: str) -> None:
    sentence = fault(
        VECTOR, buffer("x", words(256)), buffer("out", words(256)), kind="misaligned", marker="// here", arch=arch
    )
    assert "at byte 88 of buffer 'x', which is not a multiple of" in sentence and "thread (5, 0, 0)" in sentence


def test_shared_bounds_and_alignment() -> None:
    source = """
extern "C" __global__ void k(int i) {
  extern __shared__ unsigned char s[];
  *reinterpret_cast<unsigned*>(s + i) = 1;  // here
}"""
    assert "byte 64 of shared memory, which has 64 bytes" in fault(
        source, 64, kind="out_of_bounds", marker="// here", block=1, dynamic_shared=64
    )
    assert "byte -4 of shared memory" in fault(
        source, -4, kind="out_of_bounds", marker="// here", block=1, dynamic_shared=64
    )
    fault(source, 6, kind="misaligned", marker="// here", block=1, dynamic_shared=64)
    run(source, 60, block=1, dynamic_shared=64)


def test_read_only_and_write_only() -> None:
    source = """
extern "C" __global__ void k(unsigned* x, unsigned* y) {
  unsigned v = x[0];  // load
  y[0] = v;  // store
}"""
    assert "read-only" in fault(
        source, buffer("x", words(1)), buffer("y", words(1), writable=False),
        kind="out_of_bounds", marker="// store", block=1,
    )  # fmt: skip
    assert "write-only" in fault(
        source, buffer("x", words(1), readable=False), buffer("y", words(1)),
        kind="out_of_bounds", marker="// load", block=1,
    )  # fmt: skip


def test_constant_memory_is_bounded() -> None:
    source = '__constant__ int c[4] = {7};\nextern "C" __global__ void k(int* out, int i) {\n  *out = c[i];  // here\n}'
    out = np.zeros(1, np.int32)
    run(source, buffer("out", out), 0, block=1)
    assert out[0] == 7
    assert "buffer 'c'" in fault(source, buffer("out", out), 4, kind="out_of_bounds", marker="// here", block=1)


# ---- unwritten memory -----------------------------------------------------------------------------------------------

UNWRITTEN = """
extern "C" __global__ void k(unsigned* out, int skip) {
  __shared__ unsigned char s[64];
  if (int(threadIdx.x) != skip) s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = s[63 - threadIdx.x];  // here
}
"""


def test_unwritten_shared_read() -> None:
    out = words(64)
    run(UNWRITTEN, buffer("out", out), 64)
    assert (out == np.arange(64)[::-1]).all()
    sentence = fault(UNWRITTEN, buffer("out", out), 3, kind="unwritten_read", marker="// here")
    assert sentence.startswith("reads 1 bytes at byte 3 of shared memory, which nothing wrote before")
    assert "thread (60, 0, 0)" in sentence


def test_unwritten_half_of_a_vector() -> None:
    source = """
extern "C" __global__ void k(unsigned* out) {
  __shared__ __align__(16) unsigned s[4];
  s[0] = s[1] = s[3] = 1;
  uint4 v = *reinterpret_cast<volatile uint4*>(s);
  out[0] = v.x + v.y + v.z + v.w;
}""".replace("volatile uint4*>(s)", "uint4*>(s + *out)")
    with pytest.raises(AccessError) as caught:
        run(source, buffer("out", words(1)), block=1)
    assert caught.value.kind == "unwritten_read"


def test_shared_memory_starts_unwritten_in_every_block() -> None:
    source = """
extern "C" __global__ void k(unsigned* out) {
  __shared__ unsigned s[64];
  if (blockIdx.x == 0) s[threadIdx.x] = 5;
  __syncthreads();
  out[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x];  // here
}"""
    sentence = fault(source, buffer("out", words(128)), kind="unwritten_read", marker="// here", grid=2)
    assert "block (1, 0, 0)" in sentence


def test_unwritten_output() -> None:
    source = 'extern "C" __global__ void k(unsigned* x) {\n  x[threadIdx.x] += 1;  // here\n}'
    run(source, buffer("x", words(64)))
    fault(source, buffer("x", words(64), initialised=False), kind="unwritten_read", marker="// here")


def test_unwritten_atomic() -> None:
    source = 'extern "C" __global__ void k(unsigned* x) {\n  atomicAdd(x, 1u);  // here\n}'
    fault(source, buffer("x", words(1), initialised=False), kind="unwritten_read", marker="// here")


def test_output_written_by_one_launch_is_readable_in_the_next() -> None:
    write = 'extern "C" __global__ void k(unsigned* x) { x[threadIdx.x] = 3; }'
    read = 'extern "C" __global__ void k(unsigned* x, unsigned* y) { y[threadIdx.x] = x[threadIdx.x]; }'
    between, out = buffer("x", words(64), initialised=False), words(64)
    run(write, between)
    run(read, between, buffer("y", out))
    assert (out == 3).all()


# ---- races in shared memory -----------------------------------------------------------------------------------------

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
  s[threadIdx.x % n] = 7;  // here
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
    # All threads read s[0]; thread 63, whose tag is the one a naive shadow keeps, writes it.
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


# ---- races between blocks -------------------------------------------------------------------------------------------


def test_two_blocks_write_one_byte() -> None:
    source = """
extern "C" __global__ void k(unsigned char* out, int stride) {
  out[blockIdx.x * stride + threadIdx.x] = 1;  // here
}"""
    run(source, buffer("out", words(64)), 64, grid=4)
    fault(source, buffer("out", words(64)), 63, kind="race", marker="// here", grid=4)
    # The same if the blocks run one after the other.
    sentence = fault(source, buffer("out", words(64)), 63, kind="race", marker="// here", grid=4, lanes=64)
    assert "block (0, 0, 0) wrote" in sentence and "block (1, 0, 0), thread (0, 0, 0)" in sentence


def test_one_block_reads_what_another_writes() -> None:
    source = """
extern "C" __global__ void k(unsigned* x, unsigned* out) {
  if (blockIdx.x == 0) x[threadIdx.x] = 1;  // write
  else out[threadIdx.x] = x[threadIdx.x];  // read
}"""
    with pytest.raises(AccessError) as caught:
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
  out[blockIdx.x * 64 + threadIdx.x] = x[threadIdx.x];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && atomicAdd(ticket, 1u) == last)
    x[0] = 5;  // overwrite
}"""

    def arguments():
        return buffer("x", words(64)), buffer("out", words(384)), buffer("ticket", words(1))

    run(source, *arguments(), 5, grid=6)
    fault(source, *arguments(), 4, kind="race", marker="// overwrite", grid=6, lanes=64)


def test_blocks_that_only_read_do_not_race() -> None:
    source = """
extern "C" __global__ void k(unsigned* x, unsigned* out) {
  out[blockIdx.x * 64 + threadIdx.x] = x[threadIdx.x];
}"""
    run(source, buffer("x", words(64)), buffer("out", words(256)), grid=4)


# ---- barriers, shuffles, loops --------------------------------------------------------------------------------------


def test_barrier_in_one_branch() -> None:
    source = """
extern "C" __global__ void k(unsigned* out) {
  if (threadIdx.x % 2) {
    out[threadIdx.x] = 1;
    __syncthreads();  // odd
  } else {
    out[threadIdx.x] = 2;
    __syncthreads();  // even
    out[threadIdx.x] = 3;
  }
}"""
    with pytest.raises(AccessError) as caught:
        run(source, buffer("out", words(64)))
    assert caught.value.kind == "divergent_barrier"
    both = {line_of(source, "// odd"), line_of(source, "// even")}
    assert {caught.value.where, *caught.value.sentence.replace(";", "").split()} >= both


def test_barrier_that_some_threads_never_reach() -> None:
    source = """
extern "C" __global__ void k(unsigned* out) {
#pragma unroll 1
  for (unsigned i = 0; i <= threadIdx.x % 2; ++i) {
    out[threadIdx.x] = i;
    __syncthreads();  // loop
  }
  out[threadIdx.x] = 7;
  __syncthreads();  // end
  out[threadIdx.x] = 8;
}"""
    sentence = fault(source, buffer("out", words(64)), kind="divergent_barrier", marker="// loop")
    assert f"while thread 0 waits at bar.sync at {line_of(source, '// end')}" in sentence


def test_barrier_does_not_wait_for_threads_that_exited() -> None:
    source = """
extern "C" __global__ void k(unsigned* out) {
  __shared__ unsigned s[64];
  if (threadIdx.x >= 37) return;
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = s[36 - threadIdx.x];
}"""
    out = words(64)
    run(source, buffer("out", out))
    assert (out[:37] == np.arange(37)[::-1]).all() and not out[37:].any()


def test_barrier_reached_by_paths_of_different_length() -> None:
    source = """
extern "C" __global__ void k(unsigned* out, int n) {
  __shared__ unsigned s[64];
  unsigned v = threadIdx.x;
#pragma unroll 1
  for (int i = 0; i < int(threadIdx.x) * n; ++i) v = v * 3 + 1;
  s[threadIdx.x] = v - v + threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = s[63 - threadIdx.x];
}"""
    out = words(64)
    run(source, buffer("out", out), 2)
    assert (out == np.arange(64)[::-1]).all()


SHUFFLE = """
extern "C" __global__ void k(unsigned* out, unsigned mask, int active) {
  unsigned v = 0;
  if (int(threadIdx.x) < active) v = __shfl_xor_sync(mask, threadIdx.x, 1);  // here
  out[threadIdx.x] = v;
}
"""


@pytest.mark.parametrize("arch", ARCHES)
def test_shuffle_mask_names_a_lane_that_is_elsewhere(arch: str) -> None:
    out = words(32)
    run(SHUFFLE, buffer("out", out), 0xFFFF, 16, block=32, arch=arch)
    assert (out[:16] == np.arange(16) ^ 1).all() and not out[16:].any()
    fault(SHUFFLE, buffer("out", out), 0xFFFFFFFF, 16, kind="inactive_shuffle", marker="// here", block=32, arch=arch)


def test_shuffle_by_a_lane_the_mask_does_not_name() -> None:
    sentence = fault(SHUFFLE, buffer("out", words(32)), 0xFFFF, 18, kind="inactive_shuffle", marker="// here", block=32)
    assert "does not name lane 16, which executes it" in sentence


def test_shuffle_reads_a_lane_outside_the_mask() -> None:
    sentence = fault(SHUFFLE, buffer("out", words(32)), 0x7FFF, 15, kind="inactive_shuffle", marker="// here", block=32)
    assert "reads lane 15" in sentence and "thread (14, 0, 0)" in sentence


def test_shuffle_reads_a_lane_that_exited() -> None:
    source = """
extern "C" __global__ void k(unsigned* out) {
  if (threadIdx.x >= 20) return;
  out[threadIdx.x] = __shfl_down_sync(~0u, threadIdx.x, 1);  // here
}"""
    assert "reads lane 20" in fault(
        source, buffer("out", words(32)), kind="inactive_shuffle", marker="// here", block=32
    )


def test_vote_mask_names_a_lane_that_is_elsewhere() -> None:
    source = """
extern "C" __global__ void k(unsigned* out, unsigned mask) {
  if (threadIdx.x < 8) out[threadIdx.x] = __ballot_sync(mask, threadIdx.x & 1);  // here
  out[threadIdx.x] += 1;
}"""
    out = words(32)
    run(source, buffer("out", out), 0xFF, block=32)
    assert (out[:8] == 0xAB).all()
    fault(source, buffer("out", out), 0x1FF, kind="inactive_shuffle", marker="// here", block=32)


def test_shuffle_after_some_lanes_returned_is_legal() -> None:
    source = """
extern "C" __global__ void k(unsigned* out) {
  if (threadIdx.x >= 20) return;
  out[threadIdx.x] = __shfl_xor_sync(~0u, threadIdx.x, 1) + __popc(__ballot_sync(~0u, 1));
}"""
    out = words(32)
    run(source, buffer("out", out), block=32)
    assert (out[:20] == (np.arange(20) ^ 1) + 20).all() and not out[20:].any()


def test_shuffle_waits_for_lanes_on_a_longer_path() -> None:
    source = """
extern "C" __global__ void k(unsigned* out, int n) {
  unsigned v = threadIdx.x;
  if (threadIdx.x % 4 == 3) {
#pragma unroll 1
    for (int i = 0; i < n; ++i) v = v * 5 + i;
    v = threadIdx.x + v * 0;
  }
  out[threadIdx.x] = __shfl_xor_sync(~0u, v, 3);
}"""
    out = words(32)
    run(source, buffer("out", out), 9, block=32)
    assert (out == np.arange(32) ^ 3).all()


def test_endless_loop() -> None:
    source = """
extern "C" __global__ void k(unsigned* out) {
  while (atomicAdd(out, 0u) == 0) {  // spin
  }
}"""
    fault(source, buffer("out", words(1)), kind="deadlock", marker="// spin", budget=10_000)


def test_trap() -> None:
    source = 'extern "C" __global__ void k(int n) {\n  if (n == 3) __trap();  // here\n}'
    run(source, 2)
    with pytest.raises(LaunchError, match=line_of(source, "// here") + ": the kernel trapped"):
        run(source, 3)


def test_inlined_code_names_its_call() -> None:
    source = """
__device__ __forceinline__ void put(unsigned* x, int i) {
  x[i] = 1;  // inner
}
extern "C" __global__ void k(unsigned* x) {
  put(x, 4);  // call
}"""
    sentence = fault(source, buffer("x", words(4)), kind="out_of_bounds", marker="// inner", block=1)
    assert sentence.endswith(f", inlined at {line_of(source, '// call')}")
