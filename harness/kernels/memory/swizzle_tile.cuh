// The scales that a CTA reorders, and where each of its threads finds them in either layout.
#pragma once

#include "memory/scale_layout.cuh"

// A CTA moves the scales of 256x256 elements: 2x4 GEMM tiles, one per warp. The tile is square, so that both
// directions have the same grid.
struct SwizzleTile {
  static constexpr int kRows = 256, kCols = kRows, kThreads = 256;
  static constexpr int kGemmTileRows = 128;
  static constexpr int kGemmTileCols = 4 * kBlock;
  static constexpr int kGemmTilesAcross = kCols / kGemmTileCols;
  static_assert(kThreads / 32 == kRows / kGemmTileRows * kGemmTilesAcross, "one warp for each GEMM tile");
};

// A thread's scales: four of each of four rows, 32 apart, which are sixteen contiguous bytes of a tile.
// direction: columnwise swaps rows and cols
template <Outputs direction>
struct ThreadScales {
  ScaleExtents extents;
  int row, block_col;

  // tile_row, tile_col: top left element of the tensor's tile, whose transpose swaps them
  __device__ static ThreadScales of(int rows, int cols, int tile_row, int tile_col) {
    const int scale_rows = direction == Outputs::rowwise ? rows : cols;
    const int scale_cols = direction == Outputs::rowwise ? cols : rows;
    const int first_row = direction == Outputs::rowwise ? tile_row : tile_col;
    const int first_col = direction == Outputs::rowwise ? tile_col : tile_row;
    const int warp = threadIdx.x / 32;
    return {
        ScaleExtents(scale_rows, scale_cols / kBlock),
        first_row + warp / SwizzleTile::kGemmTilesAcross * SwizzleTile::kGemmTileRows + int(threadIdx.x % 32),
        first_col / kBlock + warp % SwizzleTile::kGemmTilesAcross * 4};
  }
  __device__ bool allocated() const { return extents.allocated(row, block_col); }
  // The bytes of row `i`
  __device__ i64 compact(int i) const {
    return scale_offset<ScaleLayout::compact>(row + 32 * i, block_col, extents.padded_blocks);
  }
  // The bytes of all rows
  __device__ i64 swizzled() const { return scale_offset<ScaleLayout::swizzled>(row, block_col, extents.padded_blocks); }
};
