"""`mma` against the manual's index formulas, lane by lane, and against exact rational sums."""

from __future__ import annotations

import exact_floats as exact
import numpy as np
import pytest
from exact_floats import F32, FORMATS
from operands import edges
from ptx_snippets import kernel, run

from ptx_emulator.errors import Fault, NotEmulated

pytestmark = pytest.mark.covers("mma.")


def places_of_a(lane: int, i: int, k: int) -> tuple[int, int]:
    """Row and column of element a_i, as the manual's m16n8k16 (and m16n8k8) pages give them."""
    group, thread = lane >> 2, lane % 4
    if k == 8:
        return (group if i in (0, 1) else group + 8), thread * 2 + (i & 1)
    row = group if 0 <= i < 2 or 4 <= i < 6 else group + 8
    return row, (thread * 2 + (i & 1) if i < 4 else thread * 2 + (i & 1) + 8)


def places_of_b(lane: int, i: int) -> tuple[int, int]:
    group, thread = lane >> 2, lane % 4
    return (thread * 2 + (i & 1) if i < 2 else thread * 2 + (i & 1) + 8), group


def places_of_c(lane: int, i: int) -> tuple[int, int]:
    return (lane >> 2 if i < 2 else (lane >> 2) + 8), lane % 4 * 2 + (i & 1)


def packed(matrix: np.ndarray, count: int, place, bits: int) -> np.ndarray:
    """(32, registers) uint32 of one warp's fragment with `count` elements a lane."""
    a_register = 32 // bits
    out = np.zeros((32, count // a_register), np.uint32)
    for lane in range(32):
        for i in range(count):
            out[lane, i // a_register] |= np.uint32(int(matrix[place(lane, i)]) << bits * (i % a_register))
    return out


def multiply(kind: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, before: str = "", **options) -> np.ndarray:
    """D as patterns (n, 16, 8), each warp one product. a: (n, 16, k), b: (n, k, 8), c: (n, 16, 8) patterns"""
    n, _, k = a.shape
    counts = {"a": k // 4, "b": k // 8, "c": 4, "d": 4}
    registers = {"a": range(4), "b": range(4, 6), "c": range(6, 10), "d": range(10, 14)}
    names = {name: [f"%r{r}" for r in registers[name]][: counts[name]] for name in counts}
    body = " mov.u32 %r20, %tid.x; mov.u32 %r21, %ctaid.x; mov.u32 %r22, %ntid.x; mad.lo.u32 %r20, %r21, %r22, %r20;\n"
    for i, (name, count) in enumerate(counts.items()):
        body += f" ld.param.u64 %rd0, [p{i}]; mad.wide.u32 %rd{i + 1}, %r20, {4 * count}, %rd0;\n"
        for r in range(count) if name != "d" else ():
            body += f" ld.global.u32 {names[name][r]}, [%rd{i + 1}+{4 * r}];\n"
    lists = ", ".join("{" + ", ".join(names[name]) + "}" for name in "dabc")
    body += f"{before} mma.sync.aligned.m16n8k{k}.row.col.f32.{kind}.{kind}.f32 {lists};\n"
    body += "".join(f" st.global.u32 [%rd4+{4 * r}], {names['d'][r]};\n" for r in range(4))
    fragments = {
        "a": np.concatenate([packed(m, k // 2, lambda lane, i: places_of_a(lane, i, k), 16) for m in a]),
        "b": np.concatenate([packed(m, k // 4, places_of_b, 16) for m in b]),
        "c": np.concatenate([packed(m, 4, places_of_c, 32) for m in c]),
        "d": np.zeros((32 * n, 4), np.uint32),
    }
    block = 64 if n % 2 == 0 else 32
    run(kernel(body, 4), fragments, grid=32 * n // block, block=block, **options)
    out = np.zeros((n, 16, 8), np.uint32)
    for thread in range(32 * n):
        for i in range(4):
            out[(thread // 32, *places_of_c(thread % 32, i))] = fragments["d"][thread, i]
    return out


SHAPES = [("bf16", 16), ("f16", 16), ("bf16", 8), ("f16", 8)]


def encoded(values: np.ndarray, kind: str) -> np.ndarray:
    """Numbers as patterns of a format that holds them exactly."""
    return (
        (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        if kind == "bf16"
        else (values.astype(np.float16).view(np.uint16))
    )


@pytest.mark.parametrize("kind, k", SHAPES)
def test_fragments(kind: str, k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = rng.integers(-60, 60, (6, 16, k)), rng.integers(-60, 60, (6, k, 8))
    c = rng.integers(-1000, 1000, (6, 16, 8))
    got = multiply(kind, encoded(a, kind), encoded(b, kind), c.astype(np.float32).view(np.uint32))
    for n in range(6):
        for row in range(16):
            for column in range(8):
                wanted = c[n, row, column] + sum(int(a[n, row, i]) * int(b[n, i, column]) for i in range(k))
                assert got[n, row, column].view(np.float32) == wanted


def exact_sums(kind: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Each element by rational arithmetic, rounded once; a zero is +0."""
    form = FORMATS[kind]
    out = np.zeros(c.shape, np.uint32)
    for n, row, column in np.ndindex(c.shape):
        total = exact.decode(int(c[n, row, column]), F32)
        for x, y in zip(a[n, row], b[n, :, column], strict=True):
            total = exact.add(total, exact.multiply(exact.decode(int(x), form), exact.decode(int(y), form)))
        out[n, row, column] = 0 if total.is_zero else exact.encode(total, F32)
    return out


def finite_edges(kind: str) -> np.ndarray:
    largest = FORMATS[kind].largest
    return np.array([bits for bits in edges(kind) if bits & FORMATS[kind].sign_bit - 1 <= largest])


def check(kind: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    got, wanted = multiply(kind, a, b, c), exact_sums(kind, a, b, c)
    assert got.tolist() == wanted.tolist()


@pytest.mark.parametrize("kind, k", SHAPES)
def test_sums_are_exact_and_rounded_once(kind: str, k: int) -> None:
    """Patterns of all exponents: sums that cancel, that overflow, and that no float64 holds."""
    rng = np.random.default_rng(k)
    pool = np.concatenate([finite_edges(kind), rng.integers(0, FORMATS[kind].largest, 30)])
    c = np.concatenate([finite_edges("f32"), rng.integers(0, F32.largest, 30)]).astype(np.uint32)
    a, b = rng.choice(pool, (3, 16, k)), rng.choice(pool, (3, k, 8))
    a[:, ::3, 1], b[:, 1, ::3] = a[:, ::3, 0] ^ FORMATS[kind].sign_bit, b[:, 0, ::3]
    check(kind, a.astype(np.uint16), b.astype(np.uint16), rng.choice(c, (3, 16, 8)))


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_subnormal_operands_and_results(kind: str) -> None:
    rng = np.random.default_rng(2)
    subnormal = rng.integers(0, 1 << FORMATS[kind].mantissa, (2, 16, 16)).astype(np.uint16)
    near_one = rng.integers(0, 1 << FORMATS[kind].mantissa, (2, 16, 8)) + (FORMATS[kind].bias << FORMATS[kind].mantissa)
    c = rng.integers(0, 1 << 23, (2, 16, 8)).astype(np.uint32)
    check(kind, subnormal, near_one.astype(np.uint16), c)


TIES = [  # terms of the sum, with the accumulator, and the nearest 2^24 + 2i
    ([1, 2.0**-40], 2.0**24, 2),
    ([1, -(2.0**-40)], 2.0**24, 0),
    ([1, 2.0**-80], 2.0**24, 2),
    ([1, -(2.0**-80)], 2.0**24, 0),
    ([1, 2.0**-133], 2.0**24, 2),
    ([1, 0], 2.0**24, 0),
    ([3, 0], 2.0**24, 4),
    ([2.0**24, 1, 2.0**-31], 0.0, 2),
    ([2.0**24, 1, -(2.0**-31)], 0.0, 0),
    ([2.0**24, 1], 2.0**-149, 2),
    ([2.0**100, 2.0**24, 1, 2.0**-31, -(2.0**100)], 0.0, 2),
]


@pytest.mark.parametrize("terms, accumulator, beyond", TIES)
def test_a_small_term_decides_a_tie(terms: list[float], accumulator: float, beyond: int) -> None:
    """2^24 + 1 is a tie in float32; a little more is none, though it does not fit a float64."""
    a, b = np.zeros((1, 16, 16)), np.zeros((1, 16, 8))
    a[0, 3], b[0, : len(terms), 5] = 1.0, terms
    c = np.full((1, 16, 8), accumulator, np.float32)
    got = multiply("bf16", encoded(a, "bf16"), encoded(b, "bf16"), c.view(np.uint32))
    assert got[0, 3, 5].view(np.float32) == 2**24 + beyond


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_infinities_and_nans(kind: str) -> None:
    infinity, sign = FORMATS[kind].infinity, FORMATS[kind].sign_bit
    one = FORMATS[kind].bias << FORMATS[kind].mantissa
    a, b = np.full((1, 16, 16), one, np.uint16), np.full((1, 16, 8), one, np.uint16)
    c = np.zeros((1, 16, 8), np.uint32)
    a[0, 1, 3], a[0, 2, 3], a[0, 3, 3] = infinity, infinity | sign, infinity + 1
    a[0, 4, 3:5], a[0, 5, 3] = (infinity, infinity | sign), infinity
    b[0, 3, 1] = 0  # infinity times zero
    a[0, 8, :4], b[0, :2, 7] = (1, infinity - 1, infinity, one), (1, infinity - 1)  # and sums of more bits than 53
    c[0, 5, 2], c[0, 6, 3], c[0, 7, 4] = F32.infinity | F32.sign_bit, F32.infinity, F32.infinity + 5
    got = multiply(kind, a, b, c)
    assert got.tolist() == exact_sums(kind, a, b, c).tolist()
    assert got[0, 1].tolist() == [F32.infinity, F32.nan] + [F32.infinity] * 6
    assert got[0, 2, 0] == F32.infinity | F32.sign_bit and (got[0, 3] == F32.nan).all()
    assert (got[0, 4] == F32.nan).all() and got[0, 5, 2] == F32.nan


def test_a_sum_of_nothing_is_positive_zero() -> None:
    a, b = np.full((1, 16, 16), 0x8000, np.uint16), np.full((1, 16, 8), 0x3F80, np.uint16)
    assert not multiply("bf16", a, b, np.full((1, 16, 8), 0x80000000, np.uint32)).any()


@pytest.mark.parametrize("name", ["m16n8k16.row.col.f16.f16.f16.f16", "m16n8k32.row.col.s32.s8.s8.s32"])
def test_other_types_are_refused(name: str) -> None:
    lists = "{%r0, %r1}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%r0, %r1}"
    with pytest.raises(NotEmulated, match="not emulated: mma.sync"):
        run(kernel(f" mma.sync.aligned.{name} {lists};", 0), {})


ONES = np.full((2, 16, 16), 0x3F80, np.uint16), np.full((2, 16, 8), 0x3F80, np.uint16), np.zeros((2, 16, 8), np.uint32)


def test_one_of_two_warps_multiplies() -> None:
    before = " mov.u32 %r10, 7; mov.u32 %r11, 7; mov.u32 %r12, 7; mov.u32 %r13, 7;"
    before += " setp.lt.u32 %p0, %r20, 32;\n @%p0"
    got = multiply("bf16", *ONES, before)
    assert (got[0].view(np.float32) == 16).all() and (got[1] == 7).all()


@pytest.mark.parametrize(
    "before, problem",
    [
        (" setp.ne.u32 %p0, %r20, 37;\n @%p0", "lane 5 does not execute it"),
        (" setp.eq.u32 %p0, %r20, 37;\n @%p0 ret;", "lane 5 exited or never was"),
    ],
)
def test_a_missing_lane(before: str, problem: str) -> None:
    with pytest.raises(Fault, match=f"takes all 32 lanes of a warp, and {problem}") as caught:
        multiply("bf16", *ONES, before)
    assert caught.value.kind == "inactive_shuffle"


def test_a_lane_on_another_path() -> None:
    before = " setp.eq.u32 %p0, %r20, 37;\n @%p0 bra $away;"
    lists = "{%r10, %r11, %r12, %r13}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%r6, %r7, %r8, %r9}"
    before += f" mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {lists};\n$away: bar.warp.sync -1;\n"
    with pytest.raises(Fault, match="takes lane 5, which waits at bar.warp.sync") as caught:
        multiply("bf16", *ONES, before)
    assert caught.value.kind == "inactive_shuffle"
