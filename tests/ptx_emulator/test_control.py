"""Branches, loops, exits, barriers and special registers."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_source import ARCHES, buffer, module
from ptx_snippets import kernel, run

from ptx_emulator.errors import Fault, LaunchError
from ptx_emulator.launches import Module, launch

pytestmark = pytest.mark.covers(
    "bra",
    "brx.idx",
    "ret",
    "exit",
    "trap",
    "bar.",
    "barrier.",
    "membar.",
    "fence.",
    "prefetch.",
    "nanosleep.",
    "griddepcontrol.",
)

THREAD = """ mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r0, 4, %rd0;
"""


def threads(body: str, block: int = 64, **options) -> np.ndarray:
    """The words that 64 threads store at [%rd1]."""
    out = np.zeros(block, np.uint32)
    run(kernel(THREAD + body, 1), {"out": out}, block=block, **options)
    return out


@pytest.mark.parametrize("arch", ARCHES)
def test_nested_divergent_loops(arch: str) -> None:
    source = """
extern "C" __global__ void k(unsigned* out) {
  unsigned v = 0;
#pragma unroll 1
  for (unsigned i = 0; i < threadIdx.x % 7; ++i) {
    if ((threadIdx.x >> 2 & 1) && i == 3) continue;
#pragma unroll 1
    for (unsigned j = i; j < 5; ++j) {
      if (j == threadIdx.x % 4) break;
      v = v * 3 + j;
    }
    if (v > 500) { out[threadIdx.x] = 1; return; }
  }
  out[threadIdx.x] = v;
}"""
    out = np.zeros(96, np.uint32)
    launch(module(source, arch), "k", (1, 1, 1), (96, 1, 1), [buffer("out", out)])

    def one(thread: int) -> int:
        v = 0
        for i in range(thread % 7):
            if thread >> 2 & 1 and i == 3:
                continue
            for j in range(i, 5):
                if j == thread % 4:
                    break
                v = v * 3 + j
            if v > 500:
                return 1
        return v

    assert out.tolist() == [one(thread) for thread in range(96)]


def test_indexed_branch() -> None:
    body = """ and.b32 %r1, %r0, 3; mov.u32 %r2, 9; ts: .branchtargets $a, $b, $c, $b;
 brx.idx %r1, ts;
$a: add.u32 %r2, %r2, 100;
$b: add.u32 %r2, %r2, 10;
$c: add.u32 %r2, %r2, 1;
 st.global.u32 [%rd1], %r2;"""
    assert threads(body).tolist() == [[120, 20, 10, 20][i % 4] for i in range(64)]


def test_guarded_exit_and_ret() -> None:
    body = """ setp.lt.u32 %p0, %r0, 5; @%p0 exit; setp.gt.u32 %p1, %r0, 60; mov.u32 %r2, 1; @!%p1 bra $on; ret;
$on: st.global.u32 [%rd1], %r2;"""
    assert np.flatnonzero(threads(body)).tolist() == list(range(5, 61))


def test_guard_all_lanes_share() -> None:
    body = """ mov.u32 %r1, %ntid.x; setp.eq.u32 %p0, %r1, 64; mov.u32 %r2, 1; @%p0 mov.u32 %r2, 2; @!%p0 mov.u32 %r2,
    3;
 @!%p0 bra $end; st.global.u32 [%rd1], %r2;
$end:"""
    assert (threads(body) == 2).all() and not threads(body, block=32).any()


def test_guarded_result_keeps_its_old_value() -> None:
    # %r2 is live before the guarded move only in lanes whose guard is false.
    body = (
        " mov.u32 %r2, 5; add.u32 %r3, %r2, 1; setp.lt.u32 %p0, %r0, 9; @%p0 mov.u32 %r2, 6; st.global.u32 [%rd1], %r2;"
    )
    assert threads(body).tolist() == [6] * 9 + [5] * 55


def test_value_from_before_a_divergent_loop_survives_it() -> None:
    body = """ mul.lo.u32 %r5, %r0, 3; mov.u32 %r2, 0;
$loop: add.u32 %r2, %r2, 1; mul.lo.u32 %r6, %r2, %r5; setp.lt.u32 %p0, %r2, %r0; @%p0 bra $loop;
 add.u32 %r7, %r6, %r5; st.global.u32 [%rd1], %r7;"""
    thread = np.arange(64)
    assert (threads(body) == 3 * thread * np.maximum(thread, 1) + 3 * thread).all()


def test_special_registers() -> None:
    names = [f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"]
    names += ["%laneid", "%warpid", *(f"%lanemask_{m}" for m in ("eq", "lt", "le", "gt", "ge")), "%nwarpid"]
    names += ["%dynamic_smem_size", "%total_smem_size"]
    body = """ mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z; mov.u32 %r3, %ctaid.x; mov.u32 %r4,
    %ctaid.y; mov.u32 %r5, %ctaid.z;
 mad.lo.u32 %r5, %r5, 2, %r4; mad.lo.u32 %r5, %r5, 3, %r3; mad.lo.u32 %r5, %r5, 3, %r2; mad.lo.u32 %r5, %r5, 4, %r1;
 mad.lo.u32 %r5, %r5, 5, %r0; ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r5, 96, %rd0;
""" + "\n".join(f" mov.u32 %r6, {name}; st.global.u32 [%rd1+{4 * i}], %r6;" for i, name in enumerate(names))
    out = np.zeros((2, 2, 3, 3, 4, 5, 24), np.uint32)
    text = kernel(body, 1)
    launch(Module(text), "k", (3, 2, 2), (5, 4, 3), [buffer("out", out)], dynamic_shared=48, lanes=128)
    for index in np.ndindex(out.shape[:-1]):
        block_z, block_y, block_x, z, y, x = index
        thread = (z * 4 + y) * 5 + x
        lane = thread % 32
        ones = 0xFFFFFFFF
        masks = [1 << lane, (1 << lane) - 1, (2 << lane) - 1, ones - ((2 << lane) - 1), ones - ((1 << lane) - 1)]
        wanted = [x, y, z, 5, 4, 3, block_x, block_y, block_z, 3, 2, 2, lane, thread // 32, *masks, 2, 48, 48]
        assert out[index][: len(names)].tolist() == wanted


@pytest.mark.parametrize("line, wanted", [
    ("bar.red.popc.u32 %r2, 0, %p0;", 21), ("bar.red.and.pred %p1, 0, %p0; selp.u32 %r2, 1, 0, %p1;", 0),
    ("bar.red.or.pred %p1, 0, %p0; selp.u32 %r2, 1, 0, %p1;", 1),
    ("barrier.cta.red.or.pred %p1, 0, %p0; selp.u32 %r2, 1, 0, %p1;", 1),
])  # fmt: skip
def test_barrier_reductions(line: str, wanted: int) -> None:
    out = threads(f" rem.u32 %r1, %r0, 3; setp.eq.u32 %p0, %r1, 1; {line} st.global.u32 [%rd1], %r2;")
    assert (out == wanted).all()


def test_barrier_reduction_counts_only_threads_that_live() -> None:
    body = """ setp.ge.u32 %p2, %r0, 50; @%p2 exit; setp.lt.u32 %p0, %r0, 60;
 bar.red.and.pred %p1, 0, %p0; bar.red.popc.u32 %r3, 0, %p0; selp.u32 %r2, 100, 0, %p1;
 add.u32 %r2, %r2, %r3; st.global.u32 [%rd1], %r2;"""
    assert (threads(body) == [150] * 50 + [0] * 14).all()


SPECIALISED = """ .shared .align 4 .b8 s[128]; shl.b32 %r1, %r0, 2; mov.u32 %r2, s; add.u32 %r3, %r2, %r1;
 setp.ge.u32 %p0, %r0, 32; @%p0 bra $consumer;
 st.shared.u32 [%r3], %r0;
 {arrive}
 bra $end;
$consumer: bar.sync 3, 64; xor.b32 %r4, %r1, 128; add.u32 %r5, %r2, %r4; ld.shared.u32 %r6, [%r5]; add.u32 %r6, %r6, 1;
st.global.u32 [%rd1], %r6;
$end:"""


@pytest.mark.parametrize("arrive", ["bar.arrive 3, 64;", "bar.sync 3, 64;", "barrier.cta.arrive 3, 64;"])
def test_warps_that_meet_at_a_counted_barrier(arrive: str) -> None:
    out = threads(SPECIALISED.replace("{arrive}", arrive))
    assert (out[32:] == np.arange(32) + 1).all() and not out[:32].any()


def test_counted_barrier_that_lacks_a_warp() -> None:
    with pytest.raises(Fault) as caught:
        threads(SPECIALISED.replace("{arrive}", ""))
    assert caught.value.kind == "divergent_barrier"


def test_an_arrival_counts_once() -> None:
    body = SPECIALISED.replace("bar.sync 3, 64;", "bar.sync 3, 64; bar.sync 4, 64; bar.sync 3, 64;")
    assert threads(body.replace("{arrive}", "bar.arrive 3, 64; bar.sync 4, 64; bar.arrive 3, 64;")).any()
    with pytest.raises(Fault) as caught:
        threads(body.replace("{arrive}", "bar.arrive 3, 64; bar.sync 4, 64;"))
    assert caught.value.kind == "divergent_barrier"


# Each half of the block has a barrier of its own, and the second half waits twice.
NUMBERED = """ shr.u32 %r1, %r0, 6; add.u32 %r1, %r1, 1; mov.u32 %r2, 0; {leave}
$again: bar.sync %r1, 64; add.u32 %r2, %r2, 1; setp.lt.u32 %p0, %r2, %r1; @%p0 bra $again;
 st.global.u32 [%rd1], %r2;"""


def test_barriers_whose_number_a_register_holds() -> None:
    assert threads(NUMBERED.replace("{leave}", ""), block=128).tolist() == [1] * 64 + [2] * 64
    with pytest.raises(Fault) as caught:  # a warp of each half waits, not two of one
        threads(NUMBERED.replace("{leave}", "and.b32 %r3, %r0, 32; setp.ne.u32 %p1, %r3, 0; @%p1 ret;"), block=128)
    assert caught.value.kind == "divergent_barrier"


def test_an_arrival_whose_number_a_register_holds() -> None:
    body = SPECIALISED.replace("{arrive}", "mov.u32 %r7, 3; bar.arrive %r7, 64;")
    assert (threads(body)[32:] == np.arange(32) + 1).all()
    with pytest.raises(Fault) as caught:
        threads(body.replace("mov.u32 %r7, 3;", "mov.u32 %r7, 4;"))
    assert caught.value.kind == "divergent_barrier"


def test_arrivals_with_different_numbers() -> None:
    body = """ shr.u32 %r1, %r0, 5; setp.ge.u32 %p0, %r1, 2; @%p0 bra $wait;
 and.b32 %r2, %r1, {mask}; add.u32 %r2, %r2, 3; bar.arrive %r2, 96; bra $end;
$wait: bar.sync 3, 96;
$end: st.global.u32 [%rd1], %r0;"""
    assert (threads(body.replace("{mask}", "0"), block=96) == np.arange(96)).all()
    with pytest.raises(Fault) as caught:
        threads(body.replace("{mask}", "1"), block=96)
    assert caught.value.kind == "divergent_barrier"


def test_a_barrier_of_the_whole_block_may_have_its_number_in_a_register() -> None:
    body = " shr.u32 %r1, %r0, 6; {0} st.global.u32 [%rd1], %r0;"
    assert threads(body.format("bar.sync %r1;")).tolist() == list(range(64))
    with pytest.raises(Fault, match="waits at bar.sync"):
        threads(body.format("shr.u32 %r1, %r0, 5; bar.sync %r1;"))
    with pytest.raises(Fault, match="meets at barrier 16"):
        threads(body.format("add.u32 %r1, %r1, 16; bar.sync %r1;"))


def test_counted_barrier_of_part_of_the_block() -> None:
    body = """ setp.ge.u32 %p0, %r0, 64; @%p0 bra $end; st.global.u32 [%rd1], %r0; barrier.sync 1, 64; mov.u32 %r1, 5;
    st.global.u32 [%rd1], %r1;
$end:"""
    assert threads(body, block=128).tolist() == [5] * 64 + [0] * 64


def test_barrier_between_divergent_halves_of_a_warp() -> None:
    # Both halves come to the same barrier at different times.
    body = """ and.b32 %r1, %r0, 1; setp.eq.u32 %p0, %r1, 0; mov.u32 %r2, 0; @%p0 bra $meet;
$loop: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r0; @%p1 bra $loop;
$meet: bar.sync 0; st.global.u32 [%rd1], %r2;"""
    assert threads(body).tolist() == [i if i % 2 else 0 for i in range(64)]


def test_shuffle_group_is_that_of_its_first_lane() -> None:
    # Lanes 0 to 7 arrive first and wait for all; 16 to 31 exit without arriving, then 8 to 15 arrive.
    body = """ setp.ge.u32 %p0, %r0, 16; @%p0 bra $late; setp.ge.u32 %p1, %r0, 8; @%p1 bra $longer;
$meet: shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1; st.global.u32 [%rd1], %r1; ret;
$late: st.global.u32 [%rd1], %r0; exit;
$longer: add.u32 %r2, %r0, 1; bra $meet;"""
    with pytest.raises(Fault, match="names lane") as caught:
        threads(body, block=32)
    assert caught.value.kind == "inactive_shuffle"


def test_warp_barrier_after_divergence() -> None:
    body = """ and.b32 %r1, %r0, 1; setp.eq.u32 %p0, %r1, 0; mov.u32 %r2, 7; @%p0 bra $even; add.u32 %r2, %r2, 1; bra
    $meet;
$even: add.u32 %r2, %r2, 2;
$meet: bar.warp.sync 0xFFFFFFFF; st.global.u32 [%rd1], %r2;"""
    assert threads(body).tolist() == [8 if i % 2 else 9 for i in range(64)]


def test_trap_and_falling_off_the_end() -> None:
    with pytest.raises(LaunchError, match="trapped"):
        threads(" setp.eq.u32 %p0, %r0, 3; @!%p0 bra $end; trap;\n$end:")


@pytest.mark.parametrize("line", ["membar.gl;", "membar.cta;", "membar.sys;", "fence.acq_rel.gpu;", "fence.sc.gpu;",
                                  "fence.acq_rel.sys;", "prefetch.global.L2 [%rd1];", "nanosleep.u32 20;",
                                  "griddepcontrol.wait;", "griddepcontrol.launch_dependents;"])  # fmt: skip
def test_instructions_that_change_no_value(line: str) -> None:
    assert (threads(f" {line} add.u32 %r1, %r0, 2; st.global.u32 [%rd1], %r1;") == np.arange(64) + 2).all()


def test_more_blocks_than_a_batch() -> None:
    source = (
        'extern "C" __global__ void k(unsigned* out) { out[blockIdx.x * 32 + threadIdx.x] = blockIdx.x * threadIdx.x; }'
    )
    for lanes in (32, 96, 1 << 14):
        out = np.zeros((37, 32), np.uint32)
        launch(module(source), "k", (37, 1, 1), (32, 1, 1), [buffer("out", out)], lanes=lanes)
        assert (out == np.arange(37)[:, None] * np.arange(32)).all()


def test_ticket_order_across_batches_is_the_block_order() -> None:
    source = """
extern "C" __global__ void k(unsigned* counter, unsigned* out) {
  if (threadIdx.x == 0) out[blockIdx.x] = atomicAdd(counter, 1u);
}"""
    counter, out = np.zeros(1, np.uint32), np.zeros(20, np.uint32)
    launch(module(source), "k", (20, 1, 1), (64, 1, 1), [buffer("c", counter), buffer("out", out)], lanes=192)
    assert out.tolist() == list(range(20)) and counter[0] == 20
