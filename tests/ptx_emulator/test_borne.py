"""What GPUs bear is not reported unless `strict` names it, and what stands beside it is a fault (`races.borne`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from async_source import PRELUDE
from cuda_source import buffer, line_of
from faults import fault, run, words

from ptx_emulator.errors import Fault
from ptx_emulator.memory import Buffer
from ptx_emulator.races.borne import (
    ALL,
    DEAD_READS,
    EQUAL_STORES,
    EXIT_READS,
    INIT_FENCE,
    LATE_COMMIT,
    LIST,
    NO_INVAL,
    REINIT,
    TWO_PLACES,
    chosen,
)
from ptx_emulator.schedule import ASCENDING, DESCENDING, Schedule
from ptx_emulator.tensor_map import MalformedMap, TensorMap, decode, replaced

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
    fault(source.replace("VALUE", EQUAL), buffer("out", words(64)), kind="race", marker="// store", strict=True)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("source", [STORES, WITH_MBARRIER])
def test_different_values_in_one_store_are_a_race(source: str, compiled: bool):
    sentence = fault(
        source.replace("VALUE", DIFFERENT), buffer("out", words(64)), kind="race", marker="// store", compiled=compiled
    )
    assert "writes the same shared bytes in the same instruction" in sentence


# Threads t and t + 32 store a VALUE to one place, the second warp later than the first.
LATER = """
extern "C" __global__ void k(unsigned* out) {
  __shared__ unsigned s[64];
  unsigned v = threadIdx.x;
#pragma unroll 1
  for (unsigned i = 0; i < threadIdx.x / 32 * 9; ++i) v = v * 5 + 1;
  PLACE[threadIdx.x % 32] = VALUE;  // store
  __syncthreads();
  out[64 + threadIdx.x] = PLACE[threadIdx.x % 32] + (v == 7777777);
}"""


@pytest.mark.parametrize("place", ["s", "out"])
@pytest.mark.parametrize("compiled", [False, True])
def test_one_store_that_warps_come_to_at_different_times(place: str, compiled: bool):
    source = LATER.replace("PLACE", place)
    out = words(128)
    run(source.replace("VALUE", EQUAL), buffer("out", out), compiled=compiled)
    assert (out[64:] == np.arange(64) % 32 + 5).all()
    for value, strict in ((EQUAL, {EQUAL_STORES}), (DIFFERENT, ())):
        changed = source.replace("VALUE", value)
        fault(changed, buffer("out", words(128)), kind="race", marker="// store", strict=strict, compiled=compiled)


def test_equal_values_in_two_stores_or_of_two_blocks_are_a_race():
    source = """
extern "C" __global__ void k(unsigned* out) {
  if (threadIdx.x < 32) asm volatile("st.global.u32 [%0], 1;" :: "l"(out) : "memory");
  else asm volatile("st.global.b32 [%0], 1;" :: "l"(out) : "memory");
}"""
    with pytest.raises(Fault) as raised:
        run(source, buffer("out", words(1)))
    assert raised.value.kind == "race"
    one = 'extern "C" __global__ void k(unsigned* out) {\n  out[0] = 1;  // store\n}'
    run(one, buffer("out", words(1)))
    with pytest.raises(Fault, match="that block"):
        run(one, buffer("out", words(1)), grid=2)


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
    sentence = fault(REPLICAS, buffer("x", words(32)), kind="race", marker="// store", compiled=compiled, strict=True)
    assert f"several threads of its block read at {line_of(REPLICAS, '// load')}" in sentence


# All threads load what threads of the first warp then store, and USE what they loaded.
USED = """
extern "C" __global__ void k(unsigned* x, unsigned* out) {
  __shared__ unsigned s[64];
  unsigned v;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(x + threadIdx.x % 32));
  if (threadIdx.x < 32) x[threadIdx.x] = v + 1;  // store
  USE
}"""


@pytest.mark.parametrize("use", [
    "out[threadIdx.x] = v;",
    "if (v) out[threadIdx.x] = 7;",
    "atomicAdd(&out[0], v);",
    "v += __shfl_xor_sync(~0u, v, 1); out[threadIdx.x] = v;",
    "s[threadIdx.x] = v; __syncthreads(); out[threadIdx.x] = s[threadIdx.x ^ 32];",
    "x[v + 32 + threadIdx.x / 32 * 32] = 3;",
])  # fmt: skip
def test_what_others_read_may_reach_no_byte(use: str):
    x, out = np.arange(96, dtype=np.uint32), words(64)
    with pytest.raises(Fault) as raised:
        run(USED.replace("USE", use), buffer("x", x), buffer("out", out))
    assert raised.value.kind == "race" and raised.value.where == line_of(USED, "// store")


@pytest.mark.parametrize("use", [
    "if (threadIdx.x < 32) out[threadIdx.x] = v;",  # of the first warp, whose own it is
    "v += __shfl_xor_sync(~0u, v, 1); if (threadIdx.x < 32) out[threadIdx.x] = v;",
    "__syncthreads(); out[threadIdx.x] = x[threadIdx.x % 32];",
])  # fmt: skip
def test_what_others_read_and_do_not_use_is_borne(use: str):
    x, out = np.arange(96, dtype=np.uint32), words(64)
    source = USED.replace("USE", use)
    run(source, buffer("x", x), buffer("out", out))
    assert (x[:32] == np.arange(32) + 1).all() and (x[32:] == np.arange(32, 96)).all()
    assert out[:32].any()
    fault(source, buffer("x", x), buffer("out", out), kind="race", marker="// store", strict={DEAD_READS})


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
        run(COPY, *arguments, strict={INIT_FENCE})
    with pytest.raises(Fault, match=r"uses the mbarrier that .* with no barrier between"):
        run(
            COPY.replace("  __syncthreads();\n", "", 1).replace(
                "if (!threadIdx.x) { expect", "if (threadIdx.x == 32) { expect"
            ),
            *arguments,
        )
    run(COPY.replace("// init", "if (!threadIdx.x) fence();"), *arguments, strict={INIT_FENCE})


def test_a_block_that_exits_with_its_mbarriers():
    arguments = Buffer("in", np.arange(64, dtype=np.uint8)), Buffer("out", np.zeros(64, np.uint8))
    with pytest.raises(Fault, match=r"is valid when its block exits: no mbarrier\.inval ends it"):
        run(COPY, *arguments, strict={NO_INVAL})
    ends = """
  __syncthreads();
  if (!threadIdx.x) asm volatile("mbarrier.inval.shared::cta.b64 [%0];" :: "r"(at(&bar)) : "memory");
}"""
    run(COPY.rstrip().removesuffix("}") + ends, *arguments, strict={NO_INVAL})


AGAIN = COPY.replace("// init", "BETWEEN if (!threadIdx.x) init(bar, 1);")


def test_an_mbarrier_that_nobody_used_is_initialised_again():
    arguments = Buffer("in", np.arange(64, dtype=np.uint8)), Buffer("out", np.zeros(64, np.uint8))
    for between in ("", "__syncthreads();"):
        run(AGAIN.replace("BETWEEN", between), *arguments)
        with pytest.raises(Fault, match="with no mbarrier.inval between"):
            run(AGAIN.replace("BETWEEN", between), *arguments, strict={REINIT})
    used = AGAIN.replace("BETWEEN", "if (!threadIdx.x) arrive(bar);")
    with pytest.raises(Fault, match="with no mbarrier.inval between"):
        run(used, *arguments)
    with pytest.raises(Fault, match="with no barrier between"):
        run(AGAIN.replace("BETWEEN if (!threadIdx.x)", "if (threadIdx.x == 32)"), *arguments)


STORES_TWICE = (
    PRELUDE
    + """
extern "C" __global__ void k(u8* out) {
  __shared__ alignas(128) u8 s[2][64];
  s[0][threadIdx.x] = threadIdx.x; s[1][threadIdx.x] = threadIdx.x + OTHER;
  fence(); __syncthreads();
  if (threadIdx.x % 32 == 0) { store(out, s[threadIdx.x / 32], 64); commit(); wait_read<0>(); }
  __syncthreads();
}"""
)


def test_two_copies_of_equal_bytes():
    out = np.zeros(64, np.uint8)
    run(STORES_TWICE.replace("OTHER", "0"), Buffer("out", out))
    assert (out == np.arange(64)).all()
    for other, strict in (("1", ()), ("0", {EQUAL_STORES})):
        with pytest.raises(Fault, match="copies to global bytes"):
            run(STORES_TWICE.replace("OTHER", other), Buffer("out", out), strict=strict)


def meets(body: str, block: int = 64, **options) -> np.ndarray:
    """Each thread stores its number to s, runs the code, which meets, and loads the number of thread t ^ 32."""
    source = f"""
extern "C" __global__ void k(unsigned* out) {{
  __shared__ unsigned s[{block}];
  const unsigned t = threadIdx.x, warp = t / 32;
  s[t] = t;
  {body}
}}"""
    out = words(block)
    run(source, buffer("out", out), block=block, **options)
    return out


READS = "out[t] = s[t ^ 32];"


@pytest.mark.parametrize("schedule", [ASCENDING, DESCENDING, Schedule(seed=1), Schedule(seed=2)])
def test_whole_warps_meet_from_two_places(schedule: Schedule):
    both = f"if (warp == 0) {{ __syncthreads(); {READS} }} else {{ __syncthreads(); s[0] = 0; {READS} }}"
    with pytest.raises(Fault, match="one instruction for the whole block"):
        meets(both.replace("s[0] = 0;", "out[t] = 1;"), strict={TWO_PLACES}, schedule=schedule)
    found = meets(both.replace("s[0] = 0;", "out[t] = 1;"), schedule=schedule)
    assert (found == np.arange(64) ^ 32).all()
    with pytest.raises(Fault) as raised:  # it meets, and orders no more than that
        meets(both, schedule=schedule)
    assert raised.value.kind == "race"
    early = "if (warp == 0) { __syncthreads(); out[t] = 1; return; } __syncthreads(); out[t] = 2; __syncthreads();"
    meets(f"{early} {READS}", schedule=schedule)


@pytest.mark.parametrize("body", [
    f"if (t % 2) {{ __syncthreads(); out[t] = 1; }} else {{ __syncthreads(); {READS} }}",  # lanes of one warp
    f"if (warp == 0) __syncthreads(); out[t] = 1; __syncthreads(); {READS}",  # some pass one more
    f"for (unsigned i = 0; i <= warp; ++i) {{ out[t] = i; __syncthreads(); }} {READS} __syncthreads(); out[t] += 1;",
    f"if (warp == 0) __syncthreads(); else asm volatile(\"bar.sync 1;\"); {READS}",  # another barrier
])  # fmt: skip
@pytest.mark.parametrize("schedule", [ASCENDING, DESCENDING, Schedule(seed=1)])
def test_a_barrier_that_only_some_threads_reach(body: str, schedule: Schedule):
    with pytest.raises(Fault) as raised:
        meets(body.replace("for (", "\n#pragma unroll 1\n  for ("), schedule=schedule)
    assert raised.value.kind == "divergent_barrier"


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


def test_names_of_the_list():
    assert chosen(True) == ALL and chosen(False) == frozenset()
    with pytest.raises(ValueError, match="no entry of the list is 'fence'"):
        chosen(["fence"])


def test_the_list_is_that_of_the_docs():
    page = (Path(__file__).parents[2] / "docs" / "emulator_checks.md").read_text()
    rows = page.partition("\n## What GPUs bear\n")[2].splitlines()
    assert [line for line in rows if line.startswith("| `")] == [each.row for each in LIST]


def test_a_commit_that_nobody_waits_for_may_come_after_its_mbarrier_ends():
    """A later commit of the same thread tells that it came."""
    tensor = (Path(__file__).parents[2] / "evidence" / "museum" / "exhibits" / "tensor_memory.cuh").read_text()
    source = (
        PRELUDE
        + tensor.replace('#include "asynchronous.cuh"', "")
        + """
extern "C" __global__ void k(unsigned* out) {
  __shared__ alignas(1024) u16 s[128 * 64]; __shared__ u64 bar, last; __shared__ u32 where;
  for (u32 i = threadIdx.x; i < 128 * 64; i += 32) s[i] = 0;
  allocate(&where, 32);
  if (!threadIdx.x) { init(bar, 1); init(last, 1); }
  fence(); __syncthreads();
  if (!threadIdx.x) {
    multiply(where, s, s); arrive_when_done(bar); arrive_when_done(last);
    FIRST inval(bar);  // ends
    wait(last, 0);
  }
  __syncthreads();
  deallocate(where, 32);
}"""
    )
    run(source.replace("FIRST", ""), buffer("out", words(1)), block=32, arch="sm_100a")
    for told in ("wait(bar, 0);", "wait(last, 0);"):
        run(source.replace("FIRST", told), buffer("out", words(1)), block=32, arch="sm_100a", strict={LATE_COMMIT})
    late = source.replace("FIRST", "")
    with pytest.raises(Fault, match="tcgen05.commit.* uses: no thread that waited for phase 0 let this one know"):
        run(late, buffer("out", words(1)), block=32, arch="sm_100a", strict={LATE_COMMIT})


def test_a_block_may_exit_while_its_copy_reads_from_blackwell_on():
    source = (
        PRELUDE
        + """
extern "C" __global__ void k(unsigned* out) {
  __shared__ alignas(128) unsigned s[64];
  s[threadIdx.x] = threadIdx.x;
  fence(); __syncthreads();
  if (!threadIdx.x) {
    store(out, s, 256); commit();
    WAIT
  }
}"""
    )
    for text, strict in (("", False), ("wait_read<0>();", {EXIT_READS})):
        out = words(64)
        run(source.replace("WAIT", text), buffer("out", out), arch="sm_100a", strict=strict)
        assert (out == np.arange(64)).all()
    for arch, strict in (("sm_90a", False), ("sm_100a", {EXIT_READS})):
        with pytest.raises(Fault, match="exits while this copy may still read its block's shared memory") as found:
            run(source.replace("WAIT", ""), buffer("out", words(64)), arch=arch, strict=strict)
        assert found.value.kind == "race"
