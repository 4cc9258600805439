// swizzle: reorders a compact scale matrix into the 128x4 tiles that a GEMM reads, and unswizzle puts it back.
//
// Contract (NUMERICS 1.7): entry (r, c) of the padded (R, C) matrix is at byte
//   ((r / 128) * (C / 4) + c / 4) * 512 + (r % 32) * 16 + ((r % 128) / 32) * 4 + c % 4
// of the tiles.
//
// Run it: make verify R=swizzle          Time it: make bench R=swizzle
#include "memory/swizzle_tile.cuh"
#include "scheduler/launch.cuh"

// =====================================================================================================================
// Kernels: a byte in and a byte out for each scale
// =====================================================================================================================

template <Outputs direction>
__global__ void __launch_bounds__(SwizzleTile::kThreads) swizzle(
    const u8* __restrict__ scale_inv,     // (round_up(rows, 128), round_up(cols/16, 4)) e4m3, compact
    u8* __restrict__ swizzled_scale_inv,  // (round_up(rows, 128), round_up(cols/16, 4)) e4m3, in 128x4 tiles
    int rows, int cols) {
  const TileOrigin tile = tile_origin(SwizzleTile::kRows, SwizzleTile::kCols);
  const auto scales = ThreadScales<direction>::of(rows, cols, tile.row, tile.col);
  if (!scales.allocated()) return;
  u32 quarter[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) quarter[i] = __ldg(reinterpret_cast<const u32*>(scale_inv + scales.compact(i)));
  uint4* target = reinterpret_cast<uint4*>(swizzled_scale_inv + scales.swizzled());
  *target = make_uint4(quarter[0], quarter[1], quarter[2], quarter[3]);
}

template <Outputs direction>
__global__ void __launch_bounds__(SwizzleTile::kThreads) unswizzle(
    const u8* __restrict__ swizzled_scale_inv,  // (round_up(rows, 128), round_up(cols/16, 4)) e4m3, in 128x4 tiles
    u8* __restrict__ scale_inv,                 // (round_up(rows, 128), round_up(cols/16, 4)) e4m3, compact
    int rows, int cols) {
  const TileOrigin tile = tile_origin(SwizzleTile::kRows, SwizzleTile::kCols);
  const auto scales = ThreadScales<direction>::of(rows, cols, tile.row, tile.col);
  if (!scales.allocated()) return;
  const uint4 v = __ldg(reinterpret_cast<const uint4*>(swizzled_scale_inv + scales.swizzled()));
  const u32 quarter[] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) *reinterpret_cast<u32*>(scale_inv + scales.compact(i)) = quarter[i];
}

// =====================================================================================================================
// Exports
// =====================================================================================================================

__constant__ Launch swizzle_launch = kLaunchTiles<SwizzleTile>;
__constant__ Launch unswizzle_launch = kLaunchTiles<SwizzleTile>;
