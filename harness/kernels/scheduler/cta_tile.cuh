// Schedule::patches: a CTA takes several 128x128 tiles of a large matrix, to store longer runs of a line, and single
// tiles of a matrix with too few to fill the device.
#pragma once

#include "memory/scale_layout.cuh"
#include "scheduler/launch.cuh"

// Top left element and extents, which are multiples of 128 and may reach into the padding
struct CtaTile {
  int row, col, rows, cols;
};

// This CTA's tile, bottom up. A grid that covers the matrix with 128x128 tiles has a CTA for each.
__device__ __forceinline__ CtaTile cta_tile(const Launch& launch, int rows, int cols) {
  constexpr int kTile = 128;
  const int tall = gridDim.y * gridDim.z * kTile < u32(rows) ? launch.tile_rows : kTile;
  const int wide = gridDim.x * kTile < u32(cols) ? launch.tile_cols : kTile;
  const TileOrigin origin = tile_origin_bottom_up(tall, wide);
  return {
      origin.row, origin.col, min(tall, round_up(rows, kTile) - origin.row),
      min(wide, round_up(cols, kTile) - origin.col)};
}
