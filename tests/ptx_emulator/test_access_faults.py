"""Bounds, alignment, permission and unwritten memory: CUDA C++ that has the bug, and the same code without it."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_source import ARCHES, buffer
from faults import fault, run, words

from ptx_emulator.errors import Fault

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
        "reads 4 bytes at byte 280 of buffer 'in', which has 280 bytes; "
        "k, grid (2, 1, 1), block (1, 0, 0), thread (6, 0, 0)"
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
    with pytest.raises(Fault) as caught:
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
