"""`wgmma` against the manual's index formulas and layouts, element by element, and against exact rational sums.

The instructions: wgmma.mma_async, wgmma.fence, wgmma.commit_group, wgmma.wait_group, fence.proxy.async.
"""

from __future__ import annotations

import numpy as np
import pytest
from cuda_source import buffer, module
from ptx_snippets import kernel
from ptx_snippets import run as run_ptx
from test_mma import exact_sums, finite_edges
from wgmma_source import (
    PITCH,
    descriptor,
    device_functions,
    encoded,
    from_fragments,
    image,
    image_across,
    place_of_a,
    place_of_d,
    to_fragments,
)

from ptx_emulator.counters import Counters
from ptx_emulator.errors import NotEmulated
from ptx_emulator.launches import launch
from ptx_emulator.schedule import DESCENDING, Schedule

pytestmark = pytest.mark.covers("wgmma.", "fence.proxy.")

# Every warpgroup of every block multiplies its own A by its own B, `turns` times 16 deep. Bytes of A and B lie where
# their images say, each block's first its A's; `from_a` and `from_b` are descriptors relative to those.
PRODUCT = """
extern "C" __global__ void k(const uint4* in_a, int size_a, const uint4* in_b, int size_b, float* out, u64 from_a,
                             u64 from_b, int step_a, int step_b, int turns, int scale) {
  extern __shared__ __align__(1024) uint4 s[];
  const int t = threadIdx.x, group = blockIdx.x * (blockDim.x / 128) + t / 128, held = group * 128 + t % 128;
  uint4* const a = s + t / 128 * (size_a + size_b);
  uint4* const b = a + size_a;
  if (t / 128 < blockDim.x / 128) {
    for (int i = t % 128; i < size_a; i += 128) a[i] = in_a[group * size_a + i];
    for (int i = t % 128; i < size_b; i += 128) b[i] = in_b[group * size_b + i];
  }
  proxy();
  __syncthreads();
  if (t / 128 >= blockDim.x / 128) return;
  float d[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) d[i] = out[held * kHeld + i];
  u32 r[4] = {};
  from_a += __cvta_generic_to_shared(a) >> 4;
  from_b += __cvta_generic_to_shared(b) >> 4;
  for (int i = 0; i < turns; ++i) {
#pragma unroll
    for (int j = 0; REGISTERS && j < 4; ++j) r[j] = ((const u32*)in_a)[(group * turns + i) * 512 + t % 128 * 4 + j];
    fence();
    multiply(d, A_OPERAND, from_b + i * (step_b >> 4), scale || i);
    commit();
    wait(0);
  }
#pragma unroll
  for (int i = 0; i < kHeld; ++i) out[held * kHeld + i] = d[i];
}
"""


def laid_out(matrix: np.ndarray, mode: int, across: bool) -> tuple[np.ndarray, int, int, int]:
    """The bytes of a matrix, its leading and stride offsets, and the bytes from 16 k to the next 16."""
    rows, depth = matrix.shape
    if across and mode:
        stride = 8 * PITCH[mode]
        leading = (depth // 8 + 1) * stride
        return image_across(matrix, mode, leading, stride), leading, stride, 2 * stride
    leading, stride = rows * 18 + 32, 144 if mode == 0 else 8 * PITCH[mode]
    step = 32 if mode else 2 * leading
    return (image_across if across else image)(matrix, mode, leading, stride), leading, stride, step


def multiply(
    a: np.ndarray, b: np.ndarray, d: np.ndarray, kind: str = "bf16", left: str = "registers", right: str = "along",
    modes: tuple[int, int] = (0, 0), scale: int = 1, immediates: str = "1, 1", block: int = 128, **options,
) -> tuple[np.ndarray, Counters]:  # fmt: skip
    """D (n, 64, columns) patterns of float32, and the counters.

    a: (n, 64, k), b: (n, columns, k) patterns; d: (n, 64, columns) uint32, what D is added to
    left, right: where A and B lie, registers, along (K) or across
    modes: of swizzling; of a matrix along K, k must then fit one row of the pattern
    """
    n, columns, depth = b.shape
    images, placed, sizes, steps = [], [], [], []
    for matrices, where, mode in ((a, left, modes[0]), (b, right, modes[1])):
        leading = stride = step = size = 0
        if where == "registers":
            parts = [matrix[:, i : i + 16] for matrix in matrices for i in range(0, depth, 16)]
            image_of = np.stack([to_fragments(part, 8, place_of_a) for part in parts])
        else:
            made = [laid_out(matrix, mode, where == "across") for matrix in matrices]
            image_of, (_, leading, stride, step) = np.stack([each[0] for each in made]), made[0]
            image_of = np.pad(image_of, ((0, 0), (0, -image_of.shape[1] % 1024)))
            size = image_of.shape[1]
            assert where == "across" or mode == 0 or depth * 2 <= PITCH[mode]
        images.append(image_of), sizes.append(size), steps.append(step)
        placed.append(descriptor(0, leading, stride, mode).to_bytes(8, "little"))
    out = np.stack([to_fragments(matrix, columns // 2, place_of_d) for matrix in d])
    source = device_functions(columns, kind, immediates, (int(left == "across"), int(right == "across"))) + PRODUCT
    source = source.replace("REGISTERS", str(int(left == "registers")))
    source = source.replace("A_OPERAND", "r" if left == "registers" else "from_a + i * (step_a >> 4)")
    args = [
        buffer("a", images[0], writable=False), sizes[0] // 16, buffer("b", images[1], writable=False), sizes[1] // 16,
        buffer("out", out), *placed, *steps, depth // 16, scale,
    ]  # fmt: skip
    groups = block // 128
    shared = groups * sum(sizes)
    counters = launch(module(source), "k", (n // groups, 1, 1), (block, 1, 1), args, dynamic_shared=shared, **options)
    return np.stack([from_fragments(held) for held in out]), counters


def integers(n: int, columns: int, depth: int, kind: str) -> tuple[np.ndarray, ...]:
    """Operands, and their product as float32: small integers, so that the sum is exact."""
    rng = np.random.default_rng(columns + depth)
    a, b = rng.integers(-60, 60, (n, 64, depth)), rng.integers(-60, 60, (n, columns, depth))
    d = rng.integers(-1000, 1000, (n, 64, columns))
    wanted = (d + a @ b.swapaxes(1, 2)).astype(np.float32)
    return encoded(a, kind), encoded(b, kind), d.astype(np.float32).view(np.uint32), wanted


@pytest.mark.slow
@pytest.mark.parametrize("registers", [True, False])
@pytest.mark.parametrize("kind, columns", [("bf16", 8), ("f16", 16), ("bf16", 120), ("f16", 256)])
def test_core_matrices(kind: str, columns: int, registers: bool) -> None:
    a, b, d, wanted = integers(2, columns, 48, kind)
    got, _ = multiply(a, b, d, kind, "registers" if registers else "along")
    assert (got.view(np.float32) == wanted).all()


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_every_number_of_columns(kind: str) -> None:
    """The first columns of an exact product: K = 16, A in registers, no accumulator."""
    rng = np.random.default_rng(16)
    a, b = rng.integers(-60, 60, (64, 16)), rng.integers(-60, 60, (256, 16))
    fragments, leading = to_fragments(encoded(a, kind), 8, place_of_a), 256 * 16 + 32
    stored = image(encoded(b, kind), 0, leading, 128)
    stored = np.pad(stored, (0, -len(stored) % 2048))
    placed = descriptor(0, leading, 128)
    for columns in range(8, 257, 8):
        d = [f"d{i}" for i in range(columns // 2)]
        body = f""" mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; ld.param.u64 %rd2, [p2];
 .shared .align 1024 .b8 s[{len(stored)}]; .reg .f32 d<{columns // 2}>; mov.u32 %r1, s; shl.b32 %r2, %r0, 4;
 mad.wide.u32 %rd3, %r0, 16, %rd0; ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%rd3]; add.u32 %r3, %r1, %r2;
 mad.wide.u32 %rd4, %r0, 16, %rd1; mad.wide.u32 %rd5, %r0, {columns * 2}, %rd2;
"""
        for at in range(0, len(stored), 2048):
            body += f" ld.global.v4.u32 {{%r8, %r9, %r10, %r11}}, [%rd4+{at}];"
            body += f" st.shared.v4.u32 [%r3+{at}], {{%r8, %r9, %r10, %r11}};\n"
        body += f""" fence.proxy.async; bar.sync 0; cvt.u64.u32 %rd6, %r1; shr.u64 %rd6, %rd6, 4;
 add.u64 %rd6, %rd6, {placed}; setp.ne.u32 %p0, %r0, %r0; wgmma.fence.sync.aligned;
 wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind} {{{", ".join(d)}}}, {{%r4, %r5, %r6, %r7}}, %rd6,
 %p0, 1, 1, 0; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
"""
        body += "\n".join(f" st.global.f32 [%rd5+{4 * i}], {name};" for i, name in enumerate(d))
        out = np.zeros((128, columns // 2), np.float32)
        run_ptx(kernel(body, 3), {"a": fragments, "b": stored, "out": out}, block=128)
        assert (from_fragments(out) == a @ b[:columns].T).all(), f"{columns} columns"


@pytest.mark.parametrize("registers", [True, False])
@pytest.mark.parametrize("mode, depth", [(1, 64), (2, 32), (3, 16)])
def test_swizzled_rows(mode: int, depth: int, registers: bool) -> None:
    """Along K, the start address moves within a row of the swizzling pattern."""
    a, b, d, wanted = integers(2, 40, depth, "bf16")
    got, _ = multiply(a, b, d, left="registers" if registers else "along", modes=(mode, mode))
    assert (got.view(np.float32) == wanted).all()


@pytest.mark.parametrize("block", [256, 288])
@pytest.mark.parametrize("lanes", [1, 1 << 14])
def test_warpgroups_and_blocks(block: int, lanes: int) -> None:
    """Two warpgroups a block, with and without a further warp, in batches of one block and of all."""
    a, b, d, wanted = integers(6, 16, 32, "bf16")
    got, counters = multiply(a, b, d, left="along", block=block, lanes=lanes)
    assert (got.view(np.float32) == wanted).all()
    assert counters.opcodes["wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16"] == 6 * 4 * 2
    plain, _ = multiply(a, b, d, left="along", block=block, lanes=lanes, sanitize=False)
    assert (plain == got).all()


@pytest.mark.parametrize("schedule", [DESCENDING, *(Schedule(seed=seed) for seed in range(4))], ids=str)
def test_warpgroups_in_another_order(schedule: Schedule) -> None:
    a, b, d, wanted = integers(6, 16, 32, "bf16")
    got, _ = multiply(a, b, d, left="along", block=416, schedule=schedule)
    assert (got.view(np.float32) == wanted).all()


def test_scale_d() -> None:
    """The first product replaces what the accumulators hold, even a NaN."""
    a, b, d, wanted = integers(1, 8, 32, "bf16")
    wanted -= d.view(np.float32)
    got, _ = multiply(a, b, np.full_like(d, 0x7FC00000), scale=0)
    assert (got.view(np.float32) == wanted).all()


@pytest.mark.parametrize("immediates, sign", [("-1, 1", -1), ("1, -1", -1), ("-1, -1", 1)])
def test_negated_operands(immediates: str, sign: int) -> None:
    a, b, d, wanted = integers(1, 8, 16, "f16")
    got, _ = multiply(a, b, np.zeros_like(d), "f16", immediates=immediates)
    assert (got.view(np.float32) == sign * (wanted - d.view(np.float32))).all()


def test_sums_of_bf16_are_exact() -> None:
    """The sums are rounded once. The operands have all exponents: sums cancel, overflow, or do not fit a float64.

    test_hopper_sums tests the sums of f16.
    """
    rng = np.random.default_rng(3)
    pool = finite_edges("bf16")
    a, b = rng.choice(pool, (1, 64, 16)), rng.choice(pool, (1, 8, 16))
    a[:, ::3, 1], b[:, ::3, 1] = a[:, ::3, 0] ^ 0x8000, b[:, ::3, 0]
    a, b, d = a.astype(np.uint16), b.astype(np.uint16), rng.choice(finite_edges("f32"), (1, 64, 8)).astype(np.uint32)
    got, _ = multiply(a, b, d)
    assert got.tolist() == exact_sums("bf16", a, b.swapaxes(1, 2), d).tolist()


def test_warps_that_arrive_at_different_times() -> None:
    """Adding the bits of 2 up to three times makes 2, -0, -2."""
    source = (
        device_functions(8)
        + """
extern "C" __global__ void k(const u32* turns, float* out) {
  __shared__ __align__(128) u16 b[128];
  const int t = threadIdx.x;
  b[t] = 0x3F80;
  proxy();
  __syncthreads();
  float d[4] = {};
  u32 v = 0;
#pragma unroll 1
  for (int j = turns[t / 32]; j; --j) asm volatile("add.u32 %0, %0, 0x40004000;" : "+r"(v));
  const u32 a[4] = {v, 0, v, 0};
  fence();
  multiply(d, a, (__cvta_generic_to_shared(b) >> 4) | 8 << 16, 1);
  commit();
  wait(0);
  out[t] = d[0];
}"""
    )
    out = np.zeros(128, np.float32)
    launch(module(source), "k", (1, 1, 1), (128, 1, 1), [
        buffer("turns", np.array([3, 0, 1, 2], np.uint32)), buffer("out", out),
    ])  # fmt: skip
    assert (out.reshape(4, 32)[:, 0] == [-32, 0, 32, 0]).all()


# ---- what is not emulated -------------------------------------------------------------------------------------------

D, A = "{%f0, %f1, %f2, %f3}", "{%r0, %r1, %r2, %r3}"


@pytest.mark.parametrize(
    "line",
    [
        f"wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {{%r4, %r5}}, {A}, %rd0, 1, 1, 1, 0;",
        f"wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {D}, {A}, %rd0, 1, 1, 1;",
        f"wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {D}, {A}, %rd0, 1, 1, 1;",
        f"wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {D}, {A}, %rd0, %r4, 0, 1, 1, 1, 0;",
        f"wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {D}, {A}, %rd0, 1, 1, 1, 0;",
        f"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.bf16 {D}, {A}, %rd0, 1, 1, 1, 0;",
        f"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {D}, {A}, %rd0, 1, 1, 1, 2;",
        f"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {D}, %rd0, %rd0, 1, 1, 1, 2, 0;",
        f"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {D}, {A}, %rd0, 1, 1, 2, 0;",
        "wgmma.fence.sync.aligned.other;",
        "fence.proxy.alias;",
    ],
)
def test_other_forms_are_refused(line: str) -> None:
    with pytest.raises(NotEmulated, match=f"not emulated: {line.split()[0].rstrip(';')} at"):
        run_ptx(kernel(f" {line}", 0), {}, block=128)


@pytest.mark.parametrize("columns, across", [(8, 0), (16, 1)])
@pytest.mark.parametrize(
    "bits, problem",
    [(descriptor(1024, 0, 1024, 1) | 1 << 49, "with a matrix base offset"),
     (descriptor(1024 + 112, 0, 1024, 1), "with a row of A or B across the end of a swizzled row")],
)  # fmt: skip
def test_other_descriptors_are_refused(bits: int, problem: str, columns: int, across: int) -> None:
    body = f" .shared .align 1024 .b8 s[4096];\n mov.u64 %rd0, {bits}; wgmma.fence.sync.aligned;\n"
    d = ", ".join(f"%f{i}" for i in range(columns // 2))
    body += f" wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.f16.f16 {{{d}}}, {A}, %rd0, 1, 1, 1, {across};"
    with pytest.raises(NotEmulated, match=f"not emulated: wgmma.mma_async.* at ptx:\\d+ {problem}"):
        run_ptx(kernel(body, 0), {}, block=128)


@pytest.mark.parametrize("suffix", ["", ".shared::cta", ".global"])
def test_a_proxy_fence_alone_changes_nothing(suffix: str) -> None:
    out = np.zeros(32, np.uint32)
    run_ptx(kernel(f" ld.param.u64 %rd0, [p0]; fence.proxy.async{suffix}; mov.u32 %r0, %tid.x;"
                   " mad.wide.u32 %rd1, %r0, 4, %rd0; st.global.u32 [%rd1], %r0;", 1), {"out": out})  # fmt: skip
    assert (out == np.arange(32)).all()
