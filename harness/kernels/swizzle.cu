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
  ScalePatch patch = scale_patch<direction>(rows, cols, tile.row, tile.col);
  if (!patch.allocated()) return;
  patch.load_compact(scale_inv);
  patch.store_swizzled(swizzled_scale_inv);
}

template <Outputs direction>
__global__ void __launch_bounds__(SwizzleTile::kThreads) unswizzle(
    const u8* __restrict__ swizzled_scale_inv,  // (round_up(rows, 128), round_up(cols/16, 4)) e4m3, in 128x4 tiles
    u8* __restrict__ scale_inv,                 // (round_up(rows, 128), round_up(cols/16, 4)) e4m3, compact
    int rows, int cols) {
  const TileOrigin tile = tile_origin(SwizzleTile::kRows, SwizzleTile::kCols);
  ScalePatch patch = scale_patch<direction>(rows, cols, tile.row, tile.col);
  if (!patch.allocated()) return;
  patch.load_swizzled(swizzled_scale_inv);
  patch.store_compact(scale_inv);
}

// =====================================================================================================================
// Exports
// =====================================================================================================================

__constant__ Launch swizzle_launch = kLaunchTiles<SwizzleTile>;
__constant__ Launch unswizzle_launch = kLaunchTiles<SwizzleTile>;
