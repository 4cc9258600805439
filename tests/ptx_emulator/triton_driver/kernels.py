"""Kernels of Triton for the tests: right ones, and wrong ones whose names end in what is wrong."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, inside) + tl.load(y + at, inside), inside)


@triton.jit
def row_amax(x, out, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + at, at < columns, other=0.0).to(tl.float32)
    tl.store(out + row, tl.max(tl.abs(values), 0))


@triton.jit
def histogram(x, counts, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(counts + tl.load(x + at, at < n, other=0).to(tl.int32), 1, at < n)


@triton.jit
def global_amax(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, at < n, other=0.0)
    tl.atomic_max(out, tl.max(tl.abs(values), 0))


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        depth = start + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * K + depth[None, :], (rows[:, None] < M) & (depth[None, :] < K), other=0.0)
        right = tl.load(b + depth[:, None] * N + columns[None, :], (depth[:, None] < K) & (columns < N), other=0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
    tl.store(c + rows[:, None] * N + columns, total.to(c.dtype.element_ty), (rows[:, None] < M) & (columns < N))


@triton.jit
def product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left, right = tl.load(a + m[:, None] * K + depth[None, :]), tl.load(b + depth[:, None] * N + n[None, :])
    tl.store(c + m[:, None] * N + n[None, :], tl.dot(left, right, out_dtype=c.dtype.element_ty))


@triton.jit
def attention_without_softmax(q, key, v, out, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    m, n, d = tl.arange(0, M)[:, None], tl.arange(0, N), tl.arange(0, D)
    score = tl.dot(tl.load(q + m * D + d[None, :]), tl.load(key + d[:, None] * N + n[None, :])).to(tl.bfloat16)
    tl.store(out + m * D + d[None, :], tl.dot(score, tl.load(v + n[:, None] * D + d[None, :])))


@triton.jit
def scaled_matmul(a, scale_a, b, scale_b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr):
    m, n, pair, block = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K // 2), tl.arange(0, K // BLOCK)
    left = tl.load(a + m[:, None] * (K // 2) + pair[None, :])
    right = tl.load(b + n[None, :] * (K // 2) + pair[:, None])
    scale_left = tl.load(scale_a + m[:, None] * (K // BLOCK) + block[None, :])
    scale_right = tl.load(scale_b + n[:, None] * (K // BLOCK) + block[None, :])
    total = tl.dot_scaled(left, scale_left, "e2m1", right, scale_right, "e2m1")
    tl.store(out + m[:, None] * N + n[None, :], total)


@triton.autotune([triton.Config({"BLOCK": size}, num_warps=warps) for size, warps in ((64, 1), (128, 4))], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out + at, tl.load(x + at) * factor)
    else:
        tl.store(out + at, tl.load(x + at, at < n) * factor, at < n)


@triton.jit
def copy_by_descriptor(source, target, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    target.store([row, column], source.load([row, column]))


@triton.jit
def copy_by_own_descriptor(x, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [ROWS, COLUMNS])
    target = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [ROWS, COLUMNS])
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    target.store([row, column], source.load([row, column]))


@triton.jit
def matmul_by_descriptor(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        total = tl.dot(a.load([row, start]), b.load([start, column]), total)
    c.store([row, column], total.to(tl.bfloat16))


@triton.jit
def running_sum(x, out, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    tl.store(out + at, tl.cumsum(tl.load(x + at, inside, other=0), 0), inside)


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def running_max(x, out, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    tl.store(out + at, tl.associative_scan(tl.load(x + at), 0, _larger))


@triton.jit
def persistent_sum(x, out, tiles, n, BLOCK: tl.constexpr):
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        at = tile * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + tile, tl.sum(tl.load(x + at, at < n, other=0), 0))


@triton.jit
def pipelined_rows(x, out, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        values = tl.load(x + row * columns + at, at < columns, other=0.0)
        tl.store(out + row * columns + at, values * 2, at < columns)


@triton.jit
def convert(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n).to(out.dtype.element_ty), at < n)


@triton.jit
def round_stochastically(x, bits, out, n, BLOCK: tl.constexpr):
    """float32 to bf16: adds random bits below the last that stays, and cuts; the sum is inline PTX."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    pattern = tl.load(x + at, at < n).to(tl.uint32, bitcast=True)
    raised = tl.inline_asm_elementwise(
        "{ .reg .b32 low; and.b32 low, $2, 0xFFFF; add.u32 $0, $1, low; }",
        "=r,r,r", [pattern, tl.load(bits + at, at < n)], dtype=tl.uint32, is_pure=True, pack=1,
    )  # fmt: skip
    tl.store(out + at, (raised >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True), at < n)


@triton.jit
def mixed_arguments(out, pair, flag, half, none, big, one, FACTOR: tl.constexpr):
    x, rest = pair
    y, z = rest
    value = tl.load(x) + y + z + big + one
    if none is not None:
        value += 1
    if flag:
        value += FACTOR
    tl.store(out, value.to(tl.float64) + half)


@triton.jit
def prints(x):
    tl.device_print("x is", tl.load(x))


@triton.jit
def asserts(x, limit):
    tl.device_assert(tl.load(x) < limit, "x is too large")


@triton.jit
def sort_rows(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.sort(tl.load(x + at)))


@triton.jit
def add_under_a_lock(lock, out):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    count = tl.load(out)
    tl.debug_barrier()
    tl.store(out, count + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def double_in_place(x, BLOCK: tl.constexpr):
    """With fewer elements than threads, several of which load each."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) * 2)


@triton.jit
def gather(pointers, out, BLOCK: tl.constexpr):
    source = tl.load(pointers + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * BLOCK + at, tl.load(source + at))


@triton.jit
def row_sums(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    tl.store(out + row, tl.sum(tl.load(x + row[:, None] * COLUMNS + column), 1))


@triton.jit
def store_out_of_bounds(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, at < n)
    tl.store(out + at, values)  # no mask


@triton.jit
def _put(out, at, values):
    tl.store(out + at, values)  # of a helper


@triton.jit
def store_out_of_bounds_in_a_helper(out, BLOCK: tl.constexpr):
    _put(out, tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32))  # calls it


@triton.jit
def store_race(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + at, at < n, other=0.0), 0)
    tl.store(out, total)  # each program's


@triton.jit
def shift_in_place(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + at)
    tl.store(x + at + 1, values)  # what another thread still loads


@triton.jit
def read_unwritten(x, partial, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    others = tl.load(partial + at, at < n)  # perhaps of nobody
    tl.store(out + at, tl.load(x + at, at < n) + others, at < n)


@triton.jit
def misalign(out):
    tl.store((out + 1).to(tl.pointer_type(tl.int64)), 1)  # 8 bytes at byte 4


@triton.jit
def parted_matmul(a, b, c, K, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr):
    m, n = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for k in tl.range(0, K, STEP, warp_specialize=True):
        total = tl.dot(a.load([m, k]), b.load([n, k]).T, total)
    c.store([m, n], total.to(tl.float16))


@triton.jit
def parted_matmul_of_pointers(a, b, c, M, N, K, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr):
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [ROWS, STEP])
    right = tl.make_tensor_descriptor(b, [N, K], [K, 1], [COLUMNS, STEP])
    out = tl.make_tensor_descriptor(c, [M, N], [N, 1], [ROWS, COLUMNS])
    m, n = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for k in tl.range(0, K, STEP, warp_specialize=True):
        total = tl.dot(left.load([m, k]), right.load([n, k]).T, total)
    out.store([m, n], total.to(tl.float16))


@triton.jit
def parted_scale(x, out, N, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    for k in tl.range(0, N, BLOCK, warp_specialize=True):
        tl.store(out + row * N + k + at[None, :], x.load([row, k]) * 2 + 1)
