// Launch geometry, which the host reads back from the compiled module under the name `<kernel>_launch`.
#pragma once

enum class Schedule {
  tiles,       // one block for each tile of the extents rounded up to 128; some beyond the last row
  persistent,  // blocks_per_sm blocks on each multiprocessor, but no more than there are tiles of work
  resident,    // one block for each tile, all at once, so that they may wait for each other
  patches,     // one block for each tile if that makes blocks_per_sm for each multiprocessor; if not, for each 128x128
};

struct Launch {
  int tile_rows, tile_cols;  // elements one block takes, in all or (persistent) at a time
  int threads;
  int blocks_per_sm;  // that a multiprocessor holds at once, or (patches) is given at least; 0 if it does not matter
  Schedule schedule;
};

// One block of threads for each Tile
template <typename Tile>
constexpr Launch kLaunchTiles = {Tile::kRows, Tile::kCols, Tile::kThreads, 0, Schedule::tiles};

// Top left element of this block's tile under Schedule::tiles: column tiles along x, row tiles along y and, since y
// ends at 65535, z.
struct TileOrigin {
  int row, col;
};

__device__ __forceinline__ TileOrigin tile_origin(int tile_rows, int tile_cols) {
  return {int(blockIdx.z * gridDim.y + blockIdx.y) * tile_rows, int(blockIdx.x) * tile_cols};
}
