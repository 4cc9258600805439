"""Shuffles, votes and reductions give what their NumPy steps give, and only whole warps are compiled."""

from __future__ import annotations

import numpy as np
import pytest
from both_paths import Outcome, both
from ptx_snippets import kernel

from ptx_emulator.compiled.opcodes import REDUCTIONS, SHUFFLES, VOTES
from ptx_emulator.launches import Module

# The offset, the clamp and the membermask are registers, so that lanes may differ.
START = """ mov.u32 %r0, %tid.x; mul.wide.u32 %rd0, %r0, 4; mov.u32 %r9, 7; mov.pred %p2, 1;
 ld.param.u64 %rd1, [p0]; add.u64 %rd1, %rd1, %rd0; ld.global.u32 %r1, [%rd1]; and.b32 %r8, %r1, 64;
 ld.param.u64 %rd1, [p1]; add.u64 %rd1, %rd1, %rd0; ld.global.u32 %r2, [%rd1];
 ld.param.u64 %rd1, [p2]; add.u64 %rd1, %rd1, %rd0; ld.global.u32 %r3, [%rd1];
 ld.param.u64 %rd1, [p3]; add.u64 %rd1, %rd1, %rd0; ld.global.u32 %r4, [%rd1];
 setp.ne.u32 %p0, %r8, 0; setp.LANES; mul.lo.u32 %r7, %r0, 3; @!%p1 bra $out;
 LINE
$out: selp.u32 %r5, 1, 0, %p2; ld.param.u64 %rd1, [p4]; mad.wide.u32 %rd1, %r0, 8, %rd1;
 st.global.v2.u32 [%rd1], {%r9, %r5};
"""
LINES = {f"shfl {mode}": f"shfl.sync.{mode}.b32 %r9|%p2, %r1, %r2, %r3, %r4;" for mode in SHUFFLES}
LINES |= {f"shfl {mode} alone": f"shfl.sync.{mode}.b32 %r9, %r1, %r2, %r3, -1;" for mode in SHUFFLES}
LINES |= {"vote ballot": "vote.sync.ballot.b32 %r9, %p0, %r4;"}
LINES |= {f"vote {mode}": f"vote.sync.{mode}.pred %p2, %p0, %r4;" for mode in VOTES if mode != "ballot"}
LINES |= {f"redux {name}": f"redux.sync.{name} %r9, %r1, %r4;" for name in REDUCTIONS}
WHOLE = {"all": "ge.u32 %p1, %r0, 0", "one warp": "ge.u32 %p1, %r0, 32"}


def outcome(line: str, lanes: str, members: np.ndarray, values: np.ndarray | None = None, block: int = 64) -> Outcome:
    rng = np.random.default_rng(3)
    clamps = [31, 0, 0x101F, 0x181F, 0x1C1F, 0x100F, 0x1F00]
    arrays = {
        "values": rng.integers(0, 1 << 32, 64, dtype=np.uint32) if values is None else values,
        "offsets": rng.integers(0, 1 << 32, 64, dtype=np.uint32) & np.uint32(0xFFFFFF1F),
        "clamps": rng.choice(np.array(clamps, np.uint32), 64),
        "members": members,
        "out": np.zeros(128, np.uint32),
    }
    return both(Module(kernel(START.replace("LANES", lanes).replace("LINE", line), 5)), arrays, block=block)


@pytest.mark.parametrize("lanes", WHOLE)
@pytest.mark.parametrize("name", LINES)
def test_whole_warps(name: str, lanes: str) -> None:
    everyone = np.full(64, 0xFFFFFFFF, np.uint32)
    for values in (None, np.zeros(64, np.uint32), np.full(64, 0xFFFFFFFF, np.uint32)):
        got = outcome(LINES[name], WHOLE[lanes], everyone, values)
        assert got.fault is None and not got.handed_back
        if lanes == "one warp":
            assert (got.arrays["out"].reshape(64, 2)[:32] == [7, 1]).all()


@pytest.mark.parametrize("name", [name for name in LINES if not name.startswith("shfl")])
def test_a_part_of_a_warp_is_left_to_numpy(name: str) -> None:
    got = outcome(LINES[name], "ge.u32 %p1, %r0, 44", np.full(64, 0xFFFFF000, np.uint32))
    assert got.fault is None and got.handed_back.total() == 1
    assert (got.arrays["out"].reshape(64, 2)[:44] == [7, 1]).all()


@pytest.mark.parametrize("name", [name for name in LINES if not name.startswith("shfl")])
def test_halves_of_a_warp_that_name_themselves_are_left_to_numpy(name: str) -> None:
    halves = np.where(np.arange(64) % 32 < 16, 0xFFFF, 0xFFFF0000).astype(np.uint32)
    values = np.where(np.arange(64) % 32 < 16, 100, 3).astype(np.uint32)  # bit 6, of which votes are, in one half
    got = outcome(LINES[name], WHOLE["all"], halves, values)
    assert got.fault is None and got.handed_back.total() == 1
    out = got.arrays["out"].reshape(64, 2)
    assert len(np.unique(out, axis=0)) == 2 and (out[:16] == out[0]).all() and (out[16:32] == out[16]).all()


@pytest.mark.parametrize("name", [name for name in LINES if not name.startswith("shfl")])
def test_a_warp_that_the_block_does_not_fill_is_left_to_numpy(name: str) -> None:
    got = outcome(LINES[name], WHOLE["all"], np.full(64, 0xFFFFFFFF, np.uint32), block=48)
    assert got.fault is None and got.handed_back.total() == 1


def test_a_lane_that_is_named_and_absent_is_a_fault() -> None:
    got = outcome(LINES["redux add.u32"], "ge.u32 %p1, %r0, 44", np.full(64, 0xFFFFFFFF, np.uint32))
    assert got.fault and got.fault[0] == "inactive_shuffle"
