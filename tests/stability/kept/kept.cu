// kept: e2m1 codes with one e4m3 scale for each 16 values of a row.
//
// Contract, each step rounded to nearest-even in fp32:
//   1. amax      = max |x| over 16 values of a row, NaN dropped
//   2. scale_inv = e4m3(amax * (1/6))
//   3. code      = e2m1(x * (1 / scale_inv))     x * 0 if scale_inv is 0; NaN is code 7
//
// A parameter is bound by its name: `input` is what the oracle's `inputs` returns, the other pointers are its `outputs`,
// `rows` and `cols` the extents. Headers of the harness and of the CUDA toolkit (<cuda_bf16.h>) can be included.
#include "memory/scale_layout.cuh"  // ScaleExtents: scales are padded with zeros to 128x4
#include "numerics/e4m3.cuh"        // e4m3_round; bf16, u8, u32 and i64 come with it
#include "scheduler/launch.cuh"     // Launch, tile_origin

constexpr int kTileRows = 16, kTileCols = 128, kThreads = 128;
constexpr int kBlocksAcross = kTileCols / kBlock;  // kBlock is 16

// f32->e2m1, ties to the even code
__device__ u32 e2m1(float v) {
  if (v != v) return 7;
  const float a = fabsf(v);
  const u32 code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
  return code | (signbit(v) ? 8 : 0);
}

__global__ void __launch_bounds__(kThreads) kept_encode(
    const bf16* __restrict__ input,      // (rows, cols)
    u8* __restrict__ rowwise_data,       // (rows, cols/2) e2m1 pairs, the first value in the low half
    u8* __restrict__ rowwise_scale_inv,  // (round_up(rows, 128), round_up(cols/16, 4)) e4m3
    int rows, int cols) {
  __shared__ float tile[kTileRows][kTileCols + 1];
  const TileOrigin origin = tile_origin(kTileRows, kTileCols);
  for (int i = threadIdx.x; i < kTileRows * kTileCols; i += kThreads) {
    const int row = origin.row + i / kTileCols, col = origin.col + i % kTileCols;
    const bool inside = row < rows && col < cols;
    tile[i / kTileCols][i % kTileCols] = inside ? float(input[i64(row) * cols + col]) : 0.0f;
  }
  __syncthreads();

  // A thread has 16 values of a row.
  const float* x = &tile[threadIdx.x / kBlocksAcross][threadIdx.x % kBlocksAcross * kBlock];
  const int row = origin.row + threadIdx.x / kBlocksAcross;
  const int block = origin.col / kBlock + threadIdx.x % kBlocksAcross;
  const ScaleExtents extents(rows, cols / kBlock);
  if (!extents.allocated(row, block)) return;

  float amax = 0.0f;
  for (int i = 0; i < kBlock; ++i) amax = fmaxf(amax, fabsf(x[i]));  // fmaxf drops NaN
  const E4m3 scale_inv = e4m3_round(amax * (1.0f / 6.0f));
  rowwise_scale_inv[i64(row) * extents.padded_blocks + block] = u8(scale_inv.code);
  if (!extents.holds(row, block)) return;

  const float multiplier = scale_inv.value == 0.0f ? 0.0f : 1.0f / scale_inv.value;
  for (int i = 0; i < kBlock; i += 2) {
    const u32 pair = e2m1(x[i] * multiplier) | e2m1(x[i + 1] * multiplier) << 4;
    rowwise_data[(i64(row) * cols + block * kBlock + i) / 2] = u8(pair);
  }
}

// A CTA for each tile of 16x128 elements
__constant__ Launch kept_encode_launch = {kTileRows, kTileCols, kThreads, 0, Schedule::tiles};
