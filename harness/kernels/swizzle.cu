// swizzle: reorders a compact scale matrix into the 128x4 tiles that a GEMM reads, and unswizzle puts it back.
//
// Contract (NUMERICS 1.7): entry (r, c) of the padded (R, C) matrix is at byte
//   ((r / 128) * (C / 4) + c / 4) * 512 + (r % 32) * 16 + ((r % 128) / 32) * 4 + c % 4
// of the tiles.
//
// Run it: make verify R=swizzle          Time it: make bench R=swizzle
#include "memory/scale_layout.cuh"
#include "scheduler/launch.cuh"

// =====================================================================================================================
// Config
// =====================================================================================================================

constexpr int kThreads = 256;

// A CTA moves the scales of 256x256 elements: 2x4 GEMM tiles, one to a warp. The tile is square, so that both
// directions have the same grid.
constexpr int kTile = 256;
constexpr int kGemmTileRows = 128;
constexpr int kGemmTileCols = 4 * kBlock;
constexpr int kGemmTilesAcross = kTile / kGemmTileCols;
static_assert(kThreads / 32 == kTile / kGemmTileRows * kGemmTilesAcross, "one warp for each GEMM tile");

// =====================================================================================================================
// Helpers
// =====================================================================================================================

// A thread's scales: four of each of four rows, 32 apart, which are sixteen contiguous bytes of a tile.
// direction: columnwise swaps rows and cols
template <Outputs direction>
struct ThreadScales {
  ScaleExtents extents;
  int row, block_col;

  __device__ ThreadScales(int rows, int cols)
      : extents(
            direction == Outputs::rowwise ? rows : cols, (direction == Outputs::rowwise ? cols : rows) / kBlock) {
    // The grid follows the tensor, whose transpose swaps rows and columns.
    const TileOrigin tile = tile_origin(kTile, kTile);
    const TileOrigin origin = direction == Outputs::rowwise ? tile : TileOrigin{tile.col, tile.row};
    const int warp = threadIdx.x / 32;
    row = origin.row + warp / kGemmTilesAcross * kGemmTileRows + threadIdx.x % 32;
    block_col = origin.col / kBlock + warp % kGemmTilesAcross * 4;
  }
  __device__ bool allocated() const { return extents.allocated(row, block_col); }
  // The bytes of row `i`
  __device__ i64 compact(int i) const {
    return scale_offset<ScaleLayout::compact>(row + 32 * i, block_col, extents.padded_blocks);
  }
  // The bytes of all rows
  __device__ i64 swizzled() const {
    return scale_offset<ScaleLayout::swizzled>(row, block_col, extents.padded_blocks);
  }
};

// =====================================================================================================================
// Kernels: a byte in and a byte out for each scale
// =====================================================================================================================

template <Outputs direction>
__global__ void __launch_bounds__(kThreads) swizzle(
    const u8* __restrict__ scale_inv,     // (round_up(rows, 128), round_up(cols/16, 4)) e4m3, compact
    u8* __restrict__ swizzled_scale_inv,  // (round_up(rows, 128), round_up(cols/16, 4)) e4m3, in 128x4 tiles
    int rows, int cols) {
  const ThreadScales<direction> scales(rows, cols);
  if (!scales.allocated()) return;
  u32 quarter[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) quarter[i] = __ldg(reinterpret_cast<const u32*>(scale_inv + scales.compact(i)));
  uint4* target = reinterpret_cast<uint4*>(swizzled_scale_inv + scales.swizzled());
  *target = make_uint4(quarter[0], quarter[1], quarter[2], quarter[3]);
}

template <Outputs direction>
__global__ void __launch_bounds__(kThreads) unswizzle(
    const u8* __restrict__ swizzled_scale_inv,  // (round_up(rows, 128), round_up(cols/16, 4)) e4m3, in 128x4 tiles
    u8* __restrict__ scale_inv,                 // (round_up(rows, 128), round_up(cols/16, 4)) e4m3, compact
    int rows, int cols) {
  const ThreadScales<direction> scales(rows, cols);
  if (!scales.allocated()) return;
  const uint4 v = __ldg(reinterpret_cast<const uint4*>(swizzled_scale_inv + scales.swizzled()));
  const u32 quarter[] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) *reinterpret_cast<u32*>(scale_inv + scales.compact(i)) = quarter[i];
}

// =====================================================================================================================
// Exports
// =====================================================================================================================

__constant__ Launch swizzle_launch = {kTile, kTile, kThreads, 0, Schedule::tiles};
__constant__ Launch unswizzle_launch = {kTile, kTile, kThreads, 0, Schedule::tiles};
