"""Kernels that reduce, quantize and move tiles, compiled for both targets, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from cuda_source import ARCHES, buffer, module

from ptx_emulator.launches import launch

QUANTIZE = """
__device__ __forceinline__ unsigned absmax2(unsigned a, unsigned b) {
  unsigned m;
  asm("{ .reg .b32 x, y; abs.bf16x2 x, %1; abs.bf16x2 y, %2; max.bf16x2 %0, x, y; }" : "=r"(m) : "r"(a), "r"(b));
  return m;
}
__device__ __forceinline__ unsigned code(float v) {
  const float a = fabsf(v);
  const unsigned n = (a > .25f) + (a >= .75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.f);
  return n | (__float_as_uint(v) >> 28 & 8);
}
__device__ __forceinline__ unsigned pair(float low, float high) {
#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ >= 1000
  unsigned out;
  asm("{ .reg .b8 b, z; mov.b16 {b, z}, 0; cvt.rn.satfinite.e2m1x2.f32 b, %2, %1; mov.b32 %0, {b, z, z, z}; }"
      : "=r"(out) : "f"(low), "f"(high));
  return out;
#else
  return code(low) | code(high) << 4;
#endif
}
// One thread for 16 values: amax by packed maxima, a scale, eight bytes of codes.
extern "C" __global__ void k(const uint4* in, uint2* data, float* scale, int blocks) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= blocks) return;
  unsigned x[8];
  *reinterpret_cast<uint4*>(x) = in[2 * i];
  *reinterpret_cast<uint4*>(x + 4) = in[2 * i + 1];
  unsigned m = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) m = absmax2(m, x[j]);
  const float amax = fmaxf(__uint_as_float(m << 16), __uint_as_float(m & 0xFFFF0000u));
  const float inverse = amax > 0 ? __fdiv_rn(6.0f, amax) : 0.0f;
  unsigned out[2] = {0, 0};
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float low = __uint_as_float(x[j] << 16) * inverse, high = __uint_as_float(x[j] & 0xFFFF0000u) * inverse;
    out[j / 4] |= pair(low, high) << (j % 4 * 8);
  }
  data[i] = make_uint2(out[0], out[1]);
  scale[i] = amax;
}
"""


@pytest.mark.parametrize("arch", ARCHES)
def test_quantizer(arch: str) -> None:
    blocks = 1000
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((blocks, 16)) * np.exp(rng.normal(0, 8, (blocks, 1)))).astype(ml_dtypes.bfloat16)
    x[3], x[4, 5], x[5, :3] = 0, -0.0, 2.0**-133
    data, scale = np.zeros((blocks, 8), np.uint8), np.zeros(blocks, np.float32)
    outputs = [buffer("data", data, initialised=False), buffer("scale", scale, initialised=False)]
    args = [buffer("in", x, writable=False), *outputs, blocks]
    counters = launch(module(QUANTIZE, arch), "k", (8, 1, 1), (128, 1, 1), args)
    values = x.astype(np.float32)
    amax = np.abs(values).max(axis=1)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.where(amax > 0, np.float32(6) / amax, np.float32(0))
        scaled = np.clip(values * inverse[:, None], -6, 6)
    codes = scaled.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    assert (scale == amax).all()
    assert (data == codes[:, ::2] | codes[:, 1::2] << 4).all()
    assert counters.global_bytes_read == x.nbytes and counters.global_bytes_written == data.nbytes + scale.nbytes


TRANSPOSE = """
extern "C" __global__ void k(const unsigned short* in, unsigned short* out, int rows, int cols) {
  __shared__ unsigned short tile[32][34];
  const int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32;
  for (int i = threadIdx.y; i < 32; i += blockDim.y)
    if (row + i < rows && col < cols) tile[i][threadIdx.x] = in[(row + i) * cols + col];
  __syncthreads();
  for (int i = threadIdx.y; i < 32; i += blockDim.y) {
    const int out_row = blockIdx.x * 32 + i, out_col = row + threadIdx.x;
    if (out_row < cols && out_col < rows) out[out_row * rows + out_col] = tile[threadIdx.x][i];
  }
}
"""


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("rows, cols", [(64, 96), (50, 77)])
def test_transpose_through_shared_memory(arch: str, rows: int, cols: int) -> None:
    x = np.random.default_rng(1).integers(0, 1 << 16, (rows, cols)).astype(np.uint16)
    out = np.zeros((cols, rows), np.uint16)
    counters = launch(
        module(TRANSPOSE, arch), "k", (-(-cols // 32), -(-rows // 32), 1), (32, 8, 1),
        [buffer("in", x, writable=False), buffer("out", out, initialised=False), rows, cols], lanes=512,
    )  # fmt: skip
    assert (out == x.T).all()
    assert counters.barriers == -(-cols // 32) * -(-rows // 32)


PHILOX = """
extern "C" __global__ void k(uint4* out, unsigned long long seed) {
  const unsigned i = blockIdx.x * 32 + threadIdx.x;
  unsigned c0 = i, c1 = 0, c2 = 1, c3 = 7, k0 = unsigned(seed), k1 = unsigned(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned long long p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
    c0 = unsigned(p1 >> 32) ^ c1 ^ k0; c1 = unsigned(p1);
    c2 = unsigned(p0 >> 32) ^ c3 ^ k1; c3 = unsigned(p0);
    k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }
  out[i] = make_uint4(c0, c1, c2, c3);
}
"""


def philox(counter: list[int], key: list[int]) -> list[int]:
    word = (1 << 32) - 1
    for _ in range(10):
        p0, p1 = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [p1 >> 32 ^ counter[1] ^ key[0], p1 & word, p0 >> 32 ^ counter[3] ^ key[1], p0 & word]
        key = [(key[0] + 0x9E3779B9) & word, (key[1] + 0xBB67AE85) & word]
    return counter


def test_the_model_is_philox() -> None:
    # Known answers of the authors' Random123: zeros, and all ones.
    assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = 0xFFFFFFFF
    assert philox([ones] * 4, [ones] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


@pytest.mark.parametrize("arch", ARCHES)
def test_philox(arch: str) -> None:
    out = np.zeros((96, 4), np.uint32)
    seed = 0x0123456789ABCDEF
    launch(module(PHILOX, arch), "k", (3, 1, 1), (32, 1, 1), [buffer("out", out, initialised=False), seed])
    assert out.tolist() == [philox([i, 0, 1, 7], [seed & 0xFFFFFFFF, seed >> 32]) for i in range(96)]


HALF = """
// e2m1 codes of two floats by f16 arithmetic on subnormals, where f16 counts in steps like e2m1 does.
extern "C" __global__ void k(const float2* in, unsigned* rounded, unsigned* truncated, unsigned* sum) {
  const unsigned i = blockIdx.x * 64 + threadIdx.x;
  const float2 v = in[i];
  unsigned a, b, s;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(a) : "f"(v.y), "f"(v.x));
  asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(b) : "f"(v.y), "f"(v.x));
  asm("{ .reg .b32 t; add.f16x2 t, %1, %2; min.f16x2 %0, t, %3; }" : "=r"(s) : "r"(a), "r"(b), "r"(0x03FF0400));
  rounded[i] = a; truncated[i] = b; sum[i] = s;
}
"""


@pytest.mark.parametrize("arch", ARCHES)
def test_half_subnormals_are_exact(arch: str) -> None:
    rng = np.random.default_rng(4)
    step = np.float32(2.0**-24)
    x = (rng.integers(-2000, 2000, (640, 2)) * step * np.float32(0.5)).astype(np.float32)
    x[::5] += (rng.integers(-1, 2, (128, 2)) * np.float32(2.0**-40)).astype(np.float32)
    rounded, truncated, total = (np.zeros((640, 2), np.uint16) for _ in range(3))
    outputs = [
        buffer(name, array, initialised=False) for name, array in zip("abc", (rounded, truncated, total), strict=True)
    ]
    launch(module(HALF, arch), "k", (10, 1, 1), (64, 1, 1), [buffer("in", x), *outputs])
    steps = x.astype(np.float64) / float(step)
    limit = np.array([0x0400, 0x03FF])
    assert (rounded.view(np.float16).astype(np.float64) / float(step) == np.rint(steps)).all()
    assert (truncated.view(np.float16).astype(np.float64) / float(step) == np.trunc(steps)).all()
    sums = np.minimum(np.rint(steps) + np.trunc(steps), limit)
    assert (total.view(np.float16).astype(np.float64) / float(step) == sums).all()
    assert (np.signbit(rounded.view(np.float16)) == np.signbit(x)).all()
