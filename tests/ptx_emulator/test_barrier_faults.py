"""Barriers, shuffles and loops: CUDA C++ that has the bug, and the same code without it."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_source import ARCHES, buffer, line_of
from faults import fault, run, words

from ptx_emulator.errors import Fault, LaunchError


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
    with pytest.raises(Fault) as caught:
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


def test_more_threads_than_a_barrier_is_for() -> None:
    """Any four of the eight warps may pass, so two groups of warps must not share a barrier without order."""
    source = """
extern "C" __global__ void k(unsigned* out) {
  __shared__ unsigned s[256];
  const unsigned group = threadIdx.x / 128;
  s[threadIdx.x] = threadIdx.x;
  asm volatile("bar.sync %0, 128;" ::"r"(BARRIER) : "memory");  // here
  out[threadIdx.x] = s[group * 128 + 127 - threadIdx.x % 128];
}"""
    out = words(256)
    run(source.replace("BARRIER", "group + 1"), buffer("out", out), block=256)
    assert (out[:128] == np.arange(128)[::-1]).all()
    wrong = source.replace("BARRIER", "1")
    sentence = fault(wrong, buffer("out", words(256)), kind="divergent_barrier", marker="// here", block=256)
    assert "meets at barrier 1 with 256 threads at once, and it is for 128" in sentence
