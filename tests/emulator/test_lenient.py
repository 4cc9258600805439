"""`lenient`: what Triton's compiler puts into right programs is not reported, and what is beside it still is."""

from __future__ import annotations

import numpy as np
import pytest
from async_source import PRELUDE
from cuda_source import buffer, line_of
from faults import fault, run, words

from harness.emulator.errors import Fault
from harness.emulator.memory import Buffer
from harness.emulator.tensor_map import MalformedMap, TensorMap, decode, replaced

# Threads t and t + 32 store a VALUE to one place.
STORES = """
extern "C" __global__ void k(unsigned* out) {
  __shared__ unsigned s[64];
  s[threadIdx.x % 32] = VALUE;  // store
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x % 32];
}"""
# The same where there are mbarriers.
WITH_MBARRIER = PRELUDE + STORES.replace("  s[", "  __shared__ u64 bar; if (!threadIdx.x) init(bar, 1);\n  s[", 1)
EQUAL, DIFFERENT = "threadIdx.x % 32 + 5", "threadIdx.x / 32"


@pytest.mark.parametrize("source", [STORES, WITH_MBARRIER])
def test_equal_values_in_one_store(source: str):
    out = words(64)
    run(source.replace("VALUE", EQUAL), buffer("out", out))
    assert (out == np.arange(64) % 32 + 5).all()
    fault(source.replace("VALUE", EQUAL), buffer("out", words(64)), kind="race", marker="// store")


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("source", [STORES, WITH_MBARRIER])
def test_different_values_in_one_store_are_a_race(source: str, compiled: bool):
    sentence = fault(
        source.replace("VALUE", DIFFERENT),
        buffer("out", words(64)),
        kind="race",
        marker="// store",
        compiled=compiled,
    )
    assert "several threads writes the same shared bytes in the same instruction" in sentence


def test_another_store_or_load_of_shared_memory_is_a_race():
    for after in ("s[threadIdx.x ^ 32] = threadIdx.x ^ 32;", "out[threadIdx.x] = s[threadIdx.x ^ 32];"):
        source = f"""
extern "C" __global__ void k(unsigned* out) {{
  __shared__ unsigned s[64];
  s[threadIdx.x] = threadIdx.x;
  {after}  // second
  out[0] = s[0];
}}"""
        fault(source, buffer("out", words(64)), kind="race", marker="// second")


# Threads load what one of them, or another, stores.
IN_PLACE = """
extern "C" __global__ void k(unsigned* x) {
  unsigned v;
  asm volatile("ld.global.u32 %%0, [%%1];" : "=r"(v) : "l"(x + %s));  // load
  if (%s) x[%s] = v + 1;  // store
}"""
REPLICAS = IN_PLACE % ("threadIdx.x % 32", "threadIdx.x < 32", "threadIdx.x")


@pytest.mark.parametrize("compiled", [False, True])
def test_one_of_several_readers_may_write(compiled: bool):
    x = words(32)
    run(REPLICAS, buffer("x", x), compiled=compiled)
    assert (x == 1).all()
    sentence = fault(REPLICAS, buffer("x", words(32)), kind="race", marker="// store", compiled=compiled)
    assert f"several threads of its block read at {line_of(REPLICAS, '// load')}" in sentence


@pytest.mark.parametrize("source", [
    IN_PLACE % ("threadIdx.x", "threadIdx.x < 63", "threadIdx.x + 1"),  # one reader, another writer
    IN_PLACE % ("threadIdx.x / 32", "threadIdx.x % 32 == 0", "1 - threadIdx.x / 32"),  # of another warp
])  # fmt: skip
def test_a_writer_that_did_not_read_is_a_race(source: str):
    fault(source, buffer("x", words(64)), kind="race", marker="// store")


def test_blocks_still_race():
    with pytest.raises(Fault) as raised:
        run(REPLICAS, buffer("x", words(32)), grid=2)
    assert raised.value.kind == "race" and "block (0, 0, 0)" in raised.value.sentence


COPY = (
    PRELUDE
    + """
extern "C" __global__ void k(u8* in, u8* out) {
  __shared__ alignas(128) u8 s[64]; __shared__ u64 bar;
  if (!threadIdx.x) init(bar, 1);  // init
  __syncthreads();
  if (!threadIdx.x) { expect(bar, 64); load(s, in, 64, bar); }  // copy
  wait(bar, 0);
  out[threadIdx.x] = s[threadIdx.x];
}"""
)


def test_an_mbarrier_without_a_fence():
    given, out = np.arange(64, dtype=np.uint8), np.zeros(64, np.uint8)
    arguments = Buffer("in", given), Buffer("out", out)
    run(COPY, *arguments)
    assert (out == given).all()
    with pytest.raises(Fault, match=r"copies with the mbarrier .* with no fence\.proxy\.async"):
        run(COPY, *arguments)


# ---- tensor maps that a kernel makes --------------------------------------------------------------------------------


def test_zeros_become_a_tensor_map_field_by_field():
    content = bytes(128)
    for field, ordinal, value in [
        ("global_address", 0, 1 << 40), ("rank", 0, 1), ("global_dim", 0, 40), ("global_dim", 1, 6),
        ("global_stride", 0, 96), ("box_dim", 0, 32), ("box_dim", 1, 8), ("element_stride", 0, 1),
        ("element_stride", 1, 1), ("elemtype", 0, 1), ("interleave_layout", 0, 0), ("swizzle_mode", 0, 2),
        ("fill_mode", 0, 0),
    ]:  # fmt: skip
        content = replaced(content, field, ordinal, value)
    assert decode(content) == TensorMap("uint16", 1 << 40, (40, 6), (96,), (32, 8), (1, 1), "64B")


def test_zeros_themselves_are_none():
    with pytest.raises(MalformedMap):
        decode(bytes(128))
    with pytest.raises(MalformedMap):
        replaced(bytes(127) + b"\1", "rank", 0, 1)
