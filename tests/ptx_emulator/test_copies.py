"""`cp.async`: what it reads, when it writes, and the races of a pipeline without a barrier."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_source import buffer, line_of, module
from ptx_snippets import kernel, run

from ptx_emulator.errors import Fault
from ptx_emulator.launches import launch

pytestmark = pytest.mark.covers("cp.async.")

COPY = """ mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; shl.b32 %r1, %r0, 4;
 .shared .align 16 .b8 s[1024]; mov.u32 %r2, s; add.u32 %r3, %r2, %r1; cvt.u64.u32 %rd3, %r1; add.u64 %rd4, %rd0, %rd3;
 add.u64 %rd5, %rd1, %rd3;
"""
OUT = " ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r3]; st.global.v4.u32 [%rd5], {%r10, %r11, %r12, %r13};"
WAIT = " cp.async.wait_all;"


@pytest.mark.parametrize("wait", ["cp.async.wait_all;", "cp.async.commit_group; cp.async.wait_group 0;"])
@pytest.mark.parametrize("kind", ["ca.shared.global", "cg.shared.global", "cg.shared::cta.global.L2::128B"])
def test_asynchronous_copy(kind: str, wait: str) -> None:
    source, out = np.random.default_rng(0).integers(0, 256, 512, dtype=np.uint8), np.zeros(512, np.uint8)
    run(kernel(COPY + f" cp.async.{kind} [%r3], [%rd4], 16;\n {wait}" + OUT, 2), {"in": source, "out": out})
    assert (out == source).all()


@pytest.mark.parametrize("size", [4, 8, 16])
def test_asynchronous_copy_with_a_short_source(size: int) -> None:
    source, out = np.random.default_rng(size).integers(1, 256, 512, dtype=np.uint8), np.zeros(512, np.uint8)
    short = " st.shared.v4.u32 [%r3], {%r1, %r1, %r1, %r1};" if size < 16 else ""
    short += f" rem.u32 %r4, %r0, {size + 3}; cp.async.ca.shared.global [%r3], [%rd4], {size}, %r4;"
    run(kernel(COPY + short + WAIT + OUT, 2), {"in": source, "out": out})
    wanted = np.arange(size)[None, :] < (np.arange(32) % (size + 3))[:, None]
    assert (out.reshape(32, 16)[:, :size] == np.where(wanted, source.reshape(32, 16)[:, :size], 0)).all()


def test_bytes_that_are_not_used_need_not_exist() -> None:
    """Threads 0 to 9 copy 16 bytes, thread 10 the last 8 of the buffer, and the others none from beyond its end."""
    source, out = np.arange(168, dtype=np.uint8), np.full(512, 0xFF, np.uint8)
    short = " sub.s32 %r4, 168, %r1; max.s32 %r4, %r4, 0; min.s32 %r4, %r4, 16;"
    copy = " cp.async.cg.shared.global [%r3], [%rd4], 16, %r4;"
    counters = run(kernel(COPY + short + copy + WAIT + OUT, 2), {"in": source, "out": out})
    assert (out == np.pad(source, (0, 512 - 168))).all()
    assert counters.global_bytes_read == 168 and counters.shared_requests == 2
    with pytest.raises(Fault, match="reads 16 bytes at byte 160 of buffer 'in', which has 168 bytes"):
        run(kernel(COPY + copy.replace(", %r4", "") + WAIT + OUT, 2), {"in": source, "out": out})


def test_a_source_to_ignore_need_not_exist() -> None:
    source, out = np.arange(160, dtype=np.uint8), np.full(512, 0xFF, np.uint8)
    copy = " setp.ge.u32 %p0, %r0, 10; cp.async.cg.shared.global [%r3], [%rd4], 16, %p0;"
    run(kernel(COPY + copy + WAIT + OUT, 2), {"in": source, "out": out})
    assert (out == np.pad(source, (0, 512 - 160))).all()


def test_a_short_source_is_aligned_all_the_same() -> None:
    copy = " add.u64 %rd4, %rd4, 8; cp.async.cg.shared.global [%r3], [%rd4], 16, 8;"
    with pytest.raises(Fault, match="not a multiple of 16") as caught:
        run(kernel(COPY + copy + WAIT + OUT, 2), {"in": np.zeros(512, np.uint8), "out": np.zeros(512, np.uint8)})
    assert caught.value.kind == "misaligned"


def test_a_copy_that_is_not_waited_for_has_not_arrived() -> None:
    arrays = {"in": np.ones(512, np.uint8), "out": np.zeros(512, np.uint8)}
    with pytest.raises(Fault, match="which a cp.async not yet waited for will write") as caught:
        run(kernel(COPY + " cp.async.cg.shared.global [%r3], [%rd4], 16; cp.async.commit_group;" + OUT, 2), arrays)
    assert caught.value.kind == "unwritten_read"
    older = " cp.async.cg.shared.global [%r3], [%rd4], 16; cp.async.commit_group; cp.async.commit_group;"
    run(kernel(COPY + older + " cp.async.wait_group 1;" + OUT, 2), arrays)
    assert (arrays["out"] == 1).all()


COPIES = " cp.async.cg.shared.global [%r3], [%rd4], 16; cp.async.commit_group;"


@pytest.mark.parametrize(
    "then", [" st.shared.u32 [%r3], %r0;", " st.shared.v4.u32 [%r3], {%r0, %r0, %r0, %r0};", COPIES], ids=str
)
def test_a_store_where_a_copy_may_still_write_is_a_race(then: str) -> None:
    """Any later write by any thread is a race until the copy's thread has waited: nothing orders a copy and a store."""
    arrays = {"in": np.ones(512, np.uint8), "out": np.zeros(512, np.uint8)}
    wait = " cp.async.wait_group 0;"
    with pytest.raises(Fault, match="where a cp.async not yet waited for may still write") as caught:
        run(kernel(COPY + COPIES + then + wait + OUT, 2), arrays)
    assert caught.value.kind == "race"
    run(kernel(COPY + COPIES + wait + then + wait + OUT, 2), arrays)


def test_a_store_of_another_thread_behind_a_barrier_is_one_too() -> None:
    """The barrier orders the threads, not the copy, which only its own thread can await."""
    arrays = {"in": np.ones(512, np.uint8), "out": np.zeros(512, np.uint8)}
    other = " xor.b32 %r3, %r3, 16; bar.sync 0; st.shared.u32 [%r3], %r0; bar.sync 0;"
    with pytest.raises(Fault, match="where a cp.async not yet waited for may still write"):
        run(kernel(COPY + COPIES + other + " cp.async.wait_group 0;" + OUT, 2), arrays)
    run(kernel(COPY + COPIES + " cp.async.wait_group 0;" + other + OUT, 2), arrays)


def test_groups_are_each_threads_own() -> None:
    """Even threads commit once more, so that only theirs is not among the latest groups."""
    body = COPY + " and.b32 %r4, %r0, 1; setp.eq.u32 %p0, %r4, 0; cp.async.cg.shared.global [%r3], [%rd4], 16;"
    body += " cp.async.commit_group; @%p0 cp.async.commit_group; cp.async.wait_group 1;\n @%p0 bra $read;"
    body += " cp.async.wait_group 0;\n$read:" + OUT
    arrays = {"in": np.ones(512, np.uint8), "out": np.zeros(512, np.uint8)}
    run(kernel(body, 2), arrays)
    assert (arrays["out"] == 1).all()
    with pytest.raises(Fault, match=r"not yet waited for .* thread \(1, 0, 0\)"):
        run(kernel(body.replace(" cp.async.wait_group 0;", ""), 2), arrays)


def test_waiting_is_each_threads_own() -> None:
    body = COPY + " setp.lt.u32 %p0, %r0, 7; cp.async.cg.shared.global [%r3], [%rd4], 16;"
    body += " cp.async.commit_group; @%p0 cp.async.wait_group 0;"
    arrays = {"in": np.ones(512, np.uint8), "out": np.zeros(512, np.uint8)}
    with pytest.raises(Fault, match=r"not yet waited for .* thread \(7, 0, 0\)"):
        run(kernel(body + OUT, 2), arrays)
    run(kernel(body + " @!%p0 bra $end;" + OUT + "\n$end:", 2), arrays)
    assert arrays["out"].sum() == 7 * 16


PIPELINE = """
__device__ void copy(unsigned* to, const unsigned* from) {
  const unsigned at = __cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from));  // copy
}
extern "C" __global__ void k(const unsigned* in, unsigned* out, int turns) {
  __shared__ __align__(16) unsigned s[2][256];
  const int t = threadIdx.x, mine = 4 * t;
  turns += blockIdx.x;
  copy(s[0] + mine, in + mine);
  asm volatile("cp.async.commit_group;");
  unsigned sum = 0;
#pragma unroll 1
  for (int i = 0; i < turns; ++i) {
    EARLY
    asm volatile("cp.async.wait_group WAIT;" ::: "memory");
    ARRIVED
    LATE
    sum += s[i % 2][255 - t] * (i + 1);  // read
    DONE
  }
  out[blockIdx.x * 64 + t] = sum;
}
"""
NEXT = """if (i + 1 < turns) copy(s[(i + 1) % 2] + mine, in + (i + 1) * 256 + mine);
    asm volatile("cp.async.commit_group;");"""
BARRIER = "__syncthreads();"


def pipeline(**parts: str) -> str:
    source = PIPELINE
    for name in ("EARLY", "ARRIVED", "LATE", "DONE", "WAIT"):
        source = source.replace(name, parts.get(name.lower(), ""))
    return source


def summed(source: str, turns: int = 3) -> np.ndarray:
    """Three blocks, each with one iteration more than the last."""
    data = np.arange(256 * (turns + 2), dtype=np.uint32)
    out = np.zeros(192, np.uint32)
    launch(module(source), "k", (3, 1, 1), (64, 1, 1), [buffer("in", data), buffer("out", out), turns])
    last = data.reshape(-1, 256)[:, 255:191:-1]
    wanted = [sum(last[i] * (i + 1) for i in range(turns + block)) for block in range(3)]
    assert (out.reshape(3, 64) == np.array(wanted)).all()
    return out


def test_pipelines_of_blocks_with_different_lengths() -> None:
    summed(pipeline(early=NEXT, wait="1", arrived=BARRIER, done=BARRIER))
    summed(pipeline(late=NEXT, wait="0", arrived=BARRIER))


def caught(source: str) -> Fault:
    with pytest.raises(Fault) as caught:
        summed(source)
    return caught.value


def test_waiting_for_one_copy_too_few() -> None:
    source = pipeline(early=NEXT, wait="2", arrived=BARRIER, done=BARRIER)
    error = caught(source)
    assert (error.kind, error.where) == ("unwritten_read", line_of(source, "// read"))


def test_no_barrier_after_the_wait() -> None:
    """A copy is visible to the thread that waited for it, and to no other."""
    source = pipeline(late=NEXT, wait="0", done=BARRIER)
    error = caught(source)
    assert (error.kind, error.where) == ("race", line_of(source, "// read"))


def test_a_copy_starts_while_others_still_read() -> None:
    """A barrier between the start and the wait does not order a copy, which may be stored before it."""
    source = pipeline(early=NEXT, wait="1", arrived=BARRIER)
    error = caught(source)
    assert (error.kind, error.where) == ("race", line_of(source, "// copy"))
    assert "read the same shared bytes" in error.sentence
