"""Shuffles, votes, reductions, matches and elections, against loops over lanes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from cuda_source import ARCHES, buffer, module
from expectations import expected
from ptx_snippets import kernel, run

from ptx_emulator.errors import Fault
from ptx_emulator.launches import launch
from ptx_emulator.schedule import ASCENDING, DESCENDING, Schedule

pytestmark = pytest.mark.covers("shfl.", "vote.", "redux.", "match.", "elect.sync", "activemask.b32")

LANE = """ mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
 ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; ld.param.u64 %rd2, [p2]; mad.wide.u32 %rd3, %r3, 4, %rd0;
 mad.wide.u32 %rd4, %r3, 4, %rd1; mad.wide.u32 %rd5, %r3, 4, %rd2; ld.global.u32 %r4, [%rd3]; setp.ne.u32 %p1, %r4, 0;
"""
STORE = " st.global.u32 [%rd4], %r5; selp.u32 %r6, 1, 0, %p2; st.global.u32 [%rd5], %r6;"
FULL = "0xFFFFFFFF"


def exchange(
    line: str, values: np.ndarray, members: str = FULL, before: str = "", **options
) -> tuple[np.ndarray, np.ndarray]:
    """Results %r5 and %p2 of a line for 64 threads in 2 blocks; the operand is %r4, or %p1 where it is not 0."""
    body = LANE + before + f" {line.replace('MEMBERS', members)}\n" + STORE
    first, second = np.zeros(128, np.uint32), np.zeros(128, np.uint32)
    run(kernel(body, 3), {"values": values, "first": first, "second": second}, grid=2, block=64, **options)
    return first, second


VALUES = np.random.default_rng(5).integers(0, 1 << 32, 128, dtype=np.uint64).astype(np.uint32)


def shuffled(mode: str, lane: int, offset: int, clamp: int) -> tuple[int, bool]:
    """The manual's pseudo-code for one lane."""
    offset, segment, last = offset & 31, clamp >> 8 & 31, clamp & 31
    highest = (lane & segment) | (last & ~segment & 31)
    lowest = lane & segment
    if mode == "up":
        source = lane - offset
        valid = source >= highest
    else:
        source = {"down": lane + offset, "bfly": lane ^ offset, "idx": lowest | (offset & ~segment & 31)}[mode]
        valid = source <= highest
    return (source if valid else lane), valid


@pytest.mark.sweep
@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("width", [32, 16, 8, 2])
@pytest.mark.parametrize("offset", [0, 1, 3, 7, 16, 31, 45])
def test_shuffle(mode: str, width: int, offset: int) -> None:
    clamp = ((32 - width) << 8) | (0 if mode == "up" else 31)
    got, valid = exchange(f"shfl.sync.{mode}.b32 %r5|%p2, %r4, {offset}, {clamp}, MEMBERS;", VALUES)
    for i in range(128):
        source, in_range = shuffled(mode, i % 32, offset, clamp)
        assert (got[i], valid[i]) == (VALUES[i // 32 * 32 + source], in_range)


def test_shuffle_by_a_different_offset_in_every_lane() -> None:
    line = "shfl.sync.idx.b32 %r5|%p2, %r4, %r7, 31, MEMBERS;"
    got, _ = exchange(line, VALUES, before=" mul.lo.u32 %r7, %r4, 5;\n")
    assert (got.reshape(4, 32) == np.take_along_axis(VALUES.reshape(4, 32), (VALUES * 5).reshape(4, 32) % 32, 1)).all()


def test_shuffle_of_a_value_all_lanes_share() -> None:
    got, _ = exchange("shfl.sync.bfly.b32 %r5, %r2, 1, 31, MEMBERS;", VALUES)
    assert (got == 64).all()


SETS = [FULL, "0x0000FFFF", "0xAAAAAAAA", "0x00000001"]
IN_SET = """ mov.u32 %r8, %laneid; shr.u32 %r9, {0}, %r8; and.b32 %r9, %r9, 1; setp.eq.u32 %p3, %r9, 1;
 mov.u32 %r5, 77; setp.ne.u32 %p2, %r5, 77; @!%p3 bra $skip;
"""


def subset(line: str, values: np.ndarray, members: str, **options) -> np.ndarray:
    """The line, executed by the lanes of `members` only; others give 77."""
    return exchange(line + "\n$skip:", values, members, IN_SET.format(members), **options)[0]


def groups(values: np.ndarray, members: str):
    mask = int(members, 16)
    for warp in range(4):
        lanes = [warp * 32 + lane for lane in range(32) if mask >> lane & 1]
        yield lanes, [int(values[lane]) for lane in lanes]


@pytest.mark.parametrize("members", SETS)
@pytest.mark.parametrize(
    "name", ["add.u32", "add.s32", "min.u32", "max.u32", "min.s32", "max.s32", "and.b32", "or.b32", "xor.b32"]
)
def test_redux(name: str, members: str) -> None:
    got = subset(f"redux.sync.{name} %r5, %r4, MEMBERS;", VALUES, members)
    wanted = np.full(128, 77)
    function = expected(name)[2]
    for lanes, values in groups(VALUES, members):
        total = values[0]
        for value in values[1:]:
            total = function(total, value)
        wanted[lanes] = total
    assert (got == wanted).all()


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("keeps_nan", [False, True])
def test_redux_of_floats(largest: bool, absolute: bool, keeps_nan: bool) -> None:
    floats = np.random.default_rng(9).standard_normal(128).astype(np.float32)
    floats[40], floats[64:96] = np.nan, np.nan
    name = f"{'max' if largest else 'min'}{'.abs' if absolute else ''}{'.NaN' if keeps_nan else ''}"
    got, _ = exchange(f"redux.sync.{name}.f32 %r5, %r4, MEMBERS;", floats.view(np.uint32))
    for warp, values in enumerate(np.abs(floats).reshape(4, 32) if absolute else floats.reshape(4, 32)):
        kept = values[~np.isnan(values)]
        nan = len(kept) == 0 or (keeps_nan and len(kept) < 32)
        wanted = 0x7FFFFFFF if nan else int((kept.max() if largest else kept.min()).view(np.uint32))
        assert (got[warp * 32 : warp * 32 + 32] == wanted).all()


VOTES: dict[str, Callable[[list[bool]], bool]] = {
    "all": all,
    "any": any,
    "uni": lambda said: all(said) or not any(said),
}


@pytest.mark.parametrize("members", SETS)
@pytest.mark.parametrize("mode", VOTES)
@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 1.0])
def test_vote(mode: str, members: str, share: float) -> None:
    said = (np.random.default_rng(2).random(128) < share).astype(np.uint32)
    got = subset(f"vote.sync.{mode}.pred %p2, %p1, MEMBERS; selp.u32 %r5, 1, 0, %p2;", said, members)
    wanted = np.full(128, 77)
    for lanes, values in groups(said, members):
        wanted[lanes] = VOTES[mode]([bool(value) for value in values])
    assert (got == wanted).all()


@pytest.mark.parametrize("members", SETS)
def test_ballot(members: str) -> None:
    said = (VALUES & 1).astype(np.uint32)
    got = subset("vote.sync.ballot.b32 %r5, !%p1, MEMBERS;", said, members)
    wanted = np.full(128, 77)
    for lanes, values in groups(said, members):
        wanted[lanes] = sum((1 - value) << lane % 32 for lane, value in zip(lanes, values, strict=True))
    assert (got == wanted).all()


@pytest.mark.parametrize("members", SETS)
@pytest.mark.parametrize("kind", ["b32", "b64"])
def test_match(kind: str, members: str) -> None:
    values = VALUES % 3
    values[32:64] = 8
    register, widen = ("%r4", "") if kind == "b32" else ("%rd8", "cvt.u64.u32 %rd8, %r4; ")
    any_of = subset(f"{widen}match.any.sync.{kind} %r5, {register}, MEMBERS;", values, members)
    all_of = subset(f"{widen}match.all.sync.{kind} %r5|%p2, {register}, MEMBERS;", values, members)
    for lanes, found in groups(values, members):
        for lane, value in zip(lanes, found, strict=True):
            same = sum(1 << other % 32 for other, v in zip(lanes, found, strict=True) if v == value)
            assert any_of[lane] == same
            assert all_of[lane] == (int(members, 16) if len(set(found)) == 1 else 0)


def test_masks_that_differ_between_groups_of_one_warp() -> None:
    before = """ mov.u32 %r8, %laneid; and.b32 %r9, %r8, 1; setp.eq.u32 %p3, %r9, 1;
 selp.u32 %r7, 0xAAAAAAAA, 0x55555555, %p3;
"""
    got, _ = exchange("redux.sync.add.u32 %r5, %r8, %r7;", VALUES, before=before)
    assert (got.reshape(-1, 2) == [240, 256]).all()


@pytest.mark.parametrize("members", SETS)
def test_elect(members: str) -> None:
    leader = subset("elect.sync %r5|%p2, MEMBERS;", VALUES, members)
    lowest = (int(members, 16) & -int(members, 16)).bit_length() - 1
    highest = int(members, 16).bit_length() - 1
    last = subset("elect.sync %r5|%p2, MEMBERS;", VALUES, members, schedule=DESCENDING)
    for lanes, _ in groups(VALUES, members):
        assert (leader[lanes] == lowest).all()
        assert (last[lanes] == highest).all()
    for order, first in ((ASCENDING, 0), (DESCENDING, 31), (Schedule(seed=1), 0)):
        _, chosen = exchange("elect.sync %r5|%p2, MEMBERS;", VALUES, schedule=order)
        assert np.flatnonzero(chosen).tolist() == [first, first + 32, first + 64, first + 96]


def test_activemask() -> None:
    assert (subset("activemask.b32 %r5;", VALUES, "0x00FF00FF").reshape(4, 32)[:, :8] == 0x00FF00FF).all()


def test_guarded_vote_without_the_named_lanes() -> None:
    with pytest.raises(Fault, match="names lane"):
        exchange("@%p3 vote.sync.any.pred %p2, %p1, MEMBERS;", VALUES, before=" setp.lt.u32 %p3, %r0, 4;\n")


@pytest.mark.parametrize("arch", ARCHES)
def test_block_of_a_warp_and_a_half(arch: str) -> None:
    source = """
extern "C" __global__ void k(unsigned* out) {
  unsigned v = __shfl_down_sync(threadIdx.x < 32 ? ~0u : 0xFFFFu, threadIdx.x, 1, 16);
  out[threadIdx.x] = v + 1000 * __popc(__activemask()) + 100000 * __syncthreads_count(threadIdx.x % 2);
}"""
    out = np.zeros(48, np.uint32)
    launch(module(source, arch), "k", (1, 1, 1), (48, 1, 1), [buffer("out", out)])
    thread = np.arange(48)
    value = np.where(thread % 16 == 15, thread, thread + 1)
    assert (out == value + 1000 * np.where(thread < 32, 32, 16) + 100000 * 24).all()
