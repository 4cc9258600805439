// Tiles of a large matrix that one block of threads takes together, so that a line leaves for memory more bytes at a
// time; of a matrix that has too few of them to keep a device busy, single tiles.
#pragma once

#include "memory/scale_layout.cuh"
#include "scheduler/launch.cuh"

// Part of a matrix: its top left element and its extents, which are multiples of 128 and may reach into the padding
struct CtaTile {
  int row, col, rows, cols;
};

// That of this block, of a grid for `launch`. A grid that covers the matrix with tiles has one block for each.
__device__ __forceinline__ CtaTile cta_tile(const Launch& launch, int rows, int cols) {
  constexpr int kTile = 128;
  const int tall = gridDim.y * gridDim.z * kTile < u32(rows) ? launch.tile_rows : kTile;
  const int wide = gridDim.x * kTile < u32(cols) ? launch.tile_cols : kTile;
  const TileOrigin origin = tile_origin(tall, wide);
  return {
      origin.row, origin.col, min(tall, round_up(rows, kTile) - origin.row),
      min(wide, round_up(cols, kTile) - origin.col)};
}
