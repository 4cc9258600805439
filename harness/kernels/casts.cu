// casts: the two scalar casts, e2m1 and e4m3, of every element. Every recipe's bytes rest on them, and they are small
// enough to be proven.
//
// Contract (NUMERICS 1):
//   1. e2m1_data = e2m1(x)   f32->e2m1 rounds to nearest even; -0 kept, NaN is 0x7, above 5 is 6
//   2. e4m3_data = e4m3(x)   f32->e4m3 rounds to nearest even; -0 kept, NaN is 0x7F, above 448 is 448
//
// Run it: make verify R=casts          All 2^32 floats, on a GPU: make exhaustive
#include "memory/block_io.cuh"
#include "numerics/e4m3.cuh"
#include "scheduler/launch.cuh"

// =====================================================================================================================
// Config
// =====================================================================================================================

constexpr int kThreads = 256;
constexpr int kTileRows = kThreads / 32;
constexpr int kTileCols = 32 * kBlock;

// =====================================================================================================================
// Kernel
// =====================================================================================================================

template <typename Dtype>
__global__ void __launch_bounds__(kThreads) casts(
    const Dtype* __restrict__ input,  // (rows, cols)
    u8* __restrict__ e2m1_data,       // (rows, cols/2) e2m1 pairs
    u8* __restrict__ e4m3_data,       // (rows, cols) e4m3
    int rows, int cols) {
  const TileOrigin origin = tile_origin(kTileRows, kTileCols);
  const int row = origin.row + threadIdx.x / 32;
  const int block_col = origin.col / kBlock + threadIdx.x % 32;
  const ScaleExtents extents(rows, cols / kBlock);
  if (!extents.holds(row, block_col)) return;

  const i64 block = row_offset(row, extents.blocks) + block_col;
  float value[kBlock];
  unpack(load16(input + block * kBlock), value);
  u32 byte[4] = {};
#pragma unroll
  for (int i = 0; i < kBlock; ++i) byte[i / 4] |= e4m3_encode(value[i]) << (8 * (i % 4));
  reinterpret_cast<uint4*>(e4m3_data)[block] = make_uint4(byte[0], byte[1], byte[2], byte[3]);
  store_codes(e2m1_data, block, encode16_nearest(value, 1.0f));
}

// =====================================================================================================================
// Exports
// =====================================================================================================================

__constant__ Launch casts_launch = {kTileRows, kTileCols, kThreads, 0, Schedule::tiles};
