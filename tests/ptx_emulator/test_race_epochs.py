"""What orders accesses stays right over many barriers, whichever of the two paths makes which access."""

from __future__ import annotations

import numpy as np
import pytest
from both_paths import both, numpy_alone, outcome
from cuda_source import ptx
from ptx_snippets import kernel
from test_races import LAST

from ptx_emulator.launches import Module

# Every round stores to a word and loads another lane's. In round 7 the barrier before or behind the load may lack. A
# third warp, if there is one, exits at once, which leaves the others to run under a mask.
ROUNDS = """ .shared .align 4 .b8 s[256]; mov.u32 %r0, %tid.x; setp.ge.u32 %p3, %r0, 64; @%p3 ret; mov.u32 %r1, s;
 shl.b32 %r2, %r0, 2; add.u32 %r3, %r1, %r2; xor.b32 %r4, %r2, OTHER; add.u32 %r4, %r1, %r4; mov.u32 %r5, 0;
 mov.u32 %r6, 0;
$round: STORE [%r3], %r5;
 setp.eq.u32 %p1, %r5, BEFORE; @%p1 bra $load; SYNC
$load: LOAD %r7, [%r4];
 add.u32 %r6, %r6, %r7; setp.eq.u32 %p1, %r5, BEHIND; @%p1 bra $next; SYNC
$next: add.u32 %r5, %r5, 1; setp.lt.u32 %p0, %r5, 20; @%p0 bra $round;
 ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r0, 4, %rd0; st.global.u32 [%rd1], %r6;
"""
SYNC = {
    "__syncthreads": "bar.sync 0;",
    "__syncwarp": "bar.warp.sync 0xFFFFFFFF;",
    "shuffle": "shfl.sync.bfly.b32 %r8, %r0, 1, 31, -1;",
    "vote by numpy": "vote.sync.uni.pred %p2, %p1, -1;",
}
PATHS = {"compiled": "", "numpy": ".volatile"}  # a volatile access is left to its NumPy step


@pytest.mark.sweep
@pytest.mark.parametrize("block", [64, 96])
@pytest.mark.parametrize("missing", ["", "BEFORE", "BEHIND"])
@pytest.mark.parametrize("sync", SYNC)
@pytest.mark.parametrize("load", PATHS)
@pytest.mark.parametrize("store", PATHS)
def test_a_barrier_orders_every_round(store: str, load: str, sync: str, missing: str, block: int) -> None:
    for other in (1, 32):
        text = ROUNDS.replace("STORE", f"st{PATHS[store]}.shared.u32").replace("LOAD", f"ld{PATHS[load]}.shared.u32")
        text = text.replace("SYNC", SYNC[sync]).replace("OTHER", str(4 * other))
        for place in ("BEFORE", "BEHIND"):
            text = text.replace(place, "7" if place == missing else "99")
        got = both(Module(kernel(text, 1)), {"out": np.zeros(64, np.uint32)}, block=block)
        fine = not missing and (other < 32 or sync == "__syncthreads")
        assert (got.fault and got.fault[0]) == (None if fine else "race")
        if fine:
            assert (got.arrays["out"] == sum(range(20))).all()


ONE_WARP = """ .shared .align 4 .b8 s[256]; mov.u32 %r0, %tid.x; mov.u32 %r1, s; shl.b32 %r2, %r0, 2;
 add.u32 %r2, %r1, %r2; xor.b32 %r3, %r2, 4; setp.ge.u32 %p0, %r0, 32; st.shared.u32 [%r2], %r0; @%p0 bra $over; SYNC
$over: LOAD %r4, [%r3];"""


@pytest.mark.parametrize("load", PATHS)
@pytest.mark.parametrize("sync", ["__syncwarp", "shuffle", "vote by numpy"])
def test_a_barrier_of_one_warp_orders_no_other(sync: str, load: str) -> None:
    text = ONE_WARP.replace("SYNC", SYNC[sync]).replace("LOAD", f"ld{PATHS[load]}.shared.u32")
    got = both(Module(kernel(text, 0)), {})
    assert got.fault and got.fault[0] == "race"
    assert "thread (33, 0, 0) wrote" in got.fault[1] and "thread (32, 0, 0)" in got.fault[1]
    assert both(Module(kernel(text.replace("@%p0 bra $over;", ""), 0)), {}).fault is None


# All lanes read one word; the last to do so, whose tag alone would be kept, overwrites it.
BROADCAST = """ .shared .align 4 .b8 s[4]; mov.u32 %r0, %tid.x; mov.u32 %r1, 0; setp.eq.u32 %p0, %r0, WRITER;
$round: @%p0 st.shared.u32 [s], %r1; bar.sync 0; LOAD %r2, [s]; SYNC
 add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 5; @%p1 bra $round;"""


@pytest.mark.parametrize("load", PATHS)
@pytest.mark.parametrize(
    "block, sync, races",
    [(32, "", True), (32, "__syncwarp", False), (64, "__syncwarp", True), (64, "shuffle", True),
     (96, "__syncthreads", False), (1, "", False)],
)  # fmt: skip
@pytest.mark.parametrize("writer", ["first", "last"])
def test_all_readers_of_a_word_are_remembered(load: str, block: int, sync: str, races: bool, writer: str) -> None:
    text = BROADCAST.replace("WRITER", "0" if writer == "first" else str(block - 1)).replace("SYNC", SYNC.get(sync, ""))
    text = Module(kernel(text.replace("LOAD", f"ld{PATHS[load]}.shared.u32"), 0))
    assert bool(both(text, {}, block=block).fault) == races


@pytest.mark.parametrize("lanes", [64, 1 << 14])
@pytest.mark.parametrize("fence", ["__threadfence();", ""])
def test_fences_and_atomics_between_blocks(fence: str, lanes: int) -> None:
    """Stores by the compiled interpreter, fences and atomics by NumPy steps, over a hundred blocks."""
    text = ptx(LAST % fence)
    arrays = {"in": np.zeros(6400, np.uint32), "partial": np.zeros(200, np.uint32), "out": np.zeros(1, np.uint32)}
    fast = outcome(Module(text), arrays, 100, 64, lanes=lanes)
    with numpy_alone():
        plain = outcome(Module(text), arrays, 100, 64, lanes=lanes)
    assert fast.fault == plain.fault and fast.counters == plain.counters
    if fence:
        assert fast.arrays["out"] == plain.arrays["out"] == 99 * 100 // 2
    else:
        assert fast.fault and fast.fault[0] == "race"
