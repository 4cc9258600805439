"""A typical tensor-core kernel: two stages of cp.async, swizzled tiles, ldmatrix, mma; and decoding e2m1."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_source import ARCHES, buffer, module

from ptx_emulator.launches import launch

# C (M, N) = A (M, K) B^T of bf16, B (N, K); a block makes 128x128 with eight warps of 64x32, in steps of K = 32.
GEMM = """
using u32 = unsigned;
__device__ u32 shared_address(const void* p) { return __cvta_generic_to_shared(p); }
__device__ u32 place(u32 row, u32 chunk) { return row * 64 + ((chunk ^ (row >> 1 & 3)) << 4); }
__device__ void matrices(u32 (&r)[4], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
__device__ void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ void stage(u32 tile, const unsigned short* from, int rows, int row, int K, int k) {
  for (int i = threadIdx.x; i < 512; i += 256) {
    const int r = i / 4, used = row + r < rows ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 ::"r"(tile + place(r, i % 4)), "l"(from + (row + r) * K + k + i % 4 * 8), "r"(used));
  }
}
extern "C" __global__ void __launch_bounds__(256) k(const unsigned short* A, const unsigned short* B, float* C, int M,
                                                    int N, int K) {
  __shared__ __align__(128) unsigned char tiles[2][2][128 * 64];
  const int row = blockIdx.y * 128, column = blockIdx.x * 128;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, top = warp / 4 * 64, left = warp % 4 * 32;
  float d[4][4][4] = {};
  stage(shared_address(tiles[0][0]), A, M, row, K, 0);
  stage(shared_address(tiles[0][1]), B, N, column, K, 0);
  asm volatile("cp.async.commit_group;");
  for (int k = 0; k < K; k += 32) {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    const int now = k / 32 % 2;
    if (k + 32 < K) {
      stage(shared_address(tiles[now ^ 1][0]), A, M, row, K, k + 32);
      stage(shared_address(tiles[now ^ 1][1]), B, N, column, K, k + 32);
      asm volatile("cp.async.commit_group;");
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      u32 a[4][4], b[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        matrices(a[i], shared_address(tiles[now][0]) + place(top + i * 16 + lane % 16, half * 2 + lane / 16));
#pragma unroll
      for (int j = 0; j < 2; ++j)
        matrices(b[j], shared_address(tiles[now][1]) +
                           place(left + j * 16 + lane / 16 * 8 + lane % 8, half * 2 + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) multiply(d[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int m = row + top + i * 16 + lane / 4 + e / 2 * 8, n = column + left + j * 8 + lane % 4 * 2 + e % 2;
        if (m < M && n < N) C[m * N + n] = d[i][j][e];
      }
}
"""


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("m, n, k", [(128, 128, 128), (144, 200, 64)])
def test_gemm(arch: str, m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(m)
    a, b = rng.integers(-99, 100, (m, k)), rng.integers(-99, 100, (n, k))
    as_bf16 = [(values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for values in (a, b)]
    out = np.full((m, n), np.nan, np.float32)
    args = [
        buffer("A", as_bf16[0], writable=False), buffer("B", as_bf16[1], writable=False),
        buffer("C", out, initialised=False), m, n, k,
    ]  # fmt: skip
    grid = (-(-n // 128), -(-m // 128), 1)
    counters = launch(module(GEMM, arch), "k", grid, (256, 1, 1), args)
    assert (out == a @ b.T).all()
    assert counters.opcodes["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"] == grid[0] * grid[1] * 64 * k // 8
    assert counters.shared_conflicts == 0


# The bits of a code at the top of a 16-bit float's fraction and the bottom of its exponent: a subnormal, or nearly one.
DECODE = """
extern "C" __global__ void k(const unsigned* codes, unsigned* as_f16, unsigned* as_bf16) {
  const unsigned pair = codes[threadIdx.x];  // a code in the low bits of each half
  const unsigned sign = (pair & 0x80008u) << 12, rest = pair & 0x70007u;
  asm("mul.f16x2 %0, %1, %2;" : "=r"(as_f16[threadIdx.x]) : "r"(sign | rest << 9), "r"(0x74007400u));
  asm("mul.bf16x2 %0, %1, %2;" : "=r"(as_bf16[threadIdx.x]) : "r"(sign | rest << 6), "r"(0x7E807E80u));
}
"""


@pytest.mark.parametrize("arch", ARCHES)
def test_decoding_by_a_shift_and_a_product(arch: str) -> None:
    codes, halves = np.arange(256, dtype=np.uint32), np.zeros((2, 256), np.uint32)
    args = [buffer("codes", codes >> 4 << 16 | codes & 15), buffer("f16", halves[0]), buffer("bf16", halves[1])]
    launch(module(DECODE, arch), "k", (1, 1, 1), (256, 1, 1), args)
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    values = np.concatenate([values, -values])
    wanted = np.stack([values[codes & 15], values[codes >> 4]], axis=1)
    assert (halves[0].view(np.float16).reshape(256, 2) == wanted).all()
    assert (halves[1].view(np.uint16).reshape(256, 2) == wanted.view(np.uint32) >> 16).all()
    assert (np.signbit(halves[0].view(np.float16).reshape(256, 2)) == np.signbit(wanted)).all()
